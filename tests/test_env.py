from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macredit.env import Heard, Message, MessageSpace, Scores, TeamEnv, parse
from macredit.errors import UserError
from macredit.seeds import Key
from macredit.team import Agent, Team


class Chatter(TeamEnv):
    """Everyone may talk; the state is what was heard; the tool ``echo`` answers, and refuses to echo nothing."""

    name = "chatter_v0"
    tools = ("echo",)

    def __init__(self, team: Team, max_turns: int = 32, scores: Scores = 1.0) -> None:
        super().__init__(team, max_turns)
        self.given = scores

    def begin(self, rng: np.random.Generator) -> tuple[Any, ...]:
        return (int(rng.integers(1000)),)

    def hear(self, state: tuple[Any, ...], message: Message) -> Any:
        if "echo" in message.to:
            return Heard(state, message.text or "nothing to echo", valid=bool(message.text), reward=0.5)
        return (*state, message.text)

    def score(self, state: tuple[Any, ...]) -> Scores:
        return self.given


def star(**options: Any) -> Chatter:
    env = Chatter(Team.orchestrated("p", ("a", "b", "c")), **options)
    env.reset(seed=0)
    return env


def play(env: TeamEnv, *texts: str | None) -> list[str]:
    """Who said them."""
    speakers = []
    for text in texts:
        speakers.append(env.agent_selection)
        if text is None:
            env.pass_turn()
        else:
            env.step(text)
    return speakers


# -- what a text means ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello", (None, "hello")),
        ("@a hello", (("a",), "hello")),
        ("  @a, @b: hello @c", (("a", "b"), "hello @c")),
        ("@a\nhello", (("a",), "hello")),
        ("@user", (("user",), "")),
        ("mail me at x@a.org", (None, "mail me at x@a.org")),
        ('{"to": "a", "text": "hi"}', (("a",), "hi")),
        ('{"to": ["a", "@b"], "text": "hi"}', (("a", "b"), "hi")),
        ('{"name": "send_message", "arguments": {"to": "a", "text": "hi"}}', (("a",), "hi")),
        ('<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>', (("search",), "x")),
        ('{"name": "search", "arguments": "x"}', (("search",), "x")),
        ('{"name": "calc", "arguments": {"a": 1}}', (("calc",), '{"a": 1}')),
        ('{"no": "address"}', (None, '{"no": "address"}')),
        ("{broken", (None, "{broken")),
        ("{'to': 'a'}", (None, "{'to': 'a'}")),
    ],
)
def test_parse(text: str, expected: tuple[Any, str]) -> None:
    assert parse(text) == expected


@given(st.text())
def test_parse_takes_any_text(text: str) -> None:
    names, body = parse(text)
    assert names is None or all(isinstance(name, str) for name in names)
    assert isinstance(body, str)


def test_message_space_holds_every_string_that_fits() -> None:
    space = MessageSpace(max_length=5, seed=0)
    assert "a b\n" in space
    assert "abcdef" not in space
    assert 3 not in space
    assert space.sample() == MessageSpace(max_length=5, seed=0).sample()
    assert space == MessageSpace(5)
    assert space != MessageSpace(6)


# -- whose turn it is -----------------------------------------------------------------------------------------------


def test_replies_to_a_broadcast_come_before_the_orchestrator_speaks_again() -> None:
    env = star()
    assert play(env, "@all go", "one", "two", "three", "@user done") == ["p", "a", "b", "c", "p"]
    assert env.delivery.reads == (0, 1, 2, 3)  # the three replies, and its own previous turn
    assert env.end == "done"


def test_addressed_agents_wait_first_in_first_out_and_once() -> None:
    env = star()
    assert play(env, "@c @a go", "@p one", "@p two") == ["p", "c", "a"]
    assert env.agent_selection == "p"
    assert [m.text for m in env.unread("p")] == ["one", "two"]
    line = Chatter(Team.debate(("x", "y"), "j"))
    line.reset(seed=0)
    # y is told twice before its turn, and speaks once, having read both
    assert play(line, "@x @y go", "@y look", "@j both") == ["j", "x", "y"]
    assert line.delivery.reads == (0, 1)
    assert line.agent_selection == "j"


