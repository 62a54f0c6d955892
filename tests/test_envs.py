import time
from typing import Any

import numpy as np
import pytest

from macredit.agents import make_policies
from macredit.check import check_env
from macredit.check.env import ENV_CHECKS
from macredit.env import TeamEnv
from macredit.envs import ENVS, Relay, env_class, make_env
from macredit.episode import Episode
from macredit.errors import UserError
from macredit.rollout import World, play, tasks_of

# wrapped_v0 needs a game, and passes the same checks in test_wrapped.py
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("relay_v0", {}),
    ("relay_v0", {"length": 1}),
    ("coalition_v0", {}),
    ("coalition_v0", {"preset": "never_invoked", "noise": 0.5}),
    ("solve_verify_v0", {}),
    ("solve_verify_v0", {"dataset": "chain_sum", "solvers": 2, "loops": 2}),
    ("solve_verify_v0", {"solo": True}),
    ("search_qa_v0", {}),
]


def scripted(env: TeamEnv, style: str, tasks: int = 8, group: int = 1) -> list[Episode]:
    specs = {name: {"kind": "scripted", "style": style} for name in env.team.names}
    return play(World(env, make_policies(specs, env)), tasks_of(0, tasks, group))


def test_every_environment_is_checked() -> None:
    assert {name for name, _ in VARIANTS} | {"wrapped_v0"} == set(ENVS)


@pytest.mark.parametrize("check", ENV_CHECKS)
@pytest.mark.parametrize(("name", "arguments"), VARIANTS, ids=lambda x: x if isinstance(x, str) else str(len(x)))
def test_it_keeps_its_promises(name: str, arguments: dict[str, Any], check: str) -> None:
    assert ENV_CHECKS[check](lambda: make_env(name, **arguments)) is None


def test_an_instance_is_checked_as_well_as_a_function() -> None:
    assert all(result.ok for result in check_env(Relay(2)))


@pytest.mark.parametrize(("name", "arguments"), VARIANTS)
def test_experts_earn_all_and_fumblers_less(name: str, arguments: dict[str, Any]) -> None:
    env = make_env(name, **arguments)
    perfect, noisy = scripted(env, "perfect", 16), scripted(env, "noisy", 16)
    rewards = [np.mean([episode.reward or 0.0 for episode in episodes]) for episodes in (perfect, noisy)]
    assert rewards[0] > rewards[1]
    assert {episode.end for episode in perfect} == {"done"}


@pytest.mark.parametrize("style", ["silent", "stubborn", "random"])
@pytest.mark.parametrize(("name", "arguments"), VARIANTS)
def test_any_team_comes_to_an_end(name: str, arguments: dict[str, Any], style: str) -> None:
    assert {episode.end for episode in scripted(make_env(name, **arguments), style)} <= {"done", "truncated"}


@pytest.mark.parametrize(("name", "arguments"), VARIANTS)
def test_sixty_four_episodes_take_no_time(name: str, arguments: dict[str, Any]) -> None:
    env = make_env(name, **arguments)
    scripted(env, "perfect", 1)  # imports
    start = time.perf_counter()
    scripted(env, "perfect", 8, group=8)
    assert time.perf_counter() - start < 2.0


def test_relay_by_hand() -> None:
    env = Relay(3)
    assert env.worth(frozenset({"a1", "a2"})) == 1.0
    assert env.worth(frozenset({"a1"})) == 0.0
    # an AND game of two: Shapley ½ each, Banzhaf 2^(1 − 2) = ½ each, leave-one-out 1 each
    assert env.exact_credit() == {
        "shapley": {"a1": 0.5, "a2": 0.5},
        "banzhaf": {"a1": 0.5, "a2": 0.5},
        "loo": {"a1": 1.0, "a2": 1.0},
    }


def test_unknown_environments_and_arguments_are_named() -> None:
    with pytest.raises(UserError, match=r"unknown environment 'relay_v1'.*Did you mean 'relay_v0'"):
        make_env("relay_v1")
    with pytest.raises(UserError, match=r"does not take these arguments \{'lenght': 3\}"):
        make_env("relay_v0", lenght=3)
    with pytest.raises(UserError, match="expected module:Class"):
        env_class("no_such_module:Game")
    assert env_class("macredit.envs:Relay") is Relay


@pytest.mark.parametrize("length", [0, 33, 2.5, "abc"])
def test_a_line_that_cannot_be_walked_to_its_end_is_refused(length: Any) -> None:
    with pytest.raises(UserError, match="expected a line of 1 to 32 agents"):
        make_env("relay_v0", length=length)


def test_a_game_is_no_module_without_a_function() -> None:
    with pytest.raises(UserError, match="names no function"):
        make_env("wrapped_v0", env="this")
