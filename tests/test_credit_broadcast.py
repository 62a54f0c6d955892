"""grpo, rloo and dr_mas: golden columns, hand-worked forests, and the edges of METHODS section 11."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macredit.credit import credit
from macredit.episode import Episode, episode_from_json
from macredit.errors import UserError

GOLDEN = json.loads((Path(__file__).parent / "golden" / "advantages.json").read_text())
COLUMNS: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo_code": ("grpo", {}),
    "dr_mas_code": ("dr_mas", {}),
    "dr_mas_code_no_std": ("dr_mas", {"scale": "none"}),
    "rloo_agentwise_code": ("rloo", {"group": "agent"}),
}


def episode(name: str, reward: float | None, *turns: Any, **more: Any) -> Episode:
    told = [{"agent": t, "text": "x"} if isinstance(t, str) else {"text": "x", **t} for t in turns]
    return episode_from_json({"id": name, "task": "t", "reward": reward, "turns": told, **more})


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("case", range(len(GOLDEN["cases"])))
def test_columns_of_the_released_codes(case: int, column: str) -> None:
    method, settings = COLUMNS[column]
    episodes = [episode_from_json(e) for e in GOLDEN["cases"][case]["episodes"]]
    result = credit(episodes, method, "code", settings)
    np.testing.assert_allclose(result.advantage, GOLDEN["cases"][case]["expected"][column], atol=1e-6)


def test_grpo_of_the_paper_by_hand() -> None:
    # trajectories 1, 0, 0: mean 1/3, population deviation √2/3, so √2 and −1/√2; every turn of every agent gets its own
    result = credit([episode("a", 1.0, "p", "s"), episode("b", 0.0, "p"), episode("c", 0.0, "p")], "grpo")
    np.testing.assert_allclose(result.advantage, [2**0.5, 2**0.5, -(2**-0.5), -(2**-0.5)], atol=1e-5)
    np.testing.assert_array_equal(result.credit, [1.0, 1.0, 0.0, 0.0])
    np.testing.assert_array_equal(result.stderr, 0.0)
    assert set(result.reasons) == {"broadcast"}
    assert result.agents[1] == type(result.agents[0])(0, "s", 1.0, 0.0, "broadcast")
    assert (result.agents[3].credit, result.agents[3].reason) == (0.0, "not invoked")


def test_success_in_one_turn_against_failure_in_nine() -> None:
    quick, slow = episode("a", 1.0, "s"), episode("b", 0.0, *["s"] * 9)
    # code: ten rows, mean .1, sample variance (.81 + 9 · .01)/9 = .1, so .9/√.1 = 2.846 and −.1/√.1 = −.316
    rows = credit([quick, slow], "dr_mas", "code")
    np.testing.assert_allclose(rows.advantage, [2.846] + [-0.316] * 9, atol=1e-3)
    assert any("'s'" in warning and "balanced" in warning for warning in rows.warnings)
    # balanced: two trajectories, mean ½, population deviation ½; the nine rows share one trajectory's weight
    balanced = credit([quick, slow], "dr_mas", "balanced")
    np.testing.assert_allclose(balanced.advantage, [1.0] + [-1.0] * 9, atol=1e-5)
    np.testing.assert_allclose(balanced.weight, [1.0] + [1 / 9] * 9)
    assert not balanced.warnings
    # per trajectory with the sample deviation √½: ±.707
    np.testing.assert_allclose(credit([quick, slow], "grpo", "code").advantage[:2], [0.707, -0.707], atol=1e-3)


def test_the_two_statistics_of_dr_mas_switch_apart() -> None:
    # rewards 1 and 0; p speaks in both, s in the first alone, q in the second alone
    episodes = [episode("a", 1.0, "p", "s"), episode("b", 0.0, "p", "q")]
    # the task's four rows: mean ½, deviation ½: everyone is 1 away in deviations
    np.testing.assert_allclose(
        credit(episodes, "dr_mas", settings={"centre_by": "task", "scale_by": "task"}).advantage,
        [1, 1, -1, -1], atol=1e-5,
    )  # fmt: skip
    # scale by agent: s and q have one row each, nothing to scale by
    by_agent = credit(episodes, "dr_mas", settings={"centre_by": "task"}).advantage
    np.testing.assert_allclose(by_agent, [1, 0, -1, 0], atol=1e-5)
    # centre by agent: s and q are their own mean
    np.testing.assert_allclose(
        credit(episodes, "dr_mas", settings={"scale_by": "task"}).advantage, [1, 0, -1, 0], atol=1e-5
    )


def test_a_shared_turn_is_one_fact() -> None:
    tree = [
        episode("e0", 1.0, {"agent": "p", "id": "q/0"}, {"agent": "s", "id": "q/0/0"}),
        episode("e1", 0.0, {"agent": "p", "id": "q/0"}, {"agent": "s", "id": "q/0/1"}),
        episode("e2", 0.0, {"agent": "p", "id": "q/1"}, {"agent": "s", "id": "q/1/0"}),
    ]
    rows = credit(tree, "dr_mas", settings={"scale": "none"})
    # rows of p: q/0 with mean reward ½, and q/1 with 0: mean ¼; rows of s: 1, 0, 0: mean 1/3
    np.testing.assert_allclose(rows.advantage, [0.25, 2 / 3, 0.25, -1 / 3, -0.25, -1 / 3])
    np.testing.assert_array_equal(rows.weight, [1, 1, 0, 1, 1, 1])
    np.testing.assert_array_equal(rows.credit, [0.5, 1, 0.5, 0, 0, 0])
    # two rewards 1 and 0 through q/0: standard error √(½/2) = ½
    np.testing.assert_allclose(rows.stderr, [0.5, 0, 0.5, 0, 0, 0])
    trajectories = credit(tree, "grpo", settings={"scale": "none"})
    # trajectories 2/3, −1/3, −1/3; the shared turn gets the mean of the two through it, 1/6, on both copies
    np.testing.assert_allclose(trajectories.advantage, [1 / 6, 2 / 3, 1 / 6, -1 / 3, -1 / 3, -1 / 3])
    np.testing.assert_array_equal(trajectories.weight, [1, 1, 0, 1, 1, 1])


def test_of_several_copies_the_first_that_counts_is_trained_on() -> None:
    shared = {"agent": "p", "id": "q/0"}
    result = credit(
        [episode("e0", 1.0, shared, end="failed:tool"), episode("e1", 1.0, shared), episode("e2", 0.0, "p")], "dr_mas"
    )
    np.testing.assert_array_equal(result.weight, [0, 1, 1])
    np.testing.assert_allclose(result.advantage, [0, 1, -1], atol=1e-5)


def test_an_invalid_turn_pays_its_penalty_alone() -> None:
    episodes = [episode("a", 1.0, {"agent": "p", "valid": False}, "p"), episode("b", 0.0, "p")]
    # rows of p: .7, 1, 0: mean .5667
    result = credit(episodes, "dr_mas", settings={"scale": "none", "invalid_penalty": 0.3})
    np.testing.assert_allclose(result.advantage, np.array([0.7, 1.0, 0.0]) - 1.7 / 3)
    # a trajectory carries the mean of its rows, .85 against 0
    whole = credit(episodes, "grpo", settings={"scale": "none", "invalid_penalty": "0.3"})
    np.testing.assert_allclose(whole.advantage, [0.425, 0.425, -0.425])


# -- edges (METHODS section 11), in every preset ----------------------------------------------------------------------

PRESETS = [("grpo", "paper"), ("grpo", "code"), ("rloo", "paper"), ("rloo", "code"), ("dr_mas", "paper"),
           ("dr_mas", "code"), ("dr_mas", "balanced")]  # fmt: skip
every_preset = pytest.mark.parametrize(("method", "preset"), PRESETS)


@every_preset
def test_a_singleton_is_zero_or_raw_and_counted(method: str, preset: str) -> None:
    result = credit([episode("a", 3.0, "p")], method, preset)
    raw = {"grpo": 3.0 / (1 + 1e-6), "dr_mas": 3.0 / (1 + 1e-6), "rloo": 3.0}[method]
    assert result.advantage[0] == (pytest.approx(raw, abs=1e-12) if preset == "code" else 0.0)
    assert result.notes["singleton groups"] == 1


@every_preset
@pytest.mark.parametrize("left_out", [
    episode("x", None, "p"), episode("x", 5.0, {"agent": "p", "text": ""}), episode("x", 5.0, "p", end="failed:env"),
    episode("x", 5.0, {"agent": "p", "token_ids": []}), episode("x", 5.0, {"agent": "p", "text": "", "null": True}),
])  # fmt: skip
def test_what_is_left_out_leaves_statistics_and_loss(method: str, preset: str, left_out: Episode) -> None:
    good = [episode("a", 1.0, "p"), episode("b", 0.0, "p"), episode("c", 0.5, "p")]
    alone, mixed = credit(good, method, preset), credit([good[0], left_out, *good[1:]], method, preset)
    np.testing.assert_array_equal(np.delete(mixed.advantage, 1), alone.advantage)
    assert (mixed.advantage[1], mixed.weight[1], mixed.reasons[1]) == (0.0, 0.0, mixed.rows.reasons[1])
    assert np.isnan(mixed.credit[1])
    assert sum(mixed.notes["rows left out"].values()) == 1
    assert mixed.agents[1].credit is None
    assert mixed.agents[1].reason == mixed.rows.reasons[1]


@every_preset
def test_equal_rewards_give_exactly_nothing(method: str, preset: str) -> None:
    result = credit([episode(f"e{i}", 0.1, "p", "s", "p") for i in range(7)], method, preset)
    assert (result.advantage == 0.0).all()
    assert result.notes["groups without a signal"] > 0


@every_preset
def test_overflow_names_the_group(method: str, preset: str) -> None:
    huge = [episode("a", 1.7e308, "p"), episode("b", -1.7e308, "p"), episode("c", 1.0, "p", task="other")]
    with pytest.raises(UserError, match="group task 't', agent 'p'"):
        credit(huge, method, preset)


def test_rewards_of_other_agents_do_not_swamp_an_agents_own() -> None:
    # the worker's rewards are ten times the planner's; each is normalised by itself
    episodes = [episode("a", 0.0, "p", "w", agent_rewards={"w": 10.0}), episode("b", 1.0, "p", "w")]
    np.testing.assert_allclose(credit(episodes, "dr_mas").advantage, [-1, 1, 1, -1], atol=1e-5)


# -- invariants (METHODS section 10) ----------------------------------------------------------------------------------

plays = st.lists(
    st.tuples(
        st.sampled_from(["t", "u"]),
        st.integers(-20, 20).map(lambda x: x / 8),
        st.lists(st.sampled_from("abc"), min_size=1, max_size=4),
    ),
    min_size=2,
    max_size=12,
)
Plays = list[tuple[str, float, list[str]]]


def batch(told: Plays) -> list[Episode]:
    return [episode(f"e{i}", reward, *agents, task=task) for i, (task, reward, agents) in enumerate(told)]


def by_turn(episodes: list[Episode], method: str, preset: str) -> dict[tuple[str, int], float]:
    result = credit(episodes, method, preset)
    keys = [(episodes[e].id, int(t)) for e, t in zip(result.rows.episode, result.rows.turn, strict=True)]
    return dict(zip(keys, result.advantage, strict=True))


@given(plays, st.sampled_from(PRESETS), st.randoms(use_true_random=False))
def test_shuffled_and_interleaved_tasks_change_nothing(told: Plays, which: tuple[str, str], random: Any) -> None:
    episodes = batch(told)
    plain = by_turn(episodes, *which)
    shuffled = list(episodes)
    random.shuffle(shuffled)
    assert by_turn(shuffled, *which) == pytest.approx(plain, abs=1e-9)
    for task in ("t", "u"):
        if alone := [e for e in episodes if e.task == task]:
            part = by_turn(alone, *which)
            assert part == pytest.approx({key: plain[key] for key in part}, abs=1e-9)


@given(plays)
def test_dr_mas_is_grpo_when_everyone_speaks_once(told: Plays) -> None:
    episodes = batch([(task, reward, list("abc")) for task, reward, _ in told])
    np.testing.assert_allclose(credit(episodes, "dr_mas").advantage, credit(episodes, "grpo").advantage, atol=1e-9)


@given(plays)
def test_members_of_centred_methods_add_up_to_zero(told: Plays) -> None:
    episodes = batch(told)
    rows = credit(episodes, "dr_mas")
    np.testing.assert_allclose(np.bincount(rows.rows.agent * 2 + rows.rows.task, rows.advantage), 0, atol=1e-8)
    balanced = credit(episodes, "dr_mas", "balanced")
    weighed = balanced.advantage * balanced.weight
    np.testing.assert_allclose(np.bincount(rows.rows.agent * 2 + rows.rows.task, weighed), 0, atol=1e-8)
    first = rows.rows.turn == 0
    for method in ("grpo", "rloo"):
        whole = credit(episodes, method)
        np.testing.assert_allclose(np.bincount(rows.rows.task[first], whole.advantage[first]), 0, atol=1e-8)