def test_text_without_address_goes_to_the_only_teammate_or_the_user() -> None:
    line = Chatter(Team.line(2))
    line.reset(seed=0)
    play(line, "hi")
    assert line.delivery.to == ("a1",)
    play(line, "bye")
    assert line.delivery.to == ("user",)
    assert line.end == "done"


def test_an_invalid_turn_is_answered_and_its_author_speaks_again() -> None:
    env = star()
    play(env, "hello?")
    assert (env.delivery.to, env.delivery.valid) == ((), False)
    assert env.agent_selection == "p"
    assert env.observe("p")["text"] == ("error: your message names nobody; begin with @a, @b, @c, @echo, @user")
    play(env, "@nobody x")
    assert "you cannot write to nobody" in env.observe("p")["text"]
    play(env, "@a x", "@b forbidden by the graph")
    assert not env.delivery.valid
    assert env.agent_selection == "a"
    assert env.observe("b")["text"] == ""


def test_an_invalid_turn_waits_behind_those_already_addressed() -> None:
    env = star()
    assert play(env, "@a @b go", "@nobody x", "fine", "sorry") == ["p", "a", "b", "a"]
    assert env.agent_selection == "p"


def test_a_tool_answers_its_caller() -> None:
    env = star()
    play(env, "@echo ping")
    assert (env.delivery.valid, env.delivery.reward) == (True, 0.5)
    assert env.agent_selection == "p"
    assert env.observe("p")["text"] == "echo: ping"
    play(env, "@echo")
    assert (env.delivery.valid, env.delivery.reward) == (False, 0.5)
    assert env.observe("p")["text"] == "error: nothing to echo"
    assert env.end is None


def test_the_limit_truncates_and_scores() -> None:
    env = star(max_turns=2, scores={"team": 1.0, "a": 0.25})
    play(env, "@a go", "back")
    assert env.end == "truncated"
    assert env.truncations == dict.fromkeys("pabc", True)
    assert env.terminations == dict.fromkeys("pabc", False)
    assert env.rewards == {"p": 1.0, "a": 1.25, "b": 1.0, "c": 1.0}
    assert env.scores() == (1.0, {"a": 0.25})


# -- silence and absence --------------------------------------------------------------------------------------------


def test_a_null_message_goes_where_unaddressed_text_would_go() -> None:
    line = Chatter(Team.line(3))
    line.reset(seed=0)
    play(line, "hi", None)
    assert line.delivery.to == ("a2",)
    play(line, None)
    assert line.delivery.to == ("user",)
    assert line.end == "done"


def test_a_null_message_with_no_default_goes_to_all_who_asked() -> None:
    env = Chatter(Team.debate(("x", "y"), "j"))
    env.reset(seed=0)
    play(env, "@x @y go", "@y and you?", None)
    assert env.delivery.to == ("j", "x")
    assert env.delivery.valid


def test_a_silent_orchestrator_of_several_ends_the_episode() -> None:
    env = star()
    play(env, None)
    assert env.end == "done"
    assert env.delivery.to == ()


def test_removed_agents_cannot_be_addressed() -> None:
    env = star()
    env.reset(seed=0, options={"absent": ["b"]})
    assert env.agents == ["p", "a", "c"]
    assert env.teammates("p") == ("a", "c")
    play(env, "@b hi")
    assert not env.delivery.valid
    play(env, "@all hi")
    assert env.delivery.to == ("a", "c")
    env.reset(seed=0, options={"absent": ["p"]})
    assert env.end == "done"
    with pytest.raises(UserError, match="unknown agent 'z'"):
        env.reset(seed=0, options={"absent": ["z"]})


# -- going back -----------------------------------------------------------------------------------------------------


def test_restoring_the_end_gives_back_the_rewards() -> None:
    env = star()
    play(env, "@a go", "back", "@user done")
    before = env.last()
    snapshot = env.snapshot()
    env.reset(seed=1)
    env.restore(snapshot)
    assert env.last()[1:4] == before[1:4] == (1.0, True, False)


