import pytest

from macredit.agents import make_policies, make_policy, parse_policy
from macredit.errors import UserError
from macredit.policy import Chat, Policy, Request
from macredit.seeds import Key


class Echo:
    """An environment whose right answer is the prompt itself."""

    @staticmethod
    def expert(request: Request) -> str:
        return request.prompt

    @staticmethod
    def fumbles(request: Request) -> list[str]:
        return [f"not {request.prompt}!", f"not {request.prompt}!!"]


def asked(group: int, prompt: str = "red") -> Request:
    return Request("a", (Chat("system", "role"), Chat("user", prompt)), Key(0, "t", group))


def texts(policy: Policy, groups: int = 200) -> list[str]:
    policy.submit([(g, asked(g)) for g in range(groups)])
    return [getattr(said, "text", repr(said)) for _, said in sorted(policy.collect(), key=lambda pair: pair[0])]


def test_styles() -> None:
    env = Echo()
    assert set(texts(make_policy({"kind": "scripted", "style": "perfect"}, env=env))) == {"red"}
    assert set(texts(make_policy({"kind": "scripted", "style": "silent"}))) == {""}
    assert set(texts(make_policy({"kind": "scripted", "style": "stubborn", "says": "blue"}))) == {"blue"}
    noisy = texts(make_policy({"kind": "scripted", "style": "noisy", "skill": 0.7}, env=env))
    assert 0.6 < noisy.count("red") / 200 < 0.8  # standard error 0.03
    assert set(noisy) == {"red", "not red!", "not red!!"}
    picked = texts(make_policy({"kind": "scripted", "style": "random", "replies": ["x", "y"]}))
    assert 70 < picked.count("x") < 130
    words = texts(make_policy({"kind": "scripted", "style": "random"}))
    assert all(word.isalpha() and word.islower() for word in words)
    assert len(set(words)) > 150


@pytest.mark.parametrize("style", ["noisy", "random"])
def test_a_reply_depends_on_the_request_alone(style: str) -> None:
    policy = make_policy({"kind": "scripted", "style": style}, env=Echo())
    together = texts(policy, 20)
    alone = []
    for g in reversed(range(20)):
        policy.submit([(0, asked(g))])
        alone.append(getattr(policy.collect()[0][1], "text", ""))
    assert together == alone[::-1]


def test_versions_tell_scripts_apart() -> None:
    made = [make_policy({"kind": "scripted", "style": "noisy", "skill": s}, env=Echo()) for s in (0.1, 0.2)]
    assert [policy.version for policy in made] == ["noisy-0.1", "noisy-0.2"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"kind": "scripted", "style": "perfect"}, "no `expert`"),
        ({"kind": "scripted", "style": "noisy"}, "no `expert`"),
        ({"kind": "scripted", "style": "perfetc"}, "Did you mean 'perfect'"),
        ({"kind": "scripted", "style": "silent", "skil": 1}, "Did you mean 'skill'"),
        ({"kind": "scripted", "style": "silent", "expert": 1}, "unknown setting"),
        ({"kind": "tabel"}, "Did you mean 'table'"),
        ({}, "unknown kind of policy"),
        ({"kind": "table"}, "no replies"),
    ],
)
def test_bad_specs(spec: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_policy(spec)


def test_bad_skill() -> None:
    with pytest.raises(UserError, match="expected a probability"):
        make_policy({"kind": "scripted", "style": "noisy", "skill": 7}, env=Echo())


def test_names_are_given() -> None:
    made = make_policies({"p": {"kind": "scripted", "style": "silent"}, "q": {"kind": "table", "replies": ["x"]}})
    assert {name: policy.name for name, policy in made.items()} == {"p": "p", "q": "q"}


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("solver=scripted:perfect", {"kind": "scripted", "style": "perfect"}),
        ("solver=scripted:noisy:0.25", {"kind": "scripted", "style": "noisy", "skill": 0.25}),
        ("solver=table:yes,no", {"kind": "table", "replies": ["yes", "no"]}),
        ("solver=hf:org/model", {"kind": "hf", "model": "org/model"}),
        ("solver=hf:tiny:3", {"kind": "hf", "model": "tiny:3"}),
        ("solver=tiny", {"kind": "hf", "model": "tiny"}),
        ("solver=models/m.gguf", {"kind": "hf", "model": "models/m.gguf"}),
    ],
)
def test_short_forms(text: str, spec: dict[str, object]) -> None:
    assert parse_policy(text) == ("solver", spec)


@pytest.mark.parametrize(
    ("text", "message"),
    [("solver", "NAME=KIND"), ("solver=scriptd:x", "Did you mean 'scripted'"), ("s=scripted:noisy:x", "a number")],
)
def test_bad_short_forms(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_policy(text)
