"""Samples of pairs and orders: without repeats, equal by size, equal to their NumPy twins bit for bit."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macredit.values import designs
from macredit.values.answers import BoolCN, keys_of

MASK = (1 << 64) - 1


def mixed(x: int) -> int:
    """Splitmix64 in Python's integers."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def draws(start: int, count: int) -> np.ndarray:
    """The first random numbers of a stream, as 64-bit integers."""
    return np.array([mixed(start + 0x9E3779B97F4A7C15 * (k + 1) & MASK) for k in range(count)], np.uint64)


def below(bits: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    return ((bits >> np.uint64(32)) * bounds.astype(np.uint64) >> np.uint64(32)).astype(np.int64)


def twin_subsets(n: int, size: int, count: int, key: int) -> BoolCN:
    """Floyd's subsets, repeats and the second member of a pair left out."""
    start, attempt = mixed(key ^ mixed(size)), 0
    rows: list[np.ndarray] = []
    seen: set[bytes] = set()
    while len(rows) < count:
        state = mixed(start + attempt * 0x9E3779B97F4A7C15 & MASK)
        row = np.zeros(n, bool)
        for j, chosen in zip(range(n - size, n), below(draws(state, size), np.arange(n - size, n) + 1), strict=True):
            row[j if row[chosen] else chosen] = True
        if 2 * size == n and row[-1]:
            row = ~row
        attempt += 1
        if row.tobytes() not in seen:
            seen.add(row.tobytes())
            rows.append(row)
    return np.array(rows).reshape(count, n)


def twin_orders(n: int, first: int, count: int, key: int) -> np.ndarray:
    """Fisher and Yates's shuffle, each odd order the reverse of the one before it."""
    rows = []
    for number in range(first, first + count):
        row, bits = np.arange(n), draws(mixed(key + number // 2 * 0x9E3779B97F4A7C15 & MASK), n - 1)
        for i, j in zip(range(n - 1, 0, -1), below(bits, np.arange(n, 1, -1)), strict=True):
            row[[i, j]] = row[[j, i]]
        rows.append(row[::-1] if number % 2 else row)
    return np.array(rows)


@pytest.mark.parametrize(("n", "size", "count"), [(6, 3, 5), (9, 2, 17), (40, 13, 50), (64, 32, 20), (130, 60, 9)])
def test_subsets_equal_their_twin(n: int, size: int, count: int) -> None:
    words = designs._subsets(n, size, count, np.uint64(12345678901234567))
    np.testing.assert_array_equal(designs.unpacked(words, n), twin_subsets(n, size, count, 12345678901234567))


@pytest.mark.parametrize(("n", "among", "size"), [(5, 5, 2), (6, 5, 3), (70, 70, 2), (3, 3, 1)])
def test_every_coalition_of_a_size_equals_its_twin(n: int, among: int, size: int) -> None:
    rows = designs.unpacked(designs._every(n, among, size, math.comb(among, size)), n)
    expected = list(itertools.combinations(range(among), size))
    assert [tuple(np.flatnonzero(row)) for row in rows] == expected


@pytest.mark.parametrize(("n", "first", "count"), [(1, 0, 2), (5, 0, 6), (70, 3, 5)])
def test_orders_equal_their_twin(n: int, first: int, count: int) -> None:
    got = designs._orders(n, first, count, np.uint64(99))
    np.testing.assert_array_equal(got, twin_orders(n, first, count, 99))
    np.testing.assert_array_equal(designs.orders(n, 0, first + count, 4)[first:], designs.orders(n, first, count, 4))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.integers(0, 300), st.integers(0, 5))
def test_pairs_are_distinct_and_one_of_each(n: int, pairs: int, seed: int) -> None:
    pairs = min(pairs, designs.pairs_in_all(n))
    rows = designs.paired(n, pairs, seed)
    assert rows.shape == (pairs, n)
    assert (2 * rows.sum(axis=1) <= n).all()
    assert len(np.unique(keys_of(np.concatenate([rows, ~rows])))) == 2 * pairs


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 40), st.integers(0, 3000))
def test_quotas_are_equal_where_there_is_room(n: int, pairs: int) -> None:
    pairs = min(pairs, designs.pairs_in_all(n))
    quota = designs.quotas(n, pairs)
    room = np.array([0] + [math.comb(n, s) // (2 if 2 * s == n else 1) for s in range(1, n // 2 + 1)])
    assert quota.sum() == pairs
    assert (quota <= room).all()
    free = quota[1:][quota[1:] < room[1:]]
    whole = free[:-1] if n % 2 == 0 else free  # the middle size has half a share
    assert len(whole) == 0 or whole.max() - whole.min() <= 1


@pytest.mark.parametrize(("n", "quota"), [(7, [0, 5, 5, 5]), (8, [0, 4, 9, 9, 4]), (4, [0, 1, 3])])
def test_any_first_part_holds_each_size_in_turn(n: int, quota: list[int]) -> None:
    order = designs._in_turn(n, np.array(quota), np.uint64(5))
    assert sorted(order) == list(range(sum(quota)))
    size = np.repeat(np.arange(len(quota)), quota)[order]
    for size_of, count in enumerate(quota):
        at = order[size == size_of]
        np.testing.assert_array_equal(at, np.arange(count) + sum(quota[:size_of]))  # a size stays in its order
    for stop in range(len(size)):  # while nothing is used up, no size is a round ahead
        done = np.bincount(size[:stop], minlength=len(quota))
        whole = done[1 : (n + 1) // 2]
        if (done[1:] < np.array(quota)[1:]).all():
            assert whole.max() - whole.min() <= 1
            assert n % 2 or whole.min() - 2 <= 2 * done[-1] <= whole.min() + 2


def test_the_middle_size_comes_every_other_round_by_lot() -> None:
    early = [int(designs._in_turn(2, np.array([0, 2]), np.uint64(key))[0]) for key in range(20)]
    assert early == [0] * 20
    first = [
        int(np.flatnonzero(designs._in_turn(4, np.array([0, 2, 1]), np.uint64(key)) == 2)[0]) for key in range(400)
    ]
    # the one of the middle is in either of two rounds, at either end of it: places 0 and 1, or 1 and 2
    np.testing.assert_allclose(np.bincount(first, minlength=3) / 400, [1 / 4, 1 / 2, 1 / 4], atol=0.08)


def test_a_sample_of_one_size_is_fair() -> None:
    # 15 subsets of 2 of 6, 7 wanted each time: each player is in 7 · 2/6 = 7/3 of them on average
    samples = [designs._of_size(6, 2, 7, 15.0, np.uint64(seed)) for seed in range(400)]
    counts = np.mean([designs.unpacked(words, 6).sum(axis=0) for words in samples], axis=0)
    np.testing.assert_allclose(counts, 7 / 3, atol=0.2)


def packed(coalitions: BoolCN) -> designs.WordsCW:
    """uint64[C, ⌈n/64⌉] of coalitions."""
    octets = np.packbits(coalitions, axis=1, bitorder="little")
    words = np.zeros((len(octets), -(-octets.shape[1] // 8) * 8), np.uint8)
    words[:, : octets.shape[1]] = octets
    return words.view(np.uint64)


@pytest.mark.parametrize("n", [65, 200, 2000])
def test_many_players(n: int) -> None:
    rows = designs.paired(n, 3 * n // 2, 0)
    assert len(np.unique(keys_of(rows))) == len(rows)
    np.testing.assert_array_equal(designs.unpacked(packed(rows), n), rows)


def test_prefixes_by_hand() -> None:
    # order 2, 0, 1: {}, {2}, {0, 2}, {0, 1, 2}
    expected = [[0, 0, 0], [0, 0, 1], [1, 0, 1], [1, 1, 1]]
    np.testing.assert_array_equal(designs.prefixes(np.array([[2, 0, 1]])), expected)
