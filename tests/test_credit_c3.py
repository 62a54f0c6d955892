"""c3: trees of the golden files written as episodes, resampling, and records without siblings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from macredit.credit import credit
from macredit.episode import Episode, episode_from_json
from macredit.errors import UserError
from macredit.whatif import WhatIf

HERE = Path(__file__).parent / "golden"
TREES = json.loads((HERE / "advantages.json").read_text())["c3_trees"]
WORKED = json.loads((HERE / "worked.json").read_text())["released code"]


def tree(leaves: list[list[float]]) -> list[Episode]:
    """A tree of two depths as one episode a leaf: turns q/i of agent a, then q/i/j of agent b."""
    return [
        episode_from_json({
            "id": f"e{i}-{j}", "task": "q", "reward": reward,
            "turns": [{"id": f"q/{i}", "agent": "a", "text": "x"}, {"id": f"q/{i}/{j}", "agent": "b", "text": "y"}],
        })
        for i, siblings in enumerate(leaves)
        for j, reward in enumerate(siblings)
    ]  # fmt: skip


def columns(column: np.ndarray[Any, Any], leaves: list[list[float]]) -> tuple[list[float], list[list[float]]]:
    """Root values (one a sibling) and children of a column of the tree's rows."""
    roots, children, row = [], [], 0
    for siblings in leaves:
        roots.append(float(column[row]))
        children.append([float(column[row + 2 * j + 1]) for j in range(len(siblings))])
        row += 2 * len(siblings)
    return roots, children


@pytest.mark.parametrize("case", TREES)
@pytest.mark.parametrize("baseline", ["loo", "full_mean"])
def test_golden_trees(case: dict[str, Any], baseline: str) -> None:
    result = credit(tree(case["leaf_rewards"]), "c3", settings={"baseline": baseline})
    roots, children = columns(result.advantage, case["leaf_rewards"])
    np.testing.assert_allclose(roots, case["root"][baseline], atol=1e-6)
    np.testing.assert_allclose(children, case["children"][baseline], atol=1e-6)
    # credit is the leave-one-out difference, whatever the baseline of the advantage
    roots, children = columns(result.credit, case["leaf_rewards"])
    np.testing.assert_allclose(roots, case["root"]["loo"], atol=1e-6)
    np.testing.assert_allclose(children, case["children"]["loo"], atol=1e-6)


LEAVES = [WORKED["c3_provider"]["leaves"]["A"], WORKED["c3_provider"]["leaves"]["B"]]


@pytest.mark.parametrize("baseline", ["loo", "full_mean"])
def test_z_scored_siblings_of_the_release(baseline: str) -> None:
    result = credit(tree(LEAVES), "c3", "code", {"baseline": baseline})
    roots, children = columns(result.advantage, LEAVES)
    expected = WORKED["c3_after_group_norm(pop std, sqrt(var+1e-8))"]
    np.testing.assert_allclose(roots, expected["root"], atol=1e-6)
    np.testing.assert_allclose(children, [expected["A"], expected["B"]], atol=1e-6)


def test_shared_turns_are_trained_on_once_and_contexts_add_up_to_zero() -> None:
    result = credit(tree(LEAVES), "c3")
    # eight episodes of two turns; the first turn of each root sibling counts once: 2 + 8
    assert result.weight.sum() == 10
    for context in np.unique(result.rows.context):
        within = (result.rows.context == context) & (result.weight > 0)
        assert result.advantage[within].sum() == pytest.approx(0.0, abs=1e-12)
    assert result.notes["groups"] == 3
    # e0-0: a's turn ¼ (½ − ¼), b's 2/3: total 11/12
    assert result.agents[0].credit == pytest.approx(0.25)
    assert result.agents[1].credit == pytest.approx(2 / 3)


def test_standard_error_comes_from_the_episodes_through_each_sibling() -> None:
    result = credit(tree(LEAVES), "c3")
    # A: 1,0,0,1: sample variance 1/3, so 1/12 of the mean; B: variance ¼, so 1/16; difference √(1/12 + 1/16)
    assert result.stderr[0] == pytest.approx((1 / 12 + 1 / 16) ** 0.5)
    assert np.isnan(result.stderr[1])


