"""Compiled sums over the coalitions of every pair of players, in one read of the table; see ``kernels``."""

from __future__ import annotations

from typing import cast

import numpy as np
from numba import prange

from macredit.rows import FloatN
from macredit.values.kernels import CHUNK, THREADS_FROM, compiled, count_bits, fold, frozen, run

MOST_CHUNKS = 7
"""2**MOST_CHUNKS chunks at most: each has n² results."""


def pairs(worths: FloatN, weights: tuple[FloatN, ...], centre: float) -> FloatN:
    """Σ_T c_2 x(T) over T ⊇ {i, j}, + Σ c_1 x over T ∋ i, + the same over T ∋ j, + Σ c_0 x over all T; x = v − centre.

    Args:
        worths: float[2**n], n ≥ 3.
        weights: c_0, c_1, c_2 by the size of T, each as :func:`weight_rows`.
        centre: see :func:`singles`.

    Returns:
        float64[n, n]; only the entries i < j are meant.
    """
    n = len(worths).bit_length() - 1
    bits = min(n, max(CHUNK, n - MOST_CHUNKS))
    parts = np.zeros((1 << (n - bits), n + 1, n + 2))
    run(_serial, _parallel, n >= THREADS_FROM, frozen(worths), *weights, centre, bits, parts)
    _merge(parts, bits)
    both, one, everything = parts[0, :n, :n], parts[0, :n, n + 1], parts[0, n, 0]
    return cast(FloatN, both + one[:, None] + one + everything)


@compiled()
def _chunk(worths: FloatN, rows0: FloatN, rows1: FloatN, rows2: FloatN, centre: float, bits: int, out: FloatN) -> None:
    """``out``: pairs above the diagonal; column n the single sums of weights 2, column n + 1 those of weights 1.

    Their totals stand in row n, whose first entry is the total of weights 0.
    """
    n, size = out.shape[0] - 1, rows0.shape[1]
    low = count_bits(size - 1)
    ones, totals1, totals2 = np.zeros(size), np.empty(len(worths) // size), np.empty(len(worths) // size)
    merged, uppers = np.empty((bits - low + 2, size)), np.zeros((bits - low, size))
    for b in range(len(totals1)):
        p = count_bits(b)
        block = worths[b * size : (b + 1) * size]
        total0, totals1[b], totals2[b] = _block(block, rows0[p], rows1[p], rows2[p], centre, ones, merged[0])
        out[n, 0] += total0
        _carry(merged, uppers, b)
    single = np.empty(n)
    for i in range(bits - low):
        out[low + i, n] = fold(uppers[i], single[:low])
        out[:low, low + i] = single[:low]
    _fold_pairs(totals2, low, out)
    _fold_pairs(merged[0].copy(), 0, out)
    out[n, n] = fold(merged[0], single[:low])
    out[:low, n] = single[:low]
    fold(ones, single[:low])
    out[n, n + 1] = fold(totals1, single[low:bits])
    out[:bits, n + 1] = single[:bits]


@compiled()
def _block(
    worths: FloatN, r0: FloatN, r1: FloatN, r2: FloatN, centre: float, ones: FloatN, both: FloatN
) -> tuple[float, float, float]:
    """One block: weights 1 are added to ``ones``, weights 2 written to ``both``; returns the sum of each weighting."""
    total0, total1, total2 = 0.0, 0.0, 0.0
    for e in range(len(both)):
        x = worths[e] - centre
        one, two = r1[e] * x, r2[e] * x
        total0 += r0[e] * x
        total1 += one
        total2 += two
        ones[e] += one
        both[e] = two
    return total0, total1, total2


@compiled()
def _carry(merged: FloatN, uppers: FloatN, block: int) -> None:
    """Merges block after block like a binary counter: row i of ``uppers`` sums the blocks whose index has bit i.

    Row 0 of ``merged`` is the new block; row i + 1 waits for its neighbour 2**i blocks on.
    """
    level = 0
    while block >> level & 1:
        upper, lower, new = uppers[level], merged[level + 1], merged[0]
        for e in range(len(new)):
            upper[e] += new[e]
            new[e] += lower[e]
        level += 1
    merged[level + 1] = merged[0]


@compiled()
def _fold_pairs(values: FloatN, first: int, out: FloatN) -> None:
    """out[first + i, first + j] = sum of the entries whose index has bits i < j. ``values`` is used up."""
    half = len(values)
    for j in range(count_bits(len(values) - 1) - 1, 0, -1):
        half >>= 1
        upper = values[half : 2 * half].copy()
        for e in range(half):
            values[e] += upper[e]
        column = np.empty(j)
        fold(upper, column)
        out[first : first + j, first + j] = column


@compiled()
def _merge(parts: FloatN, bits: int) -> None:
    """Merges neighbours as in ``kernels``: with the new player i, single sums of the upper half become pairs."""
    n, step = parts.shape[1] - 1, 1
    for i in range(bits, n):
        for c in range(0, parts.shape[0], 2 * step):
            upper = parts[c + step]
            parts[c] += upper
            parts[c, :i, i] = upper[:i, n]
            parts[c, i, n:] = upper[n, n:]
        step *= 2


@compiled()
def _serial(
    worths: FloatN, rows0: FloatN, rows1: FloatN, rows2: FloatN, centre: float, bits: int, parts: FloatN
) -> None:
    for c in range(parts.shape[0]):
        p = count_bits(c)
        _chunk(worths[c << bits : (c + 1) << bits], rows0[p:], rows1[p:], rows2[p:], centre, bits, parts[c])


@compiled(parallel=True)
def _parallel(
    worths: FloatN, rows0: FloatN, rows1: FloatN, rows2: FloatN, centre: float, bits: int, parts: FloatN
) -> None:
    for t in prange(parts.shape[0]):
        c = np.int64(t)
        p = count_bits(c)
        _chunk(worths[c << bits : (c + 1) << bits], rows0[p:], rows1[p:], rows2[p:], centre, bits, parts[c])
