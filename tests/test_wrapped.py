import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from gymnasium import Space, spaces
from gymnasium.utils import seeding
from pettingzoo import AECEnv

from macredit.check import check_env
from macredit.envs import Wrapped, make_env
from macredit.errors import UserError
from macredit.rollout import World, play, tasks_of
from macredit.seeds import Key


class Nim(AECEnv[str, Any, Any]):  # type: ignore[misc]  # pettingzoo has no py.typed
    """Take one to three stones; whoever takes the last one earns 1, and everyone 0.1 for each move."""

    metadata = {"name": "nim_v0", "is_parallelizable": False}  # noqa: RUF012 (PettingZoo's way)

    def __init__(self, most: int = 12, seeded: bool = True) -> None:
        super().__init__()
        self.most, self.seeded = most, seeded
        self.possible_agents = ["north", "south"]

    def observation_space(self, agent: str) -> Space[Any]:
        pile = spaces.Box(0, self.most, (1,), np.int64)
        return spaces.Dict({"observation": pile, "action_mask": spaces.Box(0, 1, (3,), np.int8)})

    def action_space(self, agent: str) -> Space[Any]:
        return spaces.Discrete(3, start=1)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.rng, _ = seeding.np_random(seed if self.seeded else None)
        self.agents = self.possible_agents[:]
        self.pile = int(self.rng.integers(5, self.most))
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.agent_selection = "north"

    def observe(self, agent: str) -> dict[str, Any]:
        mask = np.array([take <= self.pile for take in (1, 2, 3)], np.int8)
        return {"observation": np.array([self.pile]), "action_mask": mask}

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        assert action is not None
        self.pile -= action
        self.rewards = dict.fromkeys(self.agents, 0.1)
        self.rewards[agent] += float(self.pile == 0)
        self.terminations = dict.fromkeys(self.agents, self.pile == 0)
        self.agent_selection = "south" if agent == "north" else "north"
        self._accumulate_rewards()


def wrapped(**arguments: Any) -> Wrapped:
    env = Wrapped(Nim, **arguments)
    env.reset(options={"key": Key(0, "t")})
    return env


def pile(env: Wrapped) -> int:
    return int(env.observe(env.agent_selection)["text"].split("]")[0].strip("["))


def test_it_keeps_every_promise_of_an_environment() -> None:
    failed = [result for result in check_env(lambda: Wrapped(Nim)) if not result.ok]
    assert failed == []


def test_moves_are_numbers_in_a_text() -> None:
    env = wrapped()
    before = pile(env)
    assert env.observe("north")["text"] == f"[{before}]\nLegal moves: 1, 2, 3"
    env.step("I take 2 stones")
    assert env.delivery.to == ("south",)
    assert pile(env) == before - 2


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("seven", "This is no legal move; say one of 1, 2, 3."),
        ("7", "7 is no legal move; say one of 1, 2, 3."),
        ("@north 1", "you cannot write to north; begin with @south, @user"),
        ("@user 1", "Say the number of your move, without an address."),
    ],
)
def test_other_texts_are_invalid_turns(text: str, error: str) -> None:
    env = wrapped()
    before = pile(env)
    env.step(text)
    assert not env.delivery.valid
    assert env.agent_selection == "north"
    assert env.observe("north")["text"] == f"{error}\n[{before}]\nLegal moves: 1, 2, 3"


@pytest.mark.parametrize(("reward", "expected"), [("sum", 1.8), ("north", 0.4), ("south", 1.4)])
def test_the_team_earns_what_the_players_earn(reward: str, expected: float) -> None:
    env = wrapped(reward=reward, most=6)  # a pile of 5
    for text in ("1", "2", "1", "1"):
        env.step(text)
    # four moves bring 0.1 to each of two players, and the last stone 1 to south
    assert env.end == "done"
    assert env.scores()[0] == pytest.approx(expected)


def test_a_silenced_player_makes_the_lowest_legal_move() -> None:
    env = wrapped()
    before = pile(env)
    env.pass_turn()
    assert (pile(env), env.delivery.valid) == (before - 1, True)


def test_branches_of_one_game_do_not_meet() -> None:
    env = wrapped()
    before = pile(env)
    one, other = env.branch(), env.branch()
    one.step("3")
    other.step("1")
    other.step("1")
    assert [pile(e) for e in (env, one, other)] == [before, before - 3, before - 2]


def test_a_game_that_does_not_repeat_itself_fails_loudly() -> None:
    env = wrapped(seeded=False, most=10**9)
    snapshot = env.snapshot()
    env.step("1")
    env.restore(snapshot)
    with pytest.raises(UserError, match="does not repeat itself: after the same 0 moves"):
        env.observe("north")


def test_by_name_with_arguments_in_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("nim_for_test")
    module.__dict__["env"] = Nim
    monkeypatch.setitem(sys.modules, "nim_for_test", module)
    env = make_env("wrapped_v0", env="nim_for_test:env", most=8)
    assert env.args == {"env": "nim_for_test:env", "most": 8}
    from macredit.agents import make_policies

    speak = {name: {"kind": "scripted", "style": "stubborn", "says": "1"} for name in env.team.names}
    episodes = play(World(env, make_policies(speak, env)), tasks_of(0, 2, group=2))
    assert [episode.end for episode in episodes] == ["done"] * 4
    assert len(episodes[0].turns) == len(episodes[1].turns)
    assert episodes[0].env_args == env.args


class Continuous(Nim):
    def action_space(self, agent: str) -> Space[Any]:
        return spaces.Box(0, 1)


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="cannot be loaded"):
        Wrapped("no_such_module:env")
    with pytest.raises(UserError, match="expected module:function"):
        Wrapped("json")
    with pytest.raises(UserError, match="'north' moves in Box"):
        Wrapped(Continuous)
    with pytest.raises(UserError, match=r"unknown reward 'nort'.*Did you mean 'north'"):
        Wrapped(Nim, reward="nort")
    with pytest.raises(UserError, match="cannot be removed from a game"):
        Wrapped(Nim).reset(seed=0, options={"absent": ["south"]})
