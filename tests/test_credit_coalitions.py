"""difference, shapley and sharp from recorded counterfactuals, without any environment."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from macredit.credit import Credits, credit
from macredit.credit.sharp import total_reward
from macredit.episode import Episode, episode_from_json
from macredit.errors import UserError
from macredit.whatif import WhatIf

Worth = Callable[[frozenset[str]], float]


def episode(name: str, players: str, worth: Worth, **more: Any) -> Episode:
    """Orchestrator ``p`` and one-letter players; every coalition's outcome is recorded."""
    everyone = frozenset(players)
    silenced = [set(s) for k in range(1, len(players) + 1) for s in itertools.combinations(players, k)]
    known = [{"silenced": sorted(s), "reward": worth(everyone - s)} for s in silenced]
    agents: dict[str, Any] = {agent: {} for agent in ["p", *players]}
    told = {
        "id": name, "task": "t", "reward": worth(everyone), "counterfactuals": known,
        "team": {"orchestrator": "p", "agents": agents},
        "turns": [{"agent": a, "text": "x", "valid": True} for a in ["p", *players]],
    }  # fmt: skip
    return episode_from_json({**told, **more})


def either(s: frozenset[str]) -> float:
    return float(bool(s))


def both(s: frozenset[str]) -> float:
    return float(len(s) == 2)


def additive(s: frozenset[str]) -> float:
    return sum({"a": 0.5, "b": 0.3, "c": 0.2}[name] for name in s)


def totals(result: Credits) -> dict[str, float | None]:
    return {total.agent: total.credit for total in result.agents if total.episode == 0}


@pytest.mark.parametrize(
    ("worth", "players", "loo", "shapley"),
    [
        (either, "ab", [0, 0], [0.5, 0.5]),
        (both, "ab", [1, 1], [0.5, 0.5]),
        (additive, "abc", [0.5, 0.3, 0.2], [0.5, 0.3, 0.2]),
        (lambda s: float("a" in s and len(s) > 1), "abc", [1, 0, 0], [2 / 3, 1 / 6, 1 / 6]),
        (lambda s: float("a" in s and "c" not in s), "abc", [0, 0, -1], [0.5, 0, -0.5]),
    ],
)
def test_known_games(worth: Worth, players: str, loo: list[float], shapley: list[float]) -> None:
    played = [episode("e", players, worth)]
    np.testing.assert_allclose(credit(played, "difference").credit[1:], loo)
    np.testing.assert_allclose(credit(played, "sharp").credit[1:], loo)
    np.testing.assert_allclose(credit(played, "shapley").credit[1:], shapley, atol=1e-12)
    np.testing.assert_allclose(credit(played, "sharp", settings={"marginal": "shapley"}).credit[1:], shapley, atol=1e-9)


def test_redundancy_is_explained() -> None:
    played = [episode("e", "ab", either)]
    (said,) = credit(played, "shapley").warnings
    assert "leave-one-out is 0 for a, b while their Shapley values are 0.5, 0.5: they are redundant" in said
    for method in ("difference", "sharp"):
        (said,) = credit(played, method).warnings
        assert "silencing any one of a, b leaves the reward as it is" in said
    assert not credit([episode("e", "abc", additive)], "shapley").warnings


def test_the_orchestrator_is_always_present_unless_it_is_asked_to_play() -> None:
    played = [episode("e", "ab", either)]
    result = credit(played, "shapley")
    assert (result.reasons[0], result.weight[0], totals(result)["p"]) == ("always present", 0.0, None)
    assert np.isnan(result.credit[0])
    # with p in the coalition, v = 1 iff p and (a or b): p 2/3, a 1/6, b 1/6
    told = [
        {"silenced": sorted(set("pab") - set(s)), "reward": float("p" in s and len(s) > 1)}
        for k in range(3)
        for s in itertools.combinations("pab", k)
    ]
    everyone = [episode("e", "ab", either, counterfactuals=told)]
    result = credit(everyone, "shapley", whatif=WhatIf(everyone, players="all"))
    np.testing.assert_allclose(result.credit, [2 / 3, 1 / 6, 1 / 6])
    assert result.notes["players"] == ["p", "a", "b"]


