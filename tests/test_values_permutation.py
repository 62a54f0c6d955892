"""Antithetic permutations: efficient, unbiased, within budget, with honest standard errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from macredit.values.answers import BoolCN
from macredit.values.estimation import estimate
from macredit.values.exact import shapley


def table_game(table: np.ndarray) -> Callable[[BoolCN], Any]:
    n = len(table).bit_length() - 1
    return lambda coalitions: table[coalitions @ (1 << np.arange(n))]


@pytest.mark.parametrize("budget", [7, 11, 12, 30, 40])
def test_efficient_for_any_number_of_orders(budget: int) -> None:
    table = np.random.default_rng(budget).normal(size=64)
    found = estimate(table_game(table), 6, budget, method="permutation")
    assert found.values.sum() == pytest.approx(table[-1] - table[0])
    assert found.evaluations == found.distinct <= budget


def test_one_order_by_hand() -> None:
    # budget 4 pays for nobody, two prefixes and everybody of one order: its marginals are the values
    game = table_game(np.array([0.0, 1, 10, 12, 100, 103, 140, 190]))
    found = estimate(game, 3, 4, method="permutation")
    marginals = {(0, 1, 2): [1, 11, 178], (0, 2, 1): [1, 87, 102], (1, 0, 2): [2, 10, 178]}
    marginals |= {(1, 2, 0): [50, 10, 130], (2, 0, 1): [3, 87, 100], (2, 1, 0): [50, 40, 100]}
    assert found.values.tolist() in list(marginals.values())
    assert np.isnan(found.stderr).all()


def test_unbiased_with_the_right_standard_error() -> None:
    table = np.random.default_rng(1).normal(size=64)
    runs = [estimate(table_game(table), 6, 40, seed, method="permutation") for seed in range(300)]
    values = np.array([run.values for run in runs])
    spread = values.std(axis=0)
    assert np.abs(values.mean(axis=0) - shapley(table)).max() < 4 * spread.max() / np.sqrt(300)
    typical = np.sqrt(np.mean([run.stderr**2 for run in runs], axis=0))
    np.testing.assert_allclose(typical, spread, rtol=0.25)  # a few samples draw each other's variances together


def test_noise_is_averaged_and_the_ends_with_it() -> None:
    rng = np.random.default_rng(0)

    def noisy(coalitions: BoolCN) -> Any:
        return coalitions.sum(axis=1) + rng.normal(0, 1, len(coalitions))

    runs = [estimate(noisy, 4, 400, seed, method="permutation", noise=True) for seed in range(200)]
    assert runs[0].evaluations == 400  # 80 orders of 5 coalitions
    errors = np.array([run.values - 1 for run in runs])
    typical = np.sqrt(np.mean([run.stderr**2 for run in runs]))
    assert typical == pytest.approx(errors.std(), rel=0.15)


def test_dropped_worths_leave_the_other_orders() -> None:
    table = np.arange(64.0)
    table[21] = np.nan
    found = estimate(table_game(table), 6, 50, method="permutation", on_nan="drop")
    np.testing.assert_allclose(found.values, [1, 2, 4, 8, 16, 32])
