"""Which coalitions to evaluate: pairs (S, its complement) without replacement, and antithetic orders.

Every coalition and every order has random numbers of its own (a counter put through the splitmix64 mixer), so the
number of threads never matters, and a longer design starts with a shorter one's random numbers.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
from numba import njit

from macredit.rows import FloatN, IntN
from macredit.seeds import generator
from macredit.values.answers import BoolCN, nothing

WordsCW = npt.NDArray[np.uint64]
"""uint64[C, W]: one coalition a row, player i is bit i % 64 of word i // 64."""

MIDDLE = 0.5
"""Share of the middle size, which is its own complement and so has half as many pairs."""
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_U1, _U6, _U27, _U30, _U31, _U32, _U63 = (np.uint64(k) for k in (1, 6, 27, 30, 31, 32, 63))


def pairs_in_all(n: int) -> int:
    """Pairs (S, complement) besides (∅, N): 2^(n−1) − 1."""
    return (1 << (n - 1)) - 1


def paired(n: int, pairs: int, seed: int) -> BoolCN:
    """One member, the smaller, of ``pairs`` different pairs (S, complement): equally many of each size.

    Equal counts a size are the leverage scores of the regression on single players (Musco and Witter 2025,
    arXiv 2410.01917). A size whose pairs run out is taken whole and its share goes to the others. Any first part is
    itself such a sample.

    Args:
        n: players.
        pairs: how many, at most 2^(n−1) − 1.
        seed: fixes the sample.

    Returns:
        bool[pairs, n]
    """
    if not pairs:
        return nothing(n)
    key, quota, most = _key("pairs", seed), quotas(n, pairs), rooms(n)
    by_size = [_of_size(n, size, quota[size], most[size], key) for size in range(1, len(quota))]
    return unpacked(np.concatenate(by_size)[_in_turn(n, quota, key)], n)


