"""What every method in METHODS must keep, and what each one promises by its axioms."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from macredit.credit import METHODS, Credits, credit
from macredit.episode import Episode, episode_from_json
from macredit.seeds import generator

every_method = pytest.mark.parametrize("method", METHODS)
CAST = ("p", "a", "b", "c")


def worths(name: str) -> dict[frozenset[str], float]:
    """A random game of the three workers, the same for one name."""
    rng = generator("worths", name)
    return {frozenset(s): round(float(rng.normal()), 3) for k in range(4) for s in itertools.combinations("abc", k)}


def episode(
    name: str,
    speakers: Sequence[str],
    worth: dict[frozenset[str], float] | None = None,
    team: Sequence[str] = CAST,
    **more: Any,
) -> Episode:
    """An episode with every counterfactual of its workers recorded; silencing those that did not speak is known."""
    worth = worth if worth is not None else worths(name)
    workers = frozenset(team) - {"p"}
    known = [
        {"silenced": sorted(s), "reward": worth[frozenset("abc") - set(s)]}
        for k in range(1, len(workers) + 1)
        for s in itertools.combinations(sorted(workers), k)
    ]
    told = {
        "id": name, "task": "t", "reward": worth[frozenset("abc")], "counterfactuals": known,
        "team": {"orchestrator": "p", "agents": {agent: {} for agent in team}},
        "turns": [{"agent": a, "text": "x", "valid": True} for a in speakers],
    }  # fmt: skip
    return episode_from_json({**told, **more})


BATCH = [
    episode("e0", "pabpc"), episode("e1", "pap"), episode("f0", "pb", task="u"), episode("e2", "pabcabc"),
    episode("f1", "pbbp", task="u"), episode("e3", "p"), episode("f2", "pcp", task="u"),
]  # fmt: skip


def by_turn(result: Credits) -> dict[tuple[str, int], tuple[float, float, float]]:
    rows = result.rows
    keys = [(rows.episodes[e].id, int(t)) for e, t in zip(rows.episode, rows.turn, strict=True)]
    values = zip(np.nan_to_num(result.credit, nan=-99.0), result.advantage, result.weight, strict=True)
    return dict(zip(keys, values, strict=True))


def same(one: Credits, other: Credits) -> None:
    left, right = by_turn(one), by_turn(other)
    for key in left.keys() & right.keys():
        assert left[key] == pytest.approx(right[key], abs=1e-9), key


@every_method
def test_columns_are_complete_and_finite(method: str) -> None:
    result = credit(BATCH, method)
    n = len(result.rows)
    for column in (result.credit, result.advantage, result.weight, result.stderr, result.reasons):
        assert len(column) == n
    assert np.isfinite(result.advantage).all()
    assert (result.weight >= 0).all()
    assert (result.weight > 0).any()
    unknown = np.isnan(result.credit)
    assert (result.weight[unknown] == 0).all()
    assert (result.advantage[unknown] == 0).all()
    assert all(reason for reason, null in zip(result.reasons, unknown, strict=True) if null)
    everyone = {(e.id, agent) for e in BATCH for agent in CAST}
    assert {(BATCH[total.episode].id, total.agent) for total in result.agents} == everyone
    assert len(result.agents) == len(everyone)


@every_method
def test_the_same_question_twice_has_one_answer(method: str) -> None:
    assert by_turn(credit(BATCH, method)) == by_turn(credit(BATCH, method))


@every_method
def test_order_and_company_change_nothing(method: str) -> None:
    whole = credit(BATCH, method)
    same(credit(BATCH[::-1], method), whole)
    same(credit([e for e in BATCH if e.task == "t"], method), whole)


@every_method
def test_a_failed_episode_is_listed_and_counts_for_nothing(method: str) -> None:
    crashed = episode("crash", "pabc", end="failed:tool")
    unscored = episode("none", "pabc", reward=None)
    result = credit([crashed, *BATCH, unscored], method)
    same(credit(BATCH, method), result)
    for name, reason in (("crash", "failed:tool"), ("none", "no reward")):
        rows = [n for n in range(len(result.rows)) if result.rows.episodes[result.rows.episode[n]].id == name]
        assert {result.reasons[n] for n in rows} == {reason}
        assert not result.weight[rows].any()
        assert {t.reason for t in result.agents if result.rows.episodes[t.episode].id == name} == {reason}


@every_method
def test_an_empty_response_is_not_trained_on(method: str) -> None:
    turns = [{"agent": a, "text": "x", "valid": True} for a in "pa"] + [{"agent": "a", "text": ""}]
    result = credit([*BATCH, episode("e9", "", turns=turns)], method)
    assert (result.reasons[-1], result.weight[-1], result.advantage[-1]) == ("empty", 0.0, 0.0)


@every_method
def test_a_team_of_one(method: str) -> None:
    alone = [episode(f"e{i}", "p", team="p") for i in range(3)]
    result = credit(alone, method)
    assert np.isfinite(result.advantage).all()
    assert {total.agent for total in result.agents} == {"p"}


@every_method
def test_an_agent_that_is_never_invoked_stays_finite(method: str) -> None:
    result = credit([episode(f"e{i}", "pab", worths("fixed")) for i in range(3)], method)
    idle = [total for total in result.agents if total.agent == "c"]
    assert len(idle) == 3
    assert all(total.credit is not None and np.isfinite(total.credit) for total in idle)
    assert {total.reason for total in idle} <= {"not invoked", "never spoke here"}


@every_method
def test_equal_episodes_give_no_advantage(method: str) -> None:
    result = credit([episode(f"e{i}", "pabc", worths("fixed")) for i in range(5)], method)
    assert (result.advantage == 0.0).all()


@every_method
def test_promises_are_data(method: str) -> None:
    promised = METHODS[method]
    assert promised.name == method
    assert "paper" in promised.presets
    assert not promised.presets["paper"]
    assert promised.estimand
    assert promised.paper
    assert set(promised.labels) == {"setting", "granularity", "methodology"}


def keeps(axiom: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("method", [name for name, m in METHODS.items() if axiom in m.axioms])


def shares(method: str, worth: dict[frozenset[str], float]) -> dict[str, float]:
    """Credits of the workers in one episode in which everyone speaks."""
    result = credit([episode("e", "pabc", worth)], method)
    return {total.agent: float(total.credit or 0.0) for total in result.agents if total.agent != "p"}


@keeps("centred")
def test_advantages_of_each_agent_add_up_to_zero(method: str) -> None:
    # everyone speaks once in every episode, so that every kind of member holds each agent equally often
    result = credit([episode(f"e{i}", "pabc") for i in range(6)], method)
    for a in range(4):
        own = result.rows.agent == a
        assert float(result.weight[own] @ result.advantage[own]) == pytest.approx(0.0, abs=1e-9)


@keeps("efficiency")
def test_credits_add_up_to_what_the_players_brought(method: str) -> None:
    worth = worths("efficiency")
    assert sum(shares(method, worth).values()) == pytest.approx(worth[frozenset("abc")] - worth[frozenset()])


@keeps("symmetry")
def test_equal_players_get_equal_credit(method: str) -> None:
    counted = {s: float(len(s & {"a", "b"})) ** 2 + 0.3 * ("c" in s) * len(s) for s in worths("any")}
    earned = shares(method, counted)
    assert earned["a"] == pytest.approx(earned["b"])


@keeps("dummy")
def test_a_player_that_always_adds_the_same_gets_exactly_that(method: str) -> None:
    free = worths("dummy")
    added = {s: free[s - {"c"}] + 0.25 * ("c" in s) for s in free}
    assert shares(method, added)["c"] == pytest.approx(0.25)


@keeps("linearity")
def test_credits_of_a_sum_of_games_are_sums(method: str) -> None:
    one, two = worths("one"), worths("two")
    both = shares(method, {s: 2 * one[s] - 3 * two[s] for s in one})
    first, second = shares(method, one), shares(method, two)
    assert both == pytest.approx({agent: 2 * first[agent] - 3 * second[agent] for agent in first})
