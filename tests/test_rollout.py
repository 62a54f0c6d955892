"""play: one loop, no tick, crashes isolated, the same episodes whatever the batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from macredit.agents import Scripted, Table
from macredit.env import Message, TeamEnv
from macredit.envs import Relay, make_env
from macredit.episode import Episode, episode_line
from macredit.errors import OutsideError, UserError
from macredit.evaluate import evaluate
from macredit.ledger import Ledger
from macredit.policy import BatchPolicy, Chat, Request, Said, opening
from macredit.rollout import Memory, Plan, World, play, tasks_of
from macredit.seeds import Key
from macredit.team import Team


def noisy(env: Any) -> World:
    return World(env, {a: Scripted("noisy", 0.7, expert=env.expert, fumbles=env.fumbles) for a in env.team.names})


def lines(episodes: Sequence[Episode]) -> list[str]:
    return [episode_line(e) for e in episodes]


@pytest.mark.parametrize("in_flight", [1, 3, 1000])
def test_the_batch_size_changes_nothing(in_flight: int) -> None:
    world = noisy(Relay())
    assert lines(play(world, tasks_of(0, 3, 4), in_flight=in_flight)) == lines(play(world, tasks_of(0, 3, 4)))


def test_two_runs_with_one_seed_are_equal_and_another_seed_differs() -> None:
    world = noisy(make_env("coalition_v0"))
    assert lines(play(world, tasks_of(5, 2, 4))) == lines(play(world, tasks_of(5, 2, 4)))
    assert lines(play(world, tasks_of(5, 2, 4))) != lines(play(world, tasks_of(6, 2, 4)))


def test_members_of_a_group_see_the_same_prompt_and_answer_differently() -> None:
    env = Relay(1)
    table = Table(replies=["amber", "birch", "cobalt", "dune"])
    said = play(World(env, {"a0": table}), tasks_of(0, 1, 8))
    assert len({e.turns[0].prompt_ids for e in said}) == 1
    assert len({e.turns[0].text for e in said}) > 1


def test_turns_record_who_read_what() -> None:
    episode = play(noisy(Relay()), tasks_of(0, 1))[0]
    assert [t.agent for t in episode.turns] == ["a0", "a1", "a2"]
    assert [t.to for t in episode.turns] == [("a1",), ("a2",), ("user",)]
    assert [t.reads for t in episode.turns] == [(), ("t0-0/0",), ("t0-0/1",)]
    assert episode.team == Relay().team
    assert (episode.env, episode.env_args, episode.seed, episode.group) == ("relay_v0", {}, 0, 0)


def test_contexts_agree_for_equal_transcripts_only() -> None:
    said = play(noisy(Relay()), tasks_of(0, 1, 8))
    assert len({e.turns[0].context for e in said}) == 1
    by_first = {(e.turns[0].text, e.turns[1].context) for e in said}
    assert len(by_first) == len({text for text, _ in by_first}) == len({context for _, context in by_first})


class Breaks(Relay):
    """Breaks in one place of one member of the group."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def begin(self, rng: np.random.Generator) -> Any:
        if self.where == "begin" and self.key.group == 1:
            raise KeyError("begin broke")
        return super().begin(rng)

    def hear(self, state: Any, message: Message) -> Any:
        if self.where == "hear" and self.key.group == 1 and message.sender == "a1":
            raise KeyError("hear broke")
        return super().hear(state, message)

    def score(self, state: Any) -> float:
        if self.where == "score" and self.key.group == 1:
            raise ZeroDivisionError("score broke")
        return super().score(state)


@pytest.mark.parametrize(("where", "turns"), [("begin", 0), ("hear", 1), ("score", 2)])
def test_a_crash_ends_its_episode_and_leaves_the_others_alone(where: str, turns: int) -> None:
    fine = play(noisy(Relay()), tasks_of(0, 1, 3))
    said = play(noisy(Breaks(where)), tasks_of(0, 1, 3))
    assert [e.end for e in said] == ["done", "failed:env", "done"]
    assert "broke" in (said[1].error or "")
    assert said[1].reward is None
    assert len(said[1].turns) == turns
    assert [e.reward for e in (said[0], said[2])] == [e.reward for e in (fine[0], fine[2])]


def test_the_score_is_asked_once() -> None:
    asked: list[str] = []

    class Counts(Relay):
        def score(self, state: Any) -> float:
            asked.append(self.key.task)
            return super().score(state)

    play(noisy(Counts()), tasks_of(0, 3, 2))
    assert len(asked) == 6


class Tool(TeamEnv):
    """One agent and a tool that breaks."""

    name = "tool_v0"
    tools = ("search",)

    def __init__(self) -> None:
        super().__init__(Team.line(1))

    def begin(self, rng: np.random.Generator) -> str:
        return ""

    def hear(self, state: str, message: Message) -> str:
        if "search" in message.to:
            raise TimeoutError("the index is down")
        return message.text

    def score(self, state: str) -> float:
        return 1.0


def test_a_broken_tool_is_named() -> None:
    episode = play(World(Tool(), {"a0": Scripted("stubborn", says="@search x")}), tasks_of(0, 1))[0]
    assert (episode.end, episode.error) == ("failed:tool", "TimeoutError: the index is down")


