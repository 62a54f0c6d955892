"""Compiled sums over the coalitions of every pair of players, in one read of the table; see ``kernels``."""

from __future__ import annotations

import numpy as np
from numba import prange

from macredit.rows import FloatN
from macredit.values.kernels import CHUNK, THREADS_FROM, compiled, count_bits, fold, frozen, run

MOST_CHUNKS = 7
"""2**MOST_CHUNKS chunks at most: each has n² results."""


def pairs(worths: FloatN, rows: FloatN, centre: float) -> tuple[FloatN, float]:
    """Σ_T c_2 x(T) over T ⊇ {i, j}, + Σ c_1 x over T ∋ i, + the same over T ∋ j, + Σ c_0 x over all T; x = v − centre.

    Args:
        worths: float[2**n], n ≥ 3.
        rows: float[n−low+1, 4, 2**low], the weights c_0, c_1, c_2 and b by the size of T, as of :func:`weight_rows`.
        centre: see :func:`singles`.

    Returns:
        Symmetric float64[n, n], only the entries i ≠ j are meant, and Σ b x over all T.
    """
    n = len(worths).bit_length() - 1
    bits = min(n, max(CHUNK, n - MOST_CHUNKS))
    parts = np.zeros((1 << (n - bits), n + 1, n + 2))
    run(_serial, _parallel, n >= THREADS_FROM, frozen(worths), rows, centre, bits, parts)
    if len(parts) > 1:
        _merge(parts, bits)
    both, one, everything, base = parts[0, :n, :n], parts[0, :n, n + 1], parts[0, n, 0], parts[0, n, 1]
    return both + both.T + (one[:, None] + one) + everything, base


@compiled()
def _chunk(worths: FloatN, rows: FloatN, centre: float, bits: int, out: FloatN) -> None:
    """``out``: pairs above the diagonal; column n the single sums of weights 2, column n + 1 those of weights 1.

    Their totals stand in row n, whose first entries are the totals of weights 0 and b.
    """
    n, size = out.shape[0] - 1, rows.shape[2]
    low = count_bits(size - 1)
    ones, totals1, totals2 = np.zeros(size), np.empty(len(worths) // size), np.empty(len(worths) // size)
    merged, uppers = np.empty((bits - low, size)), np.zeros((bits - low, size))
    for g in range(len(worths) // (4 * size)):
        here = slice(4 * g, 4 * g + 4)
        four, weights = worths[4 * g * size : 4 * (g + 1) * size], rows[count_bits(g) :]
        out[n, 0] += _ones(four, weights, centre, ones, totals1[here])
        out[n, 1] += _twos(four, weights, centre, merged[0], uppers, totals2[here])
        _carry(merged, uppers[2:], g)
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
def _ones(worths: FloatN, rows: FloatN, centre: float, ones: FloatN, totals: FloatN) -> float:
    """Adds four neighbouring blocks of weights 1 to ``ones``; returns the total of weights 0."""
    total, total0, total1, total2, total3 = 0.0, 0.0, 0.0, 0.0, 0.0
    size = len(ones)
    v0, v1, v2, v3 = worths[:size], worths[size : 2 * size], worths[2 * size : 3 * size], worths[3 * size :]
    r0, r1, r2 = rows[0, 1], rows[1, 1], rows[2, 1]
    e0, e1, e2 = rows[0, 0], rows[1, 0], rows[2, 0]
    for e in range(size):
        x0, x1, x2, x3 = v0[e] - centre, v1[e] - centre, v2[e] - centre, v3[e] - centre
        total += e0[e] * x0 + e1[e] * (x1 + x2) + e2[e] * x3
        y0, y1, y2, y3 = r0[e] * x0, r1[e] * x1, r1[e] * x2, r2[e] * x3
        total0 += y0
        total1 += y1
        total2 += y2
        total3 += y3
        ones[e] += (y0 + y1) + (y2 + y3)
    totals[0], totals[1], totals[2], totals[3] = total0, total1, total2, total3
    return total


@compiled()
def _twos(worths: FloatN, rows: FloatN, centre: float, both: FloatN, uppers: FloatN, totals: FloatN) -> float:
    """``both`` becomes the sum of four neighbouring blocks of weights 2; returns the total of weights b.

    Rows 0 and 1 of ``uppers`` sum the blocks whose index has that bit.
    """
    total, total0, total1, total2, total3 = 0.0, 0.0, 0.0, 0.0, 0.0
    size = len(both)
    v0, v1, v2, v3 = worths[:size], worths[size : 2 * size], worths[2 * size : 3 * size], worths[3 * size :]
    r0, r1, r2 = rows[0, 2], rows[1, 2], rows[2, 2]
    e0, e1, e2 = rows[0, 3], rows[1, 3], rows[2, 3]
    upper0, upper1 = uppers[0], uppers[1]
    for e in range(size):
        x0, x1, x2, x3 = v0[e] - centre, v1[e] - centre, v2[e] - centre, v3[e] - centre
        total += e0[e] * x0 + e1[e] * (x1 + x2) + e2[e] * x3
        y0, y1, y2, y3 = r0[e] * x0, r1[e] * x1, r1[e] * x2, r2[e] * x3
        total0 += y0
        total1 += y1
        total2 += y2
        total3 += y3
        upper0[e] += y1 + y3
        upper1[e] += y2 + y3
        both[e] = (y0 + y1) + (y2 + y3)
    totals[0], totals[1], totals[2], totals[3] = total0, total1, total2, total3
    return total


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
def _serial(worths: FloatN, rows: FloatN, centre: float, bits: int, parts: FloatN) -> None:
    for c in range(parts.shape[0]):
        _chunk(worths[c << bits : (c + 1) << bits], rows[count_bits(c) :], centre, bits, parts[c])


@compiled(parallel=True)
def _parallel(worths: FloatN, rows: FloatN, centre: float, bits: int, parts: FloatN) -> None:
    for t in prange(parts.shape[0]):
        c = np.int64(t)
        _chunk(worths[c << bits : (c + 1) << bits], rows[count_bits(c) :], centre, bits, parts[c])