def test_a_branch_goes_its_own_way() -> None:
    env = star()
    play(env, "@a go")
    other = env.branch()
    play(other, "one")
    play(env, "two")
    assert [m.text for m in other.log] == ["go", "one"]
    assert [m.text for m in env.log] == ["go", "two"]
    assert other.observation_space("a") is not env.observation_space("a")


def test_rebuilding_feeds_texts_and_null_messages() -> None:
    env = star()
    env.rebuild(Key(3, "x"), ["@a @b go", None, "hi"])
    assert env.turn == 3
    assert env.spoke("a") == env.spoke("b") == 1
    assert [m.text for m in env.unread("p")] == ["", "hi"]


def test_contexts_are_equal_exactly_for_equal_pasts() -> None:
    contexts = []
    for group, texts in enumerate((["@a x", "y"], ["@a x", "z"], ["@a w", "y"])):
        env = star()
        env.reset(options={"key": Key(0, "t", group)})
        here = []
        for text in texts:
            env.step(text)
            here.append(env.delivery.context)
        contexts.append(here)
    assert contexts[0][0] == contexts[1][0] == contexts[2][0]
    assert contexts[0][1] == contexts[1][1] != contexts[2][1]


def test_the_task_depends_on_seed_and_task_alone() -> None:
    env = star()
    drawn: dict[Key, Any] = {}
    for key in (Key(0, "t"), Key(0, "t", 5, (1, 2)), Key(0, "u"), Key(1, "t")):
        env.reset(options={"key": key})
        drawn[key] = env.snapshot().board
    first, same, task, seed = drawn.values()
    assert first == same
    assert len({first, task, seed}) == 3


# -- what an author may get wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["user", "all", "team", "error", "two words", "", "a@b"])
def test_names_that_cannot_be_addressed(name: str) -> None:
    with pytest.raises(UserError, match="cannot be addressed"):
        Chatter(Team((Agent(name),), name))


def test_scores_name_the_team_and_agents_alone() -> None:
    scores: list[Mapping[str, float]] = [{"a": 1.0}, {"team": 1.0, "z": 1.0}]
    for given_scores in scores:
        env = star(scores=given_scores)
        with pytest.raises(UserError, match="expected 'team' and names of agents"):
            play(env, "@user done")


def test_a_step_needs_a_text() -> None:
    with pytest.raises(TypeError, match="expected the text that 'p' says"):
        star().step(None)


def test_at_least_one_turn() -> None:
    with pytest.raises(UserError, match="max_turns is 0"):
        star(max_turns=0)


def test_arguments_are_noted_for_the_record_and_survive_a_branch() -> None:
    team = Team.line(2)
    env = Chatter(team, scores=2.0)
    assert env.args == {"team": team, "scores": 2.0}
    assert env.branch().args == env.args


def test_an_author_must_write_begin_and_score() -> None:
    with pytest.raises(NotImplementedError, match=r"TeamEnv must define begin\(rng\)"):
        TeamEnv(Team.line(2)).reset(seed=0)


def test_render_is_the_transcript() -> None:
    env = star()
    play(env, "@a @b go", "huh", "hello?")
    assert env.render() == "p → a, b: go\na → p: huh\nb → p: hello?"


def test_roles_stay_with_the_team() -> None:
    env = star()
    assert env.team.casting(roles={"a": "Add."})["a"].role == "Add."
    assert replace(env.team, edges=(("p", "a"),)).teammates("p") == ("a",)


def test_what_was_not_delivered_went_to_nobody() -> None:
    class Strict(TeamEnv):
        name = "strict_v0"

        def __init__(self) -> None:
            super().__init__(Team.orchestrated("p", ["s"]))

        def begin(self, rng: np.random.Generator) -> int:
            return 0

        def hear(self, state: int, message: Message) -> Any:
            return Heard(state, "say it again", valid=False) if message.text == "no" else state

        def score(self, state: int) -> float:
            return 0.0

    env = Strict()
    env.reset(seed=0)
    env.step("@s no")
    assert (env.delivery.to, env.delivery.valid) == ((), False)
    env.step("@s yes")
    assert (env.delivery.to, env.delivery.valid) == (("s",), True)


def test_json_of_any_depth_is_only_an_invalid_turn() -> None:
    assert parse('{"to": ' + "[" * 100_000 + "}")[0] is None
