"""Stratified sampling: unbiased where every stratum has a sample, with honest standard errors."""

from __future__ import annotations

import numpy as np
import pytest

from macredit.values.estimation import estimate
from macredit.values.exact import shapley


def test_exact_for_additive_and_symmetric_games() -> None:
    additive = estimate(lambda c: c @ np.arange(8.0) + 2, 8, 60, method="stratified")
    np.testing.assert_allclose(additive.values.sum(), 28)
    symmetric = estimate(lambda c: c.sum(axis=1) ** 2, 8, 20, method="stratified")
    np.testing.assert_allclose(symmetric.values, 8, atol=1e-12)


def test_all_pairs_but_one_by_hand() -> None:
    # n = 3: the pairs are {i} against the rest; with two of them answered the third player takes the mean of the others
    table = np.array([0.0, 1, 2, 4, 3, 5, 6, 9])
    found = estimate(lambda c: table[c @ [1, 2, 4]], 3, 6, method="stratified")
    # 2u({0}) = 1 − 6 = −5, 2u({1}) = 2 − 5 = −3, 2u({2}) = 3 − 4 = −1; phi_i = (mean 2u of size 1 with i
    # + mean −2u of the singles without i + 9) / 3, then the sum is set to 9
    singles = {0: -5.0, 1: -3.0, 2: -1.0}
    expected = []
    for missing in range(3):
        known = {i: u for i, u in singles.items() if i != missing}
        alone = [known.get(i, np.mean(list(known.values()))) for i in range(3)]
        rest = [-np.mean([u for j, u in known.items() if j != i]) for i in range(3)]
        raw = (np.array(alone) + rest + 9) / 3
        expected.append(raw + (9 - raw.sum()) / 3)
    assert min(np.abs(found.values - values).max() for values in expected) < 1e-12


def test_unbiased_with_the_right_standard_error() -> None:
    table = np.random.default_rng(1).normal(size=256)
    runs = [estimate(lambda c: table[c @ (1 << np.arange(8))], 8, 150, s, method="stratified") for s in range(200)]
    values = np.array([run.values for run in runs])
    spread = values.std(axis=0)
    assert np.abs(values.mean(axis=0) - shapley(table)).max() < 4 * spread.max() / np.sqrt(200)
    typical = np.sqrt(np.mean([run.stderr**2 for run in runs], axis=0))
    np.testing.assert_allclose(typical, spread, rtol=0.25)


@pytest.mark.parametrize("n", [65, 300])
def test_many_players(n: int) -> None:
    found = estimate(lambda c: c.sum(axis=1) * 0.5, n, 4 * n, method="stratified")
    np.testing.assert_allclose(found.values, 0.5, atol=1e-9)