def test_shapley_is_efficient_and_counts_agents_that_never_spoke() -> None:
    played = episode("e", "abc", additive)
    quiet = episode("q", "abc", additive, turns=[{"agent": n, "text": "x"} for n in "pab"])
    result = credit([played, quiet], "shapley")
    spoken = [total for total in result.agents if total.episode == 1]
    assert [total.reason for total in spoken] == ["always present", None, None, "never spoke here"]
    assert sum(total.credit or 0.0 for total in spoken) == pytest.approx(1.0)


def test_leave_one_out_of_an_agent_that_never_spoke_is_exactly_zero() -> None:
    silent = episode("e", "ab", either, turns=[{"agent": "p", "text": "x"}, {"agent": "a", "text": "x"}])
    total = credit([silent], "difference").agents[2]
    assert (total.agent, total.credit, total.stderr, total.reason) == ("b", 0.0, 0.0, "never spoke here")


def test_values_are_z_scored_per_agent_over_the_episodes_of_a_task() -> None:
    # a's leave-one-out is .5 in one episode and 0 in the other: mean .25, deviation .25: ±1; b always .3: no signal
    played = [episode("e", "ab", additive), episode("f", "ab", lambda s: additive(s - {"a"}))]
    result = credit(played, "difference")
    np.testing.assert_allclose(result.advantage, [0, 1, 0, 0, -1, 0], atol=1e-5)
    np.testing.assert_array_equal(result.weight, [0, 1, 1, 0, 1, 1])


def test_replicates_give_standard_errors() -> None:
    told = [
        {"silenced": ["a"], "reward": 0.0, "replicate": 0}, {"silenced": ["a"], "reward": 1.0, "replicate": 1},
        {"silenced": ["b"], "reward": 1.0, "replicate": 0}, {"silenced": ["b"], "reward": 1.0, "replicate": 1},
        {"silenced": ["a", "b"], "reward": 0.0, "replicate": 0},
        {"silenced": ["a", "b"], "reward": 0.0, "replicate": 1},
    ]  # fmt: skip
    played = [episode("e", "ab", either, counterfactuals=told)]
    result = credit(played, "difference")
    # without a: mean ½, sample deviation √½, standard error √½/√2 = ½; without b: no spread
    np.testing.assert_allclose(result.credit[1:], [0.5, 0.0])
    np.testing.assert_allclose(result.stderr[1:], [0.5, 0.0])
    # replicate by replicate: v(b) = 0, 1; v(a) = 1, 1; so phi_a = ½(1 − 0) + ½(1 − v(b)) = 1, ½: mean ¾, error ¼
    result = credit(played, "shapley")
    np.testing.assert_allclose(result.credit[1:], [0.75, 0.25])
    np.testing.assert_allclose(result.stderr[1:], [0.25, 0.25])


def test_one_sample_has_no_standard_error() -> None:
    assert np.isnan(credit([episode("e", "ab", either)], "shapley").stderr).all()
    assert np.isnan(credit([episode("e", "ab", either)], "difference").stderr).all()


def test_what_the_record_does_not_know_is_named() -> None:
    bare = [episode("e7", "ab", either, counterfactuals=[])]
    for method in ("difference", "shapley", "sharp"):
        with pytest.raises(UserError, match=r"'e7'.*\['[ab]"):
            credit(bare, method)


def test_failed_and_null_counterfactuals_are_left_out() -> None:
    told = [
        {"silenced": ["a"], "reward": 0.0, "end": "failed:tool"}, {"silenced": ["a"], "reward": None},
        {"silenced": ["a"], "reward": 0.25}, {"silenced": ["a"], "reward": 0.0, "absence": "removed"},
        {"silenced": ["b"], "reward": 1.0},
    ]  # fmt: skip
    assert credit([episode("e", "ab", either, counterfactuals=told)], "sharp").credit[1] == 0.75