def interleaved(size: IntN, n: int, seed: int) -> IntN:
    """A random order of pairs in which any first part holds each size of the smaller member equally often."""
    order = generator("rows", seed).permutation(len(size))
    order = order[np.argsort(size[order].astype(np.uint16), kind="stable")]  # two bytes are sorted by their digits
    return order[_in_turn(n, np.bincount(size, minlength=n // 2 + 1), _key("turns", seed))]


def orders(n: int, first: int, count: int, seed: int) -> IntN:
    """int[count, n]: random orders number ``first`` … of an endless list; each odd one is the one before it reversed.

    Antithetic pairs (Mitchell et al. 2022, arXiv 2104.12199): both halves of a pair are uniform, their errors oppose.
    """
    return _orders(n, first, count, _key("orders", seed))


def prefixes(order_PN: IntN) -> BoolCN:
    """bool[P·(n+1), n]: the coalitions along each order, from nobody to everybody."""
    count, n = order_PN.shape
    return _prefixes(order_PN).reshape(count * (n + 1), n)


def unpacked(words: WordsCW, n: int) -> BoolCN:
    """bool[C, n] of packed coalitions."""
    return np.unpackbits(words.view(np.uint8), axis=1, count=n, bitorder="little").view(np.bool_)


def rooms(n: int) -> FloatN:
    """float[n // 2 + 1]: how many pairs have a smaller member of each size, infinite where it does not fit."""
    out = [1.0]
    for size in range(1, n // 2 + 1):
        out.append(out[-1] * (n - size + 1) / size)
    if n % 2 == 0:
        out[-1] /= 2
    return np.array(out)


def quotas(n: int, pairs: int) -> IntN:
    """int[n // 2 + 1]: pairs of each size of the smaller member, as equal as the number of pairs there are allows."""
    most, share = rooms(n), np.ones(n // 2 + 1)
    if n % 2 == 0:
        share[-1] = MIDDLE
    quota = np.zeros(len(most))
    left, weight = float(pairs), float(share[1:].sum())
    for size in range(1, len(most)):  # the larger a size, the more room it has
        quota[size] = min(most[size], left * share[size] / weight)
        left, weight = left - quota[size], weight - share[size]
    whole = np.floor(quota + 1e-9).astype(np.int64)
    whole[0] = 0
    rest = np.argsort(whole - quota, kind="stable")[: pairs - whole.sum()]  # the largest parts that were cut off
    whole[rest] += 1
    return whole


def _of_size(n: int, size: int, count: int, most: float, key: np.uint64) -> WordsCW:
    """``count`` different coalitions of one size in random order, of each pair at most one, of ``most`` there are."""
    if 2 * count <= most:
        return _subsets(n, size, count, key)
    among = n - 1 if 2 * size == n else n  # of the middle size, the member without the last player
    order = _shuffled(int(most), size, key)
    return _every(n, among, size, len(order))[order[:count]]


@lru_cache(maxsize=64)
def _key(name: str, seed: int) -> np.uint64:
    return np.uint64(generator(name, seed).integers(2**63))


@njit(cache=True)
def _mixed(x: np.uint64) -> np.uint64:
    """Splitmix64: an evenly spread 64-bit number from a counter (Steele, Lea and Flood 2014)."""
    x = (x ^ (x >> _U30)) * _MIX1
    x = (x ^ (x >> _U27)) * _MIX2
    return x ^ (x >> _U31)


@njit(cache=True)
def _below(bits: np.uint64, bound: int) -> np.uint64:
    """0 … bound − 1 from 64 random bits."""
    return ((bits >> _U32) * np.uint64(bound)) >> _U32


@njit(cache=True)
def _shuffle(row: IntN, state: np.uint64) -> None:
    """Fisher and Yates's shuffle, in place."""
    for i in range(len(row) - 1, 0, -1):
        state += _GAMMA
        j = np.int64(_below(_mixed(state), i + 1))
        row[i], row[j] = row[j], row[i]


@njit(cache=True)
def _shuffled(count: int, size: int, key: np.uint64) -> IntN:
    """int[count]: a random order for coalitions of one size."""
    order = np.arange(count)
    _shuffle(order, _mixed(key ^ _mixed(np.uint64(size))))
    return order


@njit(cache=True)
def _in_turn(n: int, quota: IntN, key: np.uint64) -> IntN:
    """An order of pairs that stand by size: in each round one of every size in random order, the middle every other."""
    first = np.cumsum(quota) - quota
    out = np.empty(quota.sum(), np.int64)
    done = number = 0
    while done < len(out):
        begun = done
        for size in range(len(quota)):
            at = number
            if 2 * size == n:  # of two rounds one by lot
                at = number // 2
                if _below(_mixed(key ^ _mixed(np.uint64(at))), 2) != np.uint64(number % 2):
                    continue
            if at < quota[size]:
                out[done] = first[size] + at
                done += 1
        _shuffle(out[begun:done], _mixed(key + np.uint64(number) * _GAMMA))
        number += 1
    return out


@njit(cache=True)
def _subsets(n: int, size: int, count: int, key: np.uint64) -> WordsCW:
    """The first ``count`` different subsets of a stream (Floyd's method), found again through a hash table.

    Of the middle size each pair counts once, by its member without the last player.
    """
    width = (n + 63) // 64
    out = np.zeros((count, width), np.uint64)
    capacity = 16
    while capacity < 2 * count:
        capacity *= 2
    slots = np.zeros(capacity, np.int32)
    start = _mixed(key ^ _mixed(np.uint64(size)))
    last = np.uint64(n - 1)
    kept = 0
    attempt = np.uint64(0)
    while kept < count:
        row = out[kept]
        row[:] = 0
        state = _mixed(start + attempt * _GAMMA)
        attempt += _U1
        for j in range(n - size, n):
            state += _GAMMA
            chosen = _below(_mixed(state), j + 1)
            if (row[chosen >> _U6] >> (chosen & _U63)) & _U1:
                chosen = np.uint64(j)
            row[chosen >> _U6] |= _U1 << (chosen & _U63)
        if 2 * size == n and (row[last >> _U6] >> (last & _U63)) & _U1:
            for player in range(n):
                row[player >> 6] ^= _U1 << np.uint64(player & 63)
        slot = np.uint64(0)
        for w in range(width):
            slot = _mixed(slot ^ row[w])
        place = np.int64(slot & np.uint64(capacity - 1))
        while slots[place] and (out[slots[place] - 1] != row).any():
            place = (place + 1) % capacity
        if slots[place] == 0:
            kept += 1
            slots[place] = kept
    return out


@njit(cache=True)
def _every(n: int, among: int, size: int, count: int) -> WordsCW:
    """All ``count`` coalitions of one size among the first players, in lexicographic order."""
    out = np.zeros((count, (n + 63) // 64), np.uint64)
    chosen = np.arange(size)
    for row in out:
        for player in chosen:
            row[player >> 6] |= _U1 << np.uint64(player & 63)
        i = size - 1
        while i >= 0 and chosen[i] == among - size + i:
            i -= 1
        if i >= 0:
            chosen[i] += 1
            for j in range(i + 1, size):
                chosen[j] = chosen[j - 1] + 1
    return out


@njit(cache=True)
def _orders(n: int, first: int, count: int, key: np.uint64) -> IntN:
    out = np.empty((count, n), np.int64)
    for p in range(count):
        number = first + p
        state = _mixed(key + np.uint64(number // 2) * _GAMMA)
        row = out[p]
        for i in range(n):
            row[i] = i
        _shuffle(row, state)
        if number % 2:
            row[:] = row[::-1].copy()
    return out


@njit(cache=True)
def _prefixes(order_PN: IntN) -> npt.NDArray[np.bool_]:
    count, n = order_PN.shape
    out = np.zeros((count, n + 1, n), np.bool_)
    for p in range(count):
        for i in range(n):
            for j in range(i + 1, n + 1):
                out[p, j, order_PN[p, i]] = True
    return out
