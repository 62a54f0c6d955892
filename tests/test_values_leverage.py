"""Paired regression: exact for additive games, consistent, with honest standard errors."""

from __future__ import annotations

import numpy as np
import pytest

from macredit.values.estimation import estimate
from macredit.values.exact import shapley


@pytest.mark.parametrize(("n", "budget"), [(2, 4), (5, 12), (64, 1000), (700, 1500)])
def test_exact_for_additive_games(n: int, budget: int) -> None:
    worth = np.random.default_rng(n).normal(size=n)
    found = estimate(lambda c: c @ worth - 7, n, budget, method="leverage")
    np.testing.assert_allclose(found.values, worth, atol=1e-8)
    assert found.evaluations <= budget


def test_one_pair_short_of_everything_is_close() -> None:
    table = np.random.default_rng(3).normal(size=32)
    found = estimate(lambda c: table[c @ (1 << np.arange(5))], 5, 30, method="leverage")
    np.testing.assert_allclose(found.values, shapley(table), atol=0.2)
    assert found.values.sum() == pytest.approx(table[-1] - table[0])


def test_nearly_unbiased_with_the_right_standard_error() -> None:
    table = np.random.default_rng(1).normal(size=256)
    runs = [estimate(lambda c: table[c @ (1 << np.arange(8))], 8, 100, s, method="leverage") for s in range(300)]
    values = np.array([run.values for run in runs])
    spread = values.std(axis=0)
    assert np.abs(values.mean(axis=0) - shapley(table)).max() < 4 * spread.max() / np.sqrt(300)
    typical = np.sqrt(np.mean([run.stderr**2 for run in runs], axis=0))
    np.testing.assert_allclose(typical, spread, rtol=0.25)
    inside = [(run.interval()[:, 0] <= shapley(table)) & (shapley(table) <= run.interval()[:, 1]) for run in runs]
    assert 0.91 <= np.mean(inside) <= 0.98
