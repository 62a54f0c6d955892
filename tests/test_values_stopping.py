"""Anytime intervals hold at every moment together; rules stop when they say so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from macredit.errors import UserError
from macredit.values.estimation import estimate
from macredit.values.exact import shapley
from macredit.values.stopping import Ranking, Sign, Width, anytime_interval, sample_variance, student_interval


def test_student_interval_by_hand() -> None:
    # t with one degree of freedom: tan(π/4) = 1 at the 75 % point
    np.testing.assert_allclose(student_interval(np.array([2.0]), np.array([3.0]), 1, 0.5), [[-1, 5]])


@pytest.mark.parametrize(("span", "most"), [(1.0, 0.05), (None, 0.06)])
def test_anytime_intervals_hold_at_every_time(span: float | None, most: float) -> None:
    rng = np.random.default_rng(0)
    draws = rng.choice([-1.0, 0.0, 0.5, 1.0], p=[0.1, 0.5, 0.3, 0.1], size=(300, 400))  # 400 runs; mean 0.15
    missed = np.zeros(400, bool)
    for t in [5, 10, 20, 40, 80, 150, 300] if span else [20, 40, 80, 150, 300]:
        low, high = anytime_interval(draws[:t], span, 0.95).T
        missed |= (low > 0.15) | (high < 0.15)
    assert missed.mean() <= most


def test_few_samples_say_nothing_at_all_times_and_never_that_the_error_is_0() -> None:
    same = np.tile([0.0, 1.0], (15, 1))
    assert np.isinf(anytime_interval(same, None, 0.95)).all()
    mixed = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])
    # own variances 0 and 1, mean 1/2; drawn together: (2 · 0 + 2 / 2) / 4 and (2 · 1 + 2 / 2) / 4
    np.testing.assert_allclose(sample_variance(mixed), [0.25, 0.75])
    assert np.isnan(sample_variance(mixed[:1])).all()


def test_intervals_with_a_known_range_shrink_like_bernstein() -> None:
    rng = np.random.default_rng(1)
    low, high = anytime_interval(rng.normal(0.2, 0.05, (2000, 1)).clip(-1, 1), 1.0, 0.95)[0]
    assert low < 0.2 < high
    assert high - low < 0.03  # Hoeffding's would be 2 · 2 · sqrt(log(40) / 4000) = 0.12


def team(coalitions: np.ndarray) -> Any:
    return np.clip(coalitions @ np.array([0.5, 0.3, 0.2, 0.1, -0.2, 0.4]), 0, 1)


EXACT = shapley(team(np.arange(64)[:, None] >> np.arange(6) & 1 == 1))


@pytest.mark.parametrize("rule", [Width(0.25), Sign(), Ranking()])
def test_rules_stop_early_and_are_right(rule: Any) -> None:
    rng = np.random.default_rng(0)

    def game(coalitions: np.ndarray) -> Any:
        return (rng.random(len(coalitions)) < team(coalitions)).astype(float)

    found = estimate(game, 6, 400_000, method="permutation", noise=True, worth_range=(0, 1), stop=rule)
    assert found.evaluations < 400_000
    interval = found.interval(anytime=True)
    assert ((interval[:, 0] <= EXACT) & (interval[:, 1] >= EXACT)).all()
    if isinstance(rule, Width):
        assert (interval[:, 1] - interval[:, 0] <= 0.25).all()
    if isinstance(rule, Sign):
        np.testing.assert_array_equal(np.sign(found.values), np.sign(EXACT))
    if isinstance(rule, Ranking):
        np.testing.assert_array_equal(np.argsort(found.values), np.argsort(EXACT))


def test_regression_looks_again_and_again_and_spends_its_error() -> None:
    found = estimate(lambda c: np.cos(c @ np.arange(12.0)), 12, 4000, method="leverage", stop=Width(0.8))
    assert found.evaluations < 4000
    once, always = found.interval(), found.interval(anytime=True)
    assert (always[:, 0] <= once[:, 0]).all()
    assert found.looks > 1


@pytest.mark.parametrize(("make", "message"), [(lambda: Width(0), "the width is 0"), (lambda: Sign(1), "level is 1")])
def test_rules_that_cannot_be_meant(make: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()