def test_more_than_twelve_players_need_an_estimator() -> None:
    crowd = "abcdefghijklm"
    with pytest.raises(UserError, match=r"13 players, which needs 8192 coalitions; expected at most 4096.*budget=N"):
        credit([episode("e", crowd, either, counterfactuals=[])], "shapley")


# -- SHARP ------------------------------------------------------------------------------------------------------------


def test_sharp_mixes_three_terms_and_z_scores_each_role() -> None:
    good = episode("e", "ab", additive)
    bad = episode("f", "a", lambda s: 0.0 * len(s))
    result = credit([good, bad], "sharp")
    # e: R = .8; a: .5, b: .3; planner: mean(.5, .3) = .4. f: R = 0, all marginals 0
    np.testing.assert_allclose(result.credit, [0.4, 0.5, 0.3, 0.0, 0.0])
    # Rbar of p: .9·.8 + .9·.4 + .1 = 1.18 and .1; of a: .9·.8 + .9·.5 + .1 = 1.27 and .1: two members, z = ±1
    np.testing.assert_allclose(result.advantage, [1, 1, 0, -1, -1], atol=1e-5)
    np.testing.assert_allclose(result.weight, [1 / 3, 1 / 3, 1 / 3, 1 / 2, 1 / 2])
    assert result.sequence is not None
    assert len(set(result.sequence.tolist())) == 5
    # b speaks in e alone; f's team has no b at all
    assert result.notes["singleton groups"] == 1
    assert [t.agent for t in result.agents] == ["p", "a", "b", "p", "a"]


def test_sharp_total_reward_by_hand() -> None:
    ones = np.array([1.0])
    # .9 · 1 + .9 · .5 + .1 · .25 = 1.375
    assert total_reward(ones, 0.5 * ones, 0.25 * ones)[0] == pytest.approx(1.375)


def test_sharp_planner_counts_positive_credits_alone() -> None:
    harm = [episode("e", "abc", lambda s: float("a" in s) - 0.5 * ("c" in s))]
    # marginals 1, 0, −.5: mean of positive parts 1/3
    assert credit(harm, "sharp").credit[0] == pytest.approx(1 / 3)
    assert credit(harm, "sharp", settings={"lam": 0.5}).credit[0] == pytest.approx(1 / 6)


def test_sharp_without_workers_and_with_invalid_calls() -> None:
    alone = episode("e", "a", either, turns=[{"agent": "p", "text": "x", "valid": False}])
    two = [{"agent": "p", "text": "x", "valid": v} for v in (True, False)]
    # Rbar .9 + 0 + .1·0 against .9 + 0 + .1·½: tool terms 0 and ½ alone tell them apart
    result = credit([alone, episode("f", "a", either, turns=two)], "sharp")
    np.testing.assert_array_equal(result.credit, 0.0)
    np.testing.assert_allclose(result.advantage, [-1, 1, 1], atol=1e-4)
    np.testing.assert_array_equal(result.weight, 1.0)
    assert (result.agents[1].credit, result.agents[1].reason) == (0.0, "not invoked")


def test_sharp_says_when_validity_is_unknown() -> None:
    unknown = episode("e", "a", either, turns=[{"agent": n, "text": "x"} for n in "pa"])
    assert any("`valid` is unknown" in said for said in credit([unknown], "sharp").warnings)


def test_a_null_message_of_a_silenced_agent_is_nobodys() -> None:
    null = {"agent": "a", "text": "", "null": True, "valid": False}
    asked = [{"agent": n, "text": "x", "valid": True} for n in "pa"]
    silenced = episode("e", "a", either, turns=[*asked[:1], null], counterfactuals=[])
    result = credit([silenced], "sharp")
    assert result.reasons == (None, "silenced")
    assert result.weight.tolist() == [1.0, 0.0]
    # nor does it count in the tool term: a spoke validly once in both, so nothing tells its two members apart
    mixed = credit([episode("f", "a", either, turns=[*asked, null]), episode("g", "a", either)], "sharp")
    assert not mixed.advantage.any()
