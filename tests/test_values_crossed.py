"""Values of scores on shared tasks."""

from __future__ import annotations

import numpy as np
import pytest

from macredit.rows import FloatN, IntN
from macredit.values.allocation import next_scores, stages, task_of
from macredit.values.crossed import Guess, bridge, crossed_fit, played_of, together
from macredit.values.exact import banzhaf, loo, shapley
from macredit.values.masks import members_of
from macredit.values.noisy import clustered_fit, design_of, semivalue_design, shapley_design, summary
from macredit.values.stopping import student_interval


def chances(n: int, rng: np.random.Generator) -> FloatN:
    """Success along a logistic curve of who is there and of some pairs."""
    present = members_of(np.arange(2**n), n).astype(float)
    pairs = np.triu(rng.normal(0, 0.5, (n, n)), 1)
    logit = present @ rng.normal(0.6, 0.6, n) + np.einsum("ci,ij,cj->c", present, pairs, present) - 0.3 * n
    return np.asarray(1 / (1 + np.exp(-logit)))


def scored(chance: FloatN, n: int, budget: int, seed: int, *, shared: bool) -> tuple[IntN, IntN, FloatN]:
    """Coalitions, tasks and 0/1 scores; a task is too hard or not for all alike, or each score is by chance alone."""
    rng, design = np.random.default_rng(seed), shapley_design(n)
    half = design.half
    masks, visits = half.masks, np.zeros(len(half.masks), np.int64)
    for size in stages(len(half.masks), budget // 2)[1:]:
        so_far = summary(half, masks, np.zeros(len(masks)))
        more = next_scores(half, so_far, size, seed)
        ask = np.repeat(half.masks, more)
        visits = np.append(
            visits, np.concatenate([np.arange(a, a + b) for a, b in zip(so_far.count, more, strict=True)])
        )
        masks = np.append(masks, ask)
    masks, visits = np.append(masks, 2**n - 1 - masks), np.tile(visits, 2)
    tasks, _ = task_of(masks, visits, n, None, seed, together(design))
    difficulty = rng.random(int(tasks.max()) + 1)[tasks] if shared else rng.random(len(tasks))
    return masks, tasks, (difficulty < chance[masks]).astype(float)


def test_who_is_odd() -> None:
    assert shapley_design(4).odd
    assert design_of(banzhaf, 3).odd
    assert not design_of(loo, 3).odd
    # weights 1, 2, 4 of coalitions with 0, 1 and 2 others are not the same from both ends
    assert not semivalue_design(3, [1, 2, 4]).odd


def test_half_of_an_odd_value_reads_differences() -> None:
    table, half = np.random.default_rng(0).normal(size=16), shapley_design(4).half
    # 1 nobody, 4 single players, 3 of the 6 couples: those without the last player
    assert half.masks.tolist() == [0, 1, 2, 3, 4, 5, 6, 8]
    np.testing.assert_allclose(half.matrix @ (table[half.masks] - table[15 - half.masks]), shapley(table))


def test_the_covariance_of_outcomes_by_one_difficulty() -> None:
    # pairs that succeed with chances 0.5 ± δ/2 on a task of difficulty u: differ while u is between
    difference, u = np.array([0.4, 0.1, -0.2]), (np.arange(100_000) + 0.5) / 100_000
    won = (u[:, None] < 0.5 + difference / 2).astype(float) - (u[:, None] < 0.5 - difference / 2)
    known = Guess(difference, np.zeros(3))
    np.testing.assert_allclose(bridge(known, 1.0), np.cov(won.T), atol=1e-4)
    # scores of 0 and 3: nine times
    np.testing.assert_allclose(bridge(Guess(3 * difference, np.zeros(3)), 3.0), 9 * bridge(known, 1.0))
    # a difference that may as well be ±1 by a standard deviation of 0.1 differs on some tasks: E|δ| = 0.1 sqrt(2/π)
    np.testing.assert_allclose(bridge(Guess(np.zeros(1), np.full(1, 0.1)), 1.0), 0.0797885, rtol=1e-5)


def test_scores_on_one_task_become_differences() -> None:
    design = shapley_design(2)
    # task 3: {} scored 1 and N scored 0 and 1; task 5: {0} scored 1, {1} scored 0
    masks, tasks = np.array([0, 3, 3, 1, 2]), np.array([3, 3, 3, 5, 5])
    played = played_of(design, masks, tasks, np.array([1.0, 0, 1, 1, 0]))
    assert played is not None
    assert (played.pair.tolist(), played.score.tolist(), played.times.tolist()) == ([0, 1], [0.5, 1.0], [1, 1])
    assert played_of(design, masks[:4], tasks[:4], np.ones(4)) is None


def test_pairs_of_like_sizes_share_a_task_once_each_visit() -> None:
    n = 5
    masks = np.tile(np.arange(32), 2)
    tasks, _ = task_of(masks, np.repeat([0, 1], 32), n, None, 0, 3)
    assert np.array_equal(tasks[:32], tasks[:32][::-1])
    assert not set(tasks[:32]) & set(tasks[32:])
    assert sorted(np.unique(tasks[:32], return_counts=True)[1]) == [2, 6, 6, 6, 6, 6]
    sizes = np.minimum(np.bitwise_count(masks[:32]), 5 - np.bitwise_count(masks[:32])).astype(int)
    assert max(np.ptp(sizes[tasks[:32] == task]) for task in set(tasks[:32].tolist())) <= 1
    pool, replicate = task_of(np.full(7, 3), np.arange(7), n, 3, 0, 3)
    assert sorted(pool[:3]) == [0, 1, 2]
    assert replicate.tolist() == [0, 0, 0, 1, 1, 1, 2]


@pytest.mark.parametrize(("shared", "most"), [(True, 0.9), (False, 1.05)])
def test_shared_difficulty_is_worth_much_and_costs_nothing_where_there_is_none(shared: bool, most: float) -> None:
    n, design, errors, inside = 6, shapley_design(6), [], []
    for seed in range(25):
        chance = chances(n, np.random.default_rng([seed, 1]))
        rows = scored(chance, n, 640, seed, shared=shared)
        fit, plain = crossed_fit(design, *rows), clustered_fit(design, *rows)
        assert fit is not None
        truth = shapley(chance)
        errors.append([((found.values - truth) ** 2).sum() for found in (fit, plain)])
        low, high = student_interval(fit.values, fit.stderr, fit.dof, 0.95).T
        inside.append((low <= truth) & (truth <= high))
    ours, plain_error = np.mean(errors, axis=0)
    assert ours < most * plain_error
    assert 0.88 <= np.mean(inside) <= 0.99


def test_scores_that_do_not_lend_themselves_to_it() -> None:
    design, rng = shapley_design(4), np.random.default_rng(0)
    masks, tasks = np.tile(np.arange(16), 4), np.repeat(np.arange(4), 16)
    scores = rng.random(64).round()
    assert crossed_fit(design, masks, tasks, scores) is not None
    assert crossed_fit(design, masks, tasks, np.ones(64)) is None  # nothing differs
    assert crossed_fit(design, masks[:16], tasks[:16], scores[:16]) is None  # nothing repeated
    alone = np.minimum(masks, 15 - masks) + 16 * tasks
    assert crossed_fit(design, masks, alone, scores) is None  # a pair a task
    assert crossed_fit(design, masks[1:], tasks[1:], scores[1:]) is None  # N without nobody
    assert crossed_fit(design_of(loo, 4), masks, tasks, scores) is None  # not odd
    small = shapley_design(3)
    assert crossed_fit(small, masks[masks < 8], tasks[masks < 8], scores[masks < 8]) is None
