"""Compiled products over the players that sets lack, against the same in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from macredit.rows import FloatN
from macredit.values.answers import BoolCN
from macredit.values.lacking_kernels import add_between, add_covariance, gradient, integral, packed

SIZES = [1, 7, 8, 9, 17, 64]
"""Players: one, and on both sides of whole bytes."""


def rows(n: int, count: int) -> FloatN:
    return np.where(np.random.default_rng(count).random((count, n)) < 0.5, 1.0, -1.0)


def sets(x: FloatN, y: FloatN, alike: bool) -> list[tuple[float, BoolCN]]:
    """Each sign with bool[X, Y, n], the players in the set that two rows make."""
    s, t = x[:, None] > 0, y[None] > 0
    if alike:
        return [(1, s == t), (-1, s != t)]
    return [(1, s & t), (1, ~s & ~t), (-1, s & ~t), (-1, ~s & t)]


def product(q: FloatN, inside: BoolCN) -> FloatN:
    return np.asarray(np.where(inside, 1, q).prod(axis=-1))


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("n", SIZES)
def test_covariance(n: int, alike: bool) -> None:
    q, x, y = np.random.default_rng(n).random(n), rows(n, 6), rows(n, 5)
    expected = sum(sign * product(q, inside) for sign, inside in sets(x, y, alike))
    found = np.ones((6, 5))
    add_between(packed(x), packed(y), q, alike, 2.0, found)
    np.testing.assert_allclose(found, 1 + 2 * expected, atol=1e-15)
    found = np.ones((6, 6))
    add_covariance(packed(x), q, alike, 2.0, found)
    expected = sum(sign * product(q, inside) for sign, inside in sets(x, x, alike))
    np.testing.assert_allclose(found, 1 + np.tril(2 * expected), atol=1e-15)


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("n", SIZES)
def test_gradient(n: int, alike: bool) -> None:
    q, x = np.random.default_rng(n).random(n), rows(n, 6)
    weight = np.random.default_rng(1).normal(size=(6, 6))
    weight += weight.T
    terms = [(sign * weight * product(q, inside), inside) for sign, inside in sets(x, x, alike)]
    total, slope = gradient(packed(x), weight, q, alike)
    assert total == pytest.approx(sum(term.sum() for term, _ in terms), abs=1e-12)
    # a factor q_i is in every product whose set lacks i
    expected = sum((term[..., None] * ~inside).sum(axis=(0, 1)) for term, inside in terms)
    np.testing.assert_allclose(slope, expected, atol=1e-12)


@pytest.mark.parametrize("alike", [True, False])
def test_integral(alike: bool) -> None:
    rng, x = np.random.default_rng(0), rows(5, 6)
    near, far, weight = rng.random((3, 5)) + 0.1, rng.random((3, 5)) + 0.1, rng.random(3)
    expected = np.zeros(x.shape)
    for i, k in np.ndindex(*x.shape):
        others = np.arange(5) != k
        with_k = x[i] == x[i, k]
        straight = np.where(with_k, near, far)[:, others].prod(axis=1)
        exchanged = np.where(with_k, far, near)[:, others].prod(axis=1)
        expected[i, k] = x[i, k] * weight @ (straight + exchanged if alike else straight)
    np.testing.assert_allclose(integral(x, near, far, weight, alike), expected)
