"""Noisy games: allocation against its formula, unbiased standard errors, tasks that are shared."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macredit.errors import UserError
from macredit.rows import FloatN, IntN
from macredit.values.allocation import next_scores, stages, task_of
from macredit.values.exact import banzhaf, loo, shapley
from macredit.values.noisy import (
    Design,
    clustered_fit,
    design_of,
    linear_fit,
    semivalue_design,
    shapley_design,
    summary,
)
from macredit.values.session import Session
from macredit.values.stopping import student_interval


def scored(design: Design, chance: FloatN, budget: int, seed: int) -> tuple[IntN, IntN, FloatN]:
    """Coalitions, tasks and 0/1 scores of a whole budget."""
    rng = np.random.default_rng(seed)
    masks, tasks, scores = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    for size in stages(len(design.masks), budget):
        so_far = summary(design, masks, scores)
        more = next_scores(design, so_far, size, seed)
        ask = np.repeat(design.masks, more)
        visit = np.concatenate([np.arange(a, a + b) for a, b in zip(so_far.count, more, strict=True)])
        tasks = np.append(tasks, task_of(ask, visit, design.n, None, seed)[0])
        masks, scores = np.append(masks, ask), np.append(scores, rng.random(len(ask)) < chance[ask])
    return masks, tasks, scores


def chances(n: int, rng: np.random.Generator) -> FloatN:
    """A team's success: a logistic curve of who is there and of some pairs."""
    present = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    pairs = np.triu(rng.normal(0, 0.5, (n, n)), 1)
    logit = present @ rng.normal(0.6, 0.6, n) + np.einsum("ci,ij,cj->c", present, pairs, present) - 0.3 * n
    return np.asarray(1 / (1 + np.exp(-logit)))


def test_the_matrix_of_two_players() -> None:
    # φ_0 = ½ (v1 − v0) + ½ (v3 − v2), φ_1 = ½ (v2 − v0) + ½ (v3 − v1)
    np.testing.assert_allclose(shapley_design(2).matrix, [[-0.5, 0.5, -0.5, 0.5], [-0.5, -0.5, 0.5, 0.5]])


@pytest.mark.parametrize("n", [1, 2, 4])
def test_any_linear_index_has_its_matrix(n: int) -> None:
    table = np.random.default_rng(n).normal(size=2**n)
    for index in (shapley, banzhaf, loo):
        design = design_of(index, n)
        np.testing.assert_allclose(design.matrix @ table[design.masks], index(table), atol=1e-12)
    np.testing.assert_allclose(shapley_design(n).matrix, design_of(shapley, n).matrix, atol=1e-15)


def test_leave_one_out_needs_few_coalitions() -> None:
    # N = 1111 and N without one: 0111, 1011, 1101, 1110
    assert semivalue_design(4, [0, 0, 0, 1]).masks.tolist() == [0b0111, 0b1011, 0b1101, 0b1110, 0b1111]


def test_scores_go_where_they_matter() -> None:
    # sqrt(a_S) of 3 players: sizes 0 and 3: sqrt(3/9) = 0.577, sizes 1 and 2: sqrt((3/2)/9) = 0.408; Σ = 3.604
    design = shapley_design(3)
    one = summary(design, design.masks, np.zeros(8))
    count = 1 + next_scores(design, one, 3604 - 8, 0)
    assert count.sum() == 3604
    np.testing.assert_allclose(count, [577.4, 408.2, 408.2, 408.2, 408.2, 408.2, 408.2, 577.4], atol=1.5)


def test_a_size_that_never_varies_is_left_alone() -> None:
    design = shapley_design(3)
    masks = np.repeat(np.arange(8), 40)
    scores = np.random.default_rng(0).normal(size=320) * (np.bitwise_count(masks) == 2)
    more = next_scores(design, summary(design, masks, scores), 200, 0)
    assert more[[3, 5, 6]].sum() > 190


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 5), st.integers(0, 300), st.integers(0, 3))
def test_every_budget_is_spent_to_the_last_score(n: int, extra: int, seed: int) -> None:
    design = shapley_design(n)
    rng = np.random.default_rng(seed)
    masks, _, _ = scored(design, rng.random(2**n).round(rng.integers(0, 3)), 2**n + extra, seed)
    count = np.bincount(masks, minlength=2**n)
    assert count.sum() == 2**n + extra
    assert count.min() >= 1


def test_a_budget_below_the_table() -> None:
    with pytest.raises(UserError, match="a budget of 7 was given; scoring each of 8 coalitions needs at least 8"):
        stages(8, 7)