class Crashes(BatchPolicy):
    """Breaks on whole batches, or answers some requests with an error."""

    def say(self, batch: Sequence[Request]) -> Sequence[Said]:
        raise ConnectionError("the server is gone")


class Partly(Scripted):
    def collect(self) -> Sequence[tuple[int, Said | Exception]]:
        return [(t, ConnectionError("timed out") if t % 2 else said) for t, said in super().collect()]


def test_a_crash_of_a_policy_ends_the_episodes_that_wait_for_it() -> None:
    env = Relay()
    world = World(env, {"a0": Scripted("stubborn"), "a1": Crashes(), "a2": Scripted("stubborn")})
    said = play(world, tasks_of(0, 2, 2))
    assert {e.end for e in said} == {"failed:policy"}
    assert all(len(e.turns) == 1 and "the server is gone" in (e.error or "") for e in said)
    with pytest.raises(OutsideError, match=r"all of 4 episodes failed \(4 in the policy; the first: .*server is gone"):
        evaluate(world, 2, 2)


def test_a_failed_request_fails_its_own_episode_alone() -> None:
    said = play(World(Relay(1), {"a0": Partly("stubborn")}), tasks_of(0, 1, 4))
    assert sorted(e.end for e in said) == ["done", "done", "failed:policy", "failed:policy"]


class Mute(Scripted):
    """Breaks the contract: no text at all."""

    def say(self, batch: Sequence[Request]) -> list[Said]:
        return [Said(None) for _ in batch]  # type: ignore[arg-type]


def test_a_policy_without_a_text_fails_its_episodes_alone() -> None:
    said = play(World(Relay(2), {"a0": Scripted("stubborn"), "a1": Mute("stubborn")}), tasks_of(0, 1, 2))
    assert {e.end for e in said} == {"failed:policy"}
    assert "expected a text" in (said[0].error or "")


class Lazy(Scripted):
    """Answers one request a time, the newest first: an engine with an order of its own."""

    def collect(self) -> Sequence[tuple[int, Said | Exception]]:
        ticket, request = self._pending.pop()
        return [(ticket, self.say([request])[0])]


def test_the_order_of_answers_changes_nothing() -> None:
    env = Relay()
    eager = {a: Scripted("noisy", expert=env.expert, fumbles=env.fumbles) for a in env.team.names}
    lazy = {a: Lazy("noisy", expert=env.expert, fumbles=env.fumbles) for a in env.team.names}
    assert lines(play(World(env, eager), tasks_of(0, 3, 3))) == lines(play(World(env, lazy), tasks_of(0, 3, 3)))


def test_nobody_speaking_for_an_agent_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match=r"'a1' is spoken for by policy 'a1'.*add --policy a1=KIND"):
        play(World(Relay(), {"a0": Scripted("stubborn")}), tasks_of(0, 1))
    with pytest.raises(UserError, match="give it under its own name"):
        World(Relay(), {"a0": Scripted("stubborn", name="x")})


def test_equal_calls_are_made_once_and_counted() -> None:
    world, memory, ledger = noisy(Relay()), Memory(), Ledger()
    play(world, [Plan("x", Key(0, "t0")), Plan("y", Key(0, "t0"))], memory=memory, ledger=ledger)
    assert (ledger.calls, ledger.calls_reused, ledger.resets) == (3, 3, 2)
    play(world, [Plan("z", Key(0, "t0"))], memory=memory, ledger=ledger)
    assert (ledger.calls, ledger.calls_reused) == (3, 6)


def test_an_absent_agent_is_out_of_the_graph_and_a_lone_orchestrator_answers_the_user() -> None:
    plan = Plan("x", Key(0, "t0"), absent=frozenset({"a1"}))
    episode = play(World(Relay(2), {a: Scripted("stubborn", says="x") for a in ("a0", "a1")}), [plan])[0]
    assert [(t.agent, t.to) for t in episode.turns] == [("a0", ("user",))]


def test_without_its_orchestrator_nothing_is_played_and_the_task_is_scored() -> None:
    plan = Plan("x", Key(0, "t0"), absent=frozenset({"a0"}))
    episode = play(noisy(Relay()), [plan])[0]
    assert (episode.turns, episode.reward, episode.end) == ((), 0.0, "done")


def test_role_texts_open_conversations_with_their_worked_examples() -> None:
    role = "You add.\n--- user\n1 + 1\n--- assistant\n2\n"
    assert opening(role) == (Chat("system", "You add."), Chat("user", "1 + 1"), Chat("assistant", "2"))
    assert opening("plain") == (Chat("system", "plain"),)
    assert opening("") == ()


def test_conversations_grow_by_prompt_and_reply() -> None:
    seen: list[Request] = []

    class Notes(Scripted):
        def say(self, batch: Sequence[Request]) -> list[Said]:
            seen.extend(batch)
            return super().say(batch)

    env = make_env("coalition_v0", preset="or")
    env.team = env.team.casting(roles={"planner": "You plan."})
    world = World(env, {a: Notes("stubborn", says="help") for a in env.team.names})
    play(world, tasks_of(0, 1))
    planner = [r.messages for r in seen if r.agent == "planner"]
    assert planner[0][0] == Chat("system", "You plan.")
    assert planner[1][: len(planner[0])] == planner[0]
    assert planner[1][len(planner[0])] == Chat("assistant", "help")
    assert [r.call for r in seen if r.agent == "planner"] == list(range(len(planner)))
