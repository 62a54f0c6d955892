"""The exact credit of a team whose replies have known chances, against what the team really earns."""

import numpy as np
import pytest

from macredit.agents import Scripted, Table, make_policy
from macredit.enumeration import NotKnownError, ways
from macredit.env import TeamEnv
from macredit.envs import Coalition, Relay
from macredit.policy import Policy
from macredit.rollout import Plan, World, play, tasks_of
from macredit.seeds import Key
from macredit.truth import PERFECT_TEAM, THIS_TEAM, truth
from macredit.whatif import WhatIf


def noisy(env: TeamEnv, skills: dict[str, float]) -> dict[str, Policy]:
    return {
        name: make_policy({"kind": "scripted", "style": "noisy", "skill": s}, env=env) for name, s in skills.items()
    }


def test_noisy_specialists_by_hand() -> None:
    env = Coalition("and")
    world = World(env, noisy(env, {"planner": 1.0, "a": 0.5, "b": 0.8}))
    # both help with probability .5 · .8 = .4: Shapley .2 each, leave-one-out .4 each, Banzhaf .2 each
    found = truth(world)
    assert found.exact_of == THIS_TEAM
    assert {name: list(v.values()) for name, v in found.exact.items()} == {
        "shapley": pytest.approx([0.2, 0.2]), "banzhaf": pytest.approx([0.2, 0.2]), "loo": pytest.approx([0.4, 0.4]),
    }  # fmt: skip


def test_a_planner_that_may_stop_early_by_hand() -> None:
    env = Coalition("additive", weights=(0.7, 0.3))
    found = truth(World(env, noisy(env, {"planner": 0.5, "a": 1.0, "b": 1.0}))).exact
    # it calls a with probability ½ and then b with ½ again
    assert found["shapley"] == pytest.approx({"a": 0.5 * 0.7, "b": 0.25 * 0.3})


def test_a_whispered_line_by_hand() -> None:
    env = Relay(2)
    found = truth(World(env, noisy(env, {"a0": 0.5, "a1": 0.8}))).exact
    # a0 says the word (½): a1 repeats it with .8. a0 says one of 7 others: a1 mishears, to the word, with .2 / 7
    arrives = 0.5 * 0.8 + 0.5 * 0.2 / 7
    assert found["loo"] == pytest.approx({"a1": arrives})


@pytest.mark.parametrize("preset", ["glove", "majority", "saboteur", "never_invoked"])
def test_measured_credit_comes_to_the_truth(preset: str) -> None:
    env = Coalition(preset)
    replies = Table(["help", "pass", "no"])
    policies: dict[str, Policy] = {**noisy(env, {"planner": 0.9, "a": 0.8, "b": 0.6}), "c": replies}
    world = World(env, policies)
    whatif = WhatIf(play(world, tasks_of(0, 400)), world)
    players = env.team.specialists
    alone = whatif.ask([(e, frozenset({name})) for e in range(400) for name in players])
    whole = np.array([[episode.reward or 0.0] for episode in whatif.episodes])
    lost = whole - np.array([outcome.mean for outcome in alone]).reshape(400, 3)
    exact = np.array(list(truth(world).exact["loo"].values()))
    # 4.5 standard errors, and a little for players that never vary
    assert (np.abs(lost.mean(0) - exact) <= 4.5 * lost.std(0, ddof=1) / 20 + 1e-9).all()


def test_every_way_has_its_chance_and_they_add_up() -> None:
    env = Coalition("or")
    found = ways(World(env, noisy(env, {"planner": 0.9, "a": 0.5, "b": 0.5})), Plan("x", Key(0, "t")))
    assert sum(chance for chance, _ in found) == pytest.approx(1.0)
    # the planner stops at once, after a, or calls both: 1 + 2 + 4 ways
    assert len(found) == 7


def test_random_words_have_no_known_chance() -> None:
    env = Coalition("or")
    policies: dict[str, Policy] = {**noisy(env, {"planner": 1.0, "a": 1.0}), "b": Scripted("random")}
    assert env.exact_credit(policies) is None
    assert truth(World(env, policies)).exact_of == PERFECT_TEAM
    with pytest.raises(NotKnownError, match="agent 'b'"):
        ways(World(env, policies), Plan("x", Key(0, "t")))


def test_a_specialist_that_may_write_to_others_is_beyond_the_formula() -> None:
    env = Coalition("or")
    chatty = Table(["help", "@user done"])
    policies: dict[str, Policy] = {**noisy(env, {"planner": 1.0, "a": 1.0}), "b": chatty}
    assert env.exact_credit(policies) is None
