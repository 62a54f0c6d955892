from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macredit.agents import make_policies
from macredit.envs import Coalition
from macredit.errors import UserError
from macredit.rollout import World, play, tasks_of
from macredit.seeds import Key
from macredit.whatif import WhatIf

# METHODS section 7: Shapley | Banzhaf | leave-one-out, one number a specialist.
EXACT: dict[str, tuple[Sequence[float], Sequence[float], Sequence[float]]] = {
    "additive": ((0.5, 0.3, 0.2), (0.5, 0.3, 0.2), (0.5, 0.3, 0.2)),
    "or": ((1 / 2, 1 / 2), (1 / 2, 1 / 2), (0, 0)),
    "and": ((1 / 2, 1 / 2), (1 / 2, 1 / 2), (1, 1)),
    "or3": ((1 / 3,) * 3, (1 / 4,) * 3, (0,) * 3),
    "and3": ((1 / 3,) * 3, (1 / 4,) * 3, (1,) * 3),
    "majority": ((1 / 3,) * 3, (1 / 2,) * 3, (0,) * 3),
    "majority3": ((1 / 3,) * 3, (1 / 2,) * 3, (0,) * 3),
    "glove": ((2 / 3, 1 / 6, 1 / 6), (0.75, 0.25, 0.25), (1, 0, 0)),
    "airport": ((1 / 3, 5 / 6, 11 / 6), (0.25, 0.75, 1.75), (0, 0, 1)),
    "free_rider": ((0.6, 0.4, 0), (0.6, 0.4, 0), (0.6, 0.4, 0)),
    "saboteur": ((0.5, 0, -0.5), (0.5, 0, -0.5), (0, 0, -1)),
    "never_invoked": ((0.5, 0.3, 0), (0.5, 0.3, 0), (0.5, 0.3, 0)),
}


def world(env: Coalition) -> World:
    return World(env, make_policies({name: {"kind": "scripted", "style": "perfect"} for name in env.team.names}, env))


def exact(env: Coalition) -> Mapping[str, Mapping[str, float]]:
    return env.exact_credit() or {}


@pytest.mark.parametrize("preset", EXACT)
def test_exact_values(preset: str) -> None:
    credit = exact(Coalition(preset))
    for index, expected in zip(("shapley", "banzhaf", "loo"), EXACT[preset], strict=True):
        assert list(credit[index].values()) == pytest.approx(list(expected), abs=1e-12)


@pytest.mark.parametrize("preset", EXACT)
def test_what_is_played_earns_the_worth_and_leave_one_out(preset: str) -> None:
    env = Coalition(preset)
    here = world(env)
    episode = play(here, tasks_of(0, 1))[0]
    assert (episode.end, episode.reward) == ("done", env.worth(frozenset(env.team.specialists)))
    without = WhatIf([episode], here).ask([(0, frozenset({name})) for name in env.team.specialists])
    assert [env.worth(frozenset(env.team.specialists)) - outcome.mean for outcome in without] == pytest.approx(
        list(EXACT[preset][2])
    )


def test_any_planner_plays_the_game_out() -> None:
    env = Coalition("additive")
    for says in ("xyz", "help", "@a @b @c all of you", "@all go"):
        env.reset(seed=0)
        while env.end is None:
            env.step("help" if env.agent_selection != "planner" else says if env.turn == 0 else "next")
        assert env.scores()[0] == pytest.approx(1.0)


def test_a_silent_planner_calls_nobody_and_a_silent_specialist_never_helps() -> None:
    env = Coalition("additive")
    env.reset(seed=0)
    env.pass_turn()
    assert (env.end, env.turn, env.scores()[0]) == ("done", 1, 0.0)
    env.reset(seed=0)
    while env.end is None:
        if env.agent_selection == "b":
            env.pass_turn()
        else:
            env.step("help")
    assert env.scores()[0] == pytest.approx(0.5 + 0.2)
    assert env.turn == 7  # planner, a, planner, b, planner, c, planner


def test_the_planner_cannot_reach_the_one_never_invoked() -> None:
    env = Coalition("never_invoked")
    env.reset(seed=0)
    env.step("@c please")
    assert not env.delivery.valid
    assert env.worth(frozenset("abc")) == env.worth(frozenset("ab")) == pytest.approx(0.8)


def test_the_latest_reply_of_a_specialist_counts() -> None:
    env = Coalition("or")
    env.reset(seed=0)
    for text in ("@a help?", "help", "@a sure?", "pass", "@user done"):
        env.step(text)
    assert env.scores()[0] == 0.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [("help", True), ("pass", False), ("Aye", True), ("Yes", False), (" mm", True), ("nn", False),
     ("1", True), ("0", False), ("", False), (" \n", False), ("7up", False), ("\ufffd", True), ("日本", True)],
)  # fmt: skip
def test_the_rule(text: str, expected: bool) -> None:
    # "7up" has a first letter u; "日本" is 26085 + 26412 = 52497, which is odd; U+FFFD is 65533, odd.
    assert Coalition.helps(text) is expected


