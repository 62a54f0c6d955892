"""The Möbius transform: hand-worked numbers, the definition, its inverse, and the twin in plain array operations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from macredit.errors import UserError
from macredit.values.moebius import moebius, transformed_by_halves, worths_of


def test_dividends_by_hand() -> None:
    # v = 1, 2, 3, 7: {0} adds 1, {1} adds 2, both together add 7 − 1 − 1 − 2 = 3
    assert moebius([1, 2, 3, 7]).tolist() == [1, 1, 2, 3]
    assert moebius([2, 5]).tolist() == [2, 3]
    assert worths_of([1, 1, 2, 3]).tolist() == [1, 2, 3, 7]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_the_definition(n: int) -> None:
    table = np.random.default_rng(n).normal(size=2**n)
    expected = [
        math.fsum((-1) ** (s ^ t).bit_count() * table[t] for t in range(2**n) if t & s == t) for s in range(2**n)
    ]
    np.testing.assert_allclose(moebius(table), expected, atol=1e-13)


@pytest.mark.parametrize("n", [3, 6, 10, 16, 17, 19, pytest.param(20, marks=pytest.mark.slow)])
def test_the_kernel_equals_plain_array_operations(n: int) -> None:
    table = np.random.default_rng(n).integers(-9, 9, 2**n).astype(np.float64)
    before = table.copy()
    coefficients = moebius(table)
    np.testing.assert_array_equal(coefficients, transformed_by_halves(table, -1))
    np.testing.assert_array_equal(worths_of(coefficients), table)
    np.testing.assert_array_equal(table, before)


def test_precision_is_kept() -> None:
    table = np.random.default_rng(0).random(2**6)
    coefficients = moebius(table.astype(np.float32))
    assert coefficients.dtype == np.float32
    np.testing.assert_allclose(coefficients, moebius(table), atol=1e-4)


def test_tensors_keep_their_gradient() -> None:
    torch = pytest.importorskip("torch")
    table = torch.tensor([0.0, 1.0, 1.0, 3.0], requires_grad=True)
    moebius(table)[3].backward()
    assert table.grad is not None
    assert table.grad.tolist() == [1, -1, -1, 1]


@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("worth", [math.nan, math.inf])
def test_a_worth_that_is_not_finite_is_named(n: int, worth: float) -> None:
    table = np.zeros(2**n)
    table[1] = worth
    with pytest.raises(UserError, match=r"coalition \{0\} is not finite"):
        moebius(table)
