"""Interactions: hand-worked numbers, each index by its own definition, what they sum to, and gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macredit.errors import UserError
from macredit.rows import FloatN
from macredit.values.exact import banzhaf, shapley
from macredit.values.interactions import INDICES, interactions
from macredit.values.moebius import moebius


def game(n: int, seed: int) -> FloatN:
    worths: FloatN = np.random.default_rng(seed).normal(size=2**n)
    return worths


def sets(n: int, most: int) -> Iterable[tuple[int, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(range(n), size) for size in range(1, most + 1))


def mask_of(members: Iterable[int]) -> int:
    return sum(1 << i for i in members)


def entry(tensor: FloatN, members: tuple[int, ...]) -> float:
    return float(tensor[members + members[-1:] * (tensor.ndim - len(members))])


def derivatives(table: FloatN, members: tuple[int, ...], weights: Sequence[float]) -> float:
    """Σ_{T ⊆ N∖S} weights[|T|] Σ_{L⊆S} (−1)^(|S|−|L|) v(T ∪ L)."""
    s = mask_of(members)
    parts = [t for t in range(len(table)) if t & s == t]
    return math.fsum(
        weights[t.bit_count()] * (-1) ** (len(members) - part.bit_count()) * table[t | part]
        for t in range(len(table))
        if not t & s
        for part in parts
    )


def test_two_players_by_hand() -> None:
    # v = 1, 2, 3, 7: together the two add 7 − 2 − 3 + 1 = 3 to what each adds alone, 1 and 2
    table = [1, 2, 3, 7]
    for index, singles in {
        "sii": (2.5, 3.5),
        "bii": (2.5, 3.5),
        "k-sii": (1, 2),
        "stii": (1, 2),
        "fsii": (1, 2),
    }.items():
        np.testing.assert_allclose(interactions(table, index), [[singles[0], 3], [3, singles[1]]], atol=1e-15)


def test_redundant_players_have_a_negative_interaction() -> None:
    # or of players 0 and 1, player 2 adds nothing
    values = interactions([0, 1, 1, 1, 0, 1, 1, 1], "stii")
    np.testing.assert_allclose(values, [[1, -1, 0], [-1, 1, 0], [0, 0, 0]], atol=1e-15)


@settings(deadline=None, max_examples=12)
@given(st.integers(2, 8), st.integers(0, 99))
def test_pairs_follow_their_definitions(n: int, seed: int) -> None:
    table = game(n, seed)
    weights = {
        "sii": [1 / ((n - 1) * math.comb(n - 2, t)) for t in range(n - 1)],
        "bii": [0.5 ** (n - 2)] * (n - 1),
        "stii": [2 / (n * math.comb(n - 1, t)) for t in range(n - 1)],
    }
    for index in weights:
        values = interactions(table, index)
        for pair in itertools.combinations(range(n), 2):
            assert values[pair] == pytest.approx(derivatives(table, pair, weights[index]), abs=1e-12)
    np.testing.assert_allclose(np.diag(interactions(table, "sii")), shapley(table), atol=1e-13)
    np.testing.assert_allclose(np.diag(interactions(table, "bii")), banzhaf(table), atol=1e-13)
    np.testing.assert_allclose(np.diag(interactions(table, "stii")), table[1 << np.arange(n)] - table[0], atol=1e-13)
    sii = interactions(table, "sii")
    pairs = sii.sum(1) - np.diag(sii)
    np.testing.assert_allclose(np.diag(interactions(table, "k-sii")), shapley(table) - pairs / 2, atol=1e-12)


@settings(deadline=None, max_examples=15)
@given(st.integers(2, 6), st.integers(1, 3), st.integers(0, 99))
def test_fsii_is_the_best_fit(n: int, order: int, seed: int) -> None:
    table = game(n, seed)
    basis = [mask_of(members) for members in sets(n, min(order, n))]
    masks = np.arange(1, 2**n)
    contains = np.array([[mask & part == part for part in basis] for mask in masks], np.float64)
    sizes = np.bitwise_count(masks)
    # weight 1 / (C(n, s) s (n − s)), and a very large one where the fit has to be exact: at everyone
    weight = np.array([1 / (math.comb(n, s) * s * (n - s)) if s < n else 1e9 for s in sizes]) ** 0.5
    fit = np.linalg.lstsq(contains * weight[:, None], (table[1:] - table[0]) * weight)[0]
    values = interactions(table, "fsii", order)
    for members, value in zip(sets(n, min(order, n)), fit, strict=True):
        assert entry(values, members) == pytest.approx(value, abs=1e-5)


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 8), st.integers(1, 4), st.sampled_from(sorted(INDICES)), st.integers(0, 99))
def test_every_order_is_symmetric_and_follows_from_the_moebius_transform(
    n: int, order: int, index: str, seed: int
) -> None:
    table = game(n, seed)
    values = interactions(table, index, order)
    assert values.shape == (n,) * order
    m = moebius(table)
    for members in sets(n, min(order, n)):
        s, r = mask_of(members), len(members)
        supersets = [t for t in range(2**n) if t & s == s]
        expected = math.fsum(float(INDICES[index](order, r, t.bit_count())) * m[t] for t in supersets)
        assert entry(values, members) == pytest.approx(expected, abs=1e-11)
        for places in itertools.permutations(members + members[-1:] * (order - r)):
            assert values[places] == entry(values, members)


@pytest.mark.parametrize("index", ["k-sii", "stii", "fsii"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_efficient_indices_sum_to_the_worth_of_everyone(index: str, order: int) -> None:
    table = game(7, order)
    values = interactions(table, index, order)
    total = math.fsum(entry(values, members) for members in sets(7, order))
    assert total == pytest.approx(table[-1] - table[0], abs=1e-12)


@pytest.mark.parametrize("index", sorted(INDICES))
def test_of_order_one_all_but_banzhaf_are_shapley(index: str) -> None:
    table = game(6, 1)
    np.testing.assert_allclose(
        interactions(table, index, 1), (banzhaf if index == "bii" else shapley)(table), atol=1e-13
    )


@pytest.mark.parametrize("n", [3, 8, 10, 14, 18, pytest.param(19, marks=pytest.mark.slow)])
def test_the_kernel_of_pairs_equals_plain_array_operations(n: int) -> None:
    torch = pytest.importorskip("torch")
    table = game(n, n)
    for index in ("sii", "fsii"):
        twin = interactions(torch.from_numpy(table), index).numpy()
        np.testing.assert_allclose(interactions(table, index), twin, atol=1e-13)


def test_an_offset_costs_no_digits() -> None:
    table = np.random.default_rng(7).integers(0, 2**30, 2**10) / 2**30
    for index in INDICES:
        np.testing.assert_allclose(interactions(table + 1e6, index), interactions(table, index), rtol=0, atol=2e-15)


@pytest.mark.parametrize("order", [2, 3])
def test_tensors_keep_their_gradient(order: int) -> None:
    torch = pytest.importorskip("torch")
    table = torch.tensor(game(4, 2), requires_grad=True)
    interactions(table, "fsii", order)[(1, 2, 2)[:order]].backward()
    # linear: the gradient at coalition S is the interaction in the game that only pays S
    expected = [entry(interactions(row, "fsii", order), (1, 2)) for row in np.eye(16)]
    np.testing.assert_allclose(table.grad, expected, atol=1e-14)


def test_precision_is_kept() -> None:
    assert interactions(game(5, 0).astype(np.float32), order=3).dtype == np.float32


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], "siii"), r"unknown interaction index 'siii'.*Did you mean 'sii'"),
        (([0, 1], "sii", 0), "order 0 was given; expected a whole number from 1"),
        (([0, 1], "sii", 1.5), "order 1.5"),
        (([0, math.nan, 0, 0, 0, 0, 0, 0], "sii"), r"coalition \{0\} is not finite"),
        (([0, math.inf, 0, 0], "stii"), r"coalition \{0\} is not finite"),
        (([0, math.inf, 0, 0, 0, 0, 0, 0], "sii"), r"coalition \{0\} is not finite"),
    ],
)
def test_what_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        interactions(*arguments)