@given(st.text())
def test_the_rule_takes_any_text(text: str) -> None:
    assert Coalition.helps(text) in (True, False)


@pytest.mark.parametrize("length", [1, 2, 3, 8])
def test_random_bytes_and_letters_help_about_half_the_time(length: int) -> None:
    rng = np.random.default_rng(0)
    letters = [bytes(rng.integers(97, 123, length).tolist()).decode() for _ in range(2000)]
    assert np.mean([Coalition.helps(text) for text in letters]) == pytest.approx(0.5, abs=0.04)
    noise = [bytes(rng.integers(0, 256, length).tolist()).decode(errors="replace") for _ in range(2000)]
    # A lone byte is no letter and no ASCII half the time; then it decodes to U+FFFD, which helps.
    assert np.mean([Coalition.helps(text) for text in noise]) == pytest.approx(0.5, abs=0.26 if length == 1 else 0.15)


def test_noise_is_seeded_by_the_play_and_has_the_given_spread() -> None:
    env = Coalition("or", noise=0.5)
    rewards = [episode.reward or 0.0 for episode in play(world(env), tasks_of(0, 20, group=20))]
    assert np.mean(rewards) == pytest.approx(1.0, abs=4 * 0.5 / 20)  # 400 plays: standard error 0.5 / 20
    assert np.std(rewards) == pytest.approx(0.5, rel=0.15)
    env.reset(options={"key": Key(0, "t0", 0)})
    assert env.scores() == env.scores()


@pytest.mark.parametrize(
    "table",
    [{"": 0, "a": 1, "b": 1, "a,b": 3}, [0, 1, 1, 3], (0, 1, 1, 3), {"": 0, "b": 1, "b, a": 3, "a": 1}],
)
def test_the_users_own_table(table: Mapping[str, float] | Sequence[float]) -> None:
    env = Coalition(table=table)
    assert env.team.specialists == ("a", "b")
    assert env.worth(frozenset("ab")) == 3
    # Shapley: a brings 1 when first and 3 − 1 = 2 when second, so 1.5 each
    assert exact(env)["shapley"] == pytest.approx({"a": 1.5, "b": 1.5})


def test_other_sizes_and_weights() -> None:
    assert exact(Coalition("additive", weights=(0.7, 0.3)))["loo"] == pytest.approx({"a": 0.7, "b": 0.3})
    assert Coalition("additive", n=4).worth(frozenset("abcd")) == pytest.approx(1.0)
    assert Coalition("airport", n=4).worth(frozenset("bd")) == 4
    assert exact(Coalition("free_rider", n=4))["shapley"] == pytest.approx({"a": 0.6, "b": 0.4, "c": 0, "d": 0})
    assert Coalition("or", n=12).team.specialists == tuple("abcdefghijkl")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"preset": "adition"}, "unknown preset 'adition'.*Did you mean 'additive'"),
        ({"n": 40}, "40 specialists was asked for; expected 1 to 16"),
        ({"n": 2, "weights": (1, 2, 3)}, "2 specialists but 3 weights"),
        ({"table": {"": 0, "a": 1, "b": 1}}, "has none; add the missing"),
        ({"table": [0, 1, 2]}, r"expected 2\*\*1 = 2"),
        ({"noise": -1.0}, "noise is -1"),
    ],
)
def test_mistakes_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Coalition(**arguments)  # type: ignore[arg-type]


class AskedOnlyIfSilent(Coalition):
    """The planner asks b only when a is silent: b's full value is not 0 although it is never asked."""

    def route(self, state: frozenset[str], agent: str, text: str) -> str | None:
        if agent == self.team.orchestrator and "a" in state:
            return "user"
        return super().route(state, agent, text)


def test_never_asked_is_not_worthless() -> None:
    env = AskedOnlyIfSilent("or")
    plays = {}
    for silent in ("", "a", "b", "ab"):
        env.reset(seed=0)
        while env.end is None:
            if env.agent_selection in silent:
                env.pass_turn()
            else:
                env.step("help")
        plays[silent] = (env.scores()[0], env.spoke("b"))
    # b's leave-one-out is 1 − 1 = 0 without a call; its Shapley value is (0 + (1 − 0)) / 2 = ½.
    assert plays == {"": (1.0, 0), "a": (1.0, 1), "b": (1.0, 0), "ab": (0.0, 1)}


def test_a_preset_keeps_its_name_with_a_number() -> None:
    assert Coalition("never_invoked4").worth(frozenset("abcd")) == pytest.approx(0.75)  # four weights of ¼, d cut off


@pytest.mark.parametrize("noise", [-1.0, float("nan"), float("inf")])
def test_noise_is_a_finite_standard_deviation(noise: float) -> None:
    with pytest.raises(UserError, match="noise is"):
        Coalition(noise=noise)