def test_independent_rollouts_are_siblings_at_the_root_alone() -> None:
    told = [("e0", 1.0), ("e1", 0.0), ("e2", 0.0)]
    episodes = [
        episode_from_json({"id": i, "task": "q", "reward": r, "turns": [{"agent": a, "text": "x"} for a in "abc"]})
        for i, r in told
    ]
    result = credit(episodes, "c3")
    np.testing.assert_allclose(result.advantage, [1, 0, 0, -0.5, 0, 0, -0.5, 0, 0])
    np.testing.assert_array_equal(result.weight, [1, 0, 0] * 3)
    assert result.reasons[:3] == (None, "no sibling", "no sibling")
    assert result.notes["contexts with one turn"] == 6
    assert "6 of 7 contexts hold one turn" in result.warnings[0]
    assert (result.agents[1].credit, result.agents[1].reason) == (None, "no sibling")


def test_a_record_without_siblings_needs_replays() -> None:
    alone = episode_from_json({"id": "e", "task": "q", "reward": 1.0, "turns": [{"agent": "a", "text": "x"}]})
    with pytest.raises(UserError, match="none of the 1 contexts of this record holds two"):
        credit([alone], "c3")
    with pytest.raises(UserError, match="none of the 1 contexts"):
        credit([alone], "c3", whatif=WhatIf([alone]))


class Forks:
    """Replays from a table: (episode, turn) → rewards of the alternatives, None for a crash."""

    can_replay = True

    def __init__(self, episodes: Sequence[Episode], table: dict[tuple[int, int], list[float | None]]) -> None:
        self.episodes, self.table = episodes, table

    def resample(self, questions: Sequence[tuple[int, int]], n: int) -> list[list[Episode]]:
        return [[self.episodes[e], *(self._fork(e, t, j) for j in range(n - 1))] for e, t in questions]

    def _fork(self, e: int, t: int, j: int) -> Episode:
        reward, original = self.table[e, t][j], self.episodes[e]
        turns: list[dict[str, Any]] = [{"id": turn.id, "agent": turn.agent, "text": "x"} for turn in original.turns[:t]]
        turns += [{"agent": turn.agent, "text": "z", "valid": False} for turn in original.turns[t:]]
        end = {"end": "failed:tool"} if reward is None else {}
        return episode_from_json({"id": f"e{e}.{t}.{j}", "task": "q", "reward": reward, "turns": turns, **end})


def test_contexts_with_one_turn_are_resampled_where_that_is_possible() -> None:
    episode = episode_from_json(
        {"id": "e", "task": "q", "reward": 1.0, "turns": [{"agent": "a", "text": "x"}, {"agent": "b", "text": "y"}]}
    )
    forks = Forks([episode], {(0, 0): [0.0, 0.5], (0, 1): [1.0, None]})
    result = credit([episode], "c3", settings={"alternatives": 3}, whatif=cast(WhatIf, forks))
    # a: 1 − (0 + .5)/2 = .75; b: 1 − 1 = 0, its other alternative crashed
    np.testing.assert_allclose(result.advantage, [0.75, 0.0])
    np.testing.assert_array_equal(result.weight, [1, 1])
    assert result.notes["contexts resampled"] == 2
    # alternatives pay for invalid turns like any other: .1 more for both of a's, for b's
    paid = credit([episode], "c3", settings={"alternatives": 3, "invalid_penalty": 0.1}, whatif=cast(WhatIf, forks))
    np.testing.assert_allclose(paid.advantage, [0.85, 0.1])
    crashed = Forks([episode], {(0, 0): [None, None], (0, 1): [None, None]})
    result = credit([episode], "c3", settings={"alternatives": 3}, whatif=cast(WhatIf, crashed))
    assert result.reasons == ("no sibling", "no sibling")


def test_failed_and_empty_siblings_leave_their_context() -> None:
    told = [("x", 1.0, "done"), ("x", 0.0, "done"), ("", 9.0, "done"), ("x", 5.0, "failed:env")]
    episodes = [
        episode_from_json(
            {"id": f"e{i}", "task": "q", "reward": reward, "end": end, "turns": [{"agent": "a", "text": text}]}
        )
        for i, (text, reward, end) in enumerate(told)
    ]
    result = credit(episodes, "c3")
    np.testing.assert_array_equal(result.advantage, [1, -1, 0, 0])
    np.testing.assert_array_equal(result.weight, [1, 1, 0, 0])