def test_standard_errors_cover_and_are_not_wasteful() -> None:
    inside, squared, stated = [], [], []
    design = shapley_design(4)
    for seed in range(500):
        chance = chances(4, np.random.default_rng(seed))
        fit = clustered_fit(design, *scored(design, chance, 160, seed))
        truth = shapley(chance)
        low, high = student_interval(fit.values, fit.stderr, fit.dof, 0.95).T
        inside.append((low <= truth) & (truth <= high))
        squared.append((fit.values - truth) ** 2)
        stated.append(fit.stderr**2)
    assert 0.93 <= np.mean(inside) <= 0.97  # 2,000 intervals
    assert np.mean(stated) == pytest.approx(np.mean(squared), rel=0.1)


def test_allocation_beats_equal_scores() -> None:
    design, ours, equal = shapley_design(8), [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        chance = chances(8, rng)
        fit = clustered_fit(design, *scored(design, chance, 2560, seed))
        ours.append(((fit.values - shapley(chance)) ** 2).mean())
        equal.append(((shapley(rng.binomial(10, chance) / 10) - shapley(chance)) ** 2).mean())
    # 2^n Σ_S a_S / (Σ_S sqrt(a_S))² = 3.5 for 8 players and equal variances
    assert np.mean(equal) / np.mean(ours) > 2.5


def test_a_shared_difficulty_cancels_and_standard_errors_see_what_is_shared() -> None:
    # every score is its coalition's worth plus the difficulty of its task: only tasks make noise
    n, design = 4, shapley_design(4)
    worth = np.arange(16.0)
    masks, visit = np.repeat(np.arange(16), 30), np.tile(np.arange(30), 16)
    tasks, replicate = task_of(masks, visit, n, 30, seed=1)
    assert sorted(tasks[masks == 5]) == list(range(30))
    assert not replicate.any()
    difficulty = np.random.default_rng(0).normal(size=30)
    fit = clustered_fit(design, masks, tasks, worth[masks] + difficulty[tasks])
    np.testing.assert_allclose(fit.values, shapley(worth), atol=1e-12)
    np.testing.assert_allclose(fit.stderr, 0, atol=1e-12)
    alone = linear_fit(design, summary(design, masks, worth[masks] + difficulty[tasks]))
    assert alone.stderr.min() > 0.05


def test_tasks_whose_credit_differs_widen_the_interval() -> None:
    # on each task one coalition difference counts for all: scores of one task move together
    design, inside = shapley_design(3), []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        masks, visit = np.repeat(np.arange(8), 25), np.tile(np.arange(25), 8)
        tasks, _ = task_of(masks, visit, 3, 25, seed)
        skill = rng.normal(1, 1, (25, 3))
        present = (masks[:, None] >> np.arange(3)) & 1
        fit = clustered_fit(design, masks, tasks, (present * skill[tasks]).sum(axis=1))
        low, high = student_interval(fit.values, fit.stderr, fit.dof, 0.95).T
        inside.append((low <= 1) & (high >= 1))
    assert 0.93 <= np.mean(inside) <= 0.98


def test_a_coalition_and_its_complement_share_their_tasks() -> None:
    visit = np.zeros(16, np.int64)
    fresh, _ = task_of(np.arange(16), visit, 4, None, 0)
    np.testing.assert_array_equal(fresh, fresh[::-1])
    assert len(set(fresh.tolist())) == 8
    pool, replicate = task_of(np.full(7, 3), np.arange(7), 4, 3, 0)
    assert sorted(pool[:3]) == [0, 1, 2]
    assert replicate.tolist() == [0, 0, 0, 1, 1, 1, 2]


def test_every_success_does_not_rule_failure_out() -> None:
    design = shapley_design(2)
    fit = linear_fit(design, summary(design, np.repeat(np.arange(4), 10), np.ones(40)))
    assert 0 < fit.stderr.min() < 0.05


def test_without_a_repeat_nothing_is_known_of_the_noise() -> None:
    design = shapley_design(2)
    once = summary(design, np.arange(4), np.array([0.0, 1, 1, 3]))
    assert np.isnan(linear_fit(design, once).stderr).all()
    np.testing.assert_array_equal(linear_fit(design, once, noise=False).values, [1.5, 1.5])


def test_a_missing_coalition_is_named() -> None:
    design = shapley_design(2)
    with pytest.raises(UserError, match=r"3 of 4 coalitions that are needed have a score; \{0, 1\} has none"):
        linear_fit(design, summary(design, np.arange(3), np.zeros(3)))


def test_as_the_method_of_a_session() -> None:
    chance = chances(5, np.random.default_rng(3))
    session, rng = Session(5, 400, noise=True, method="allocated"), np.random.default_rng(0)
    while len(rows := session.ask()):
        session.tell(rows, rng.random(len(rows)) < chance[rows @ (1 << np.arange(5))])
    found = session.estimate()
    assert (found.evaluations, found.distinct, found.method) == (400, 32, "allocated")
    assert (np.abs(found.values - shapley(chance)) < 4 * found.stderr).all()
    assert found.stderr.mean() == pytest.approx(0.45 * math.sqrt(24.6 / 5 / 400), rel=0.3)  # (Σ sqrt(a))² = 24.6
