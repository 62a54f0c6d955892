"""Compiled semivalues of many small games side by side."""

from __future__ import annotations

import numpy as np
from numba import prange

from macredit.rows import FloatN
from macredit.values.kernels import THREADS_FROM, Int, compiled, count_bits, frozen, run
from macredit.values.table import TYPICAL

TILE = 2048
"""Games of a batch that are summed side by side."""


def semivalue_batch(worths: FloatN, inside: FloatN, outside: FloatN) -> FloatN:
    """Σ_{S∋i} inside[|S|] v(S) − Σ_S outside[|S|] v(S) for every player i and game, in the precision of ``worths``.

    Args:
        worths: float[2**n, B], n ≥ 3, coalition-major.
        inside: float[n + 1].
        outside: float[n + 1].

    Returns:
        float[n, B].
    """
    values = np.empty((len(inside) - 1, worths.shape[1]), worths.dtype)
    inside, outside = inside.astype(worths.dtype), outside.astype(worths.dtype)
    run(_serial, _parallel, worths.size >= 1 << THREADS_FROM, frozen(worths), inside, outside, values)
    return values


@compiled()
def _tile(worths: FloatN, inside: FloatN, outside: FloatN, first: Int, last: Int, values: FloatN) -> None:
    """The games ``first`` … ``last`` − 1, eight coalitions at a time."""
    n, games = values.shape[0], last - first
    sums, base = np.zeros((n, games), worths.dtype), np.zeros(games, worths.dtype)
    totals, centres = np.empty(games, worths.dtype), np.empty(games, worths.dtype)
    last_row, half = worths.shape[0] - 1, worths.dtype.type(0.5)
    one, other = worths[TYPICAL[0] & last_row, first:last], worths[TYPICAL[1] & last_row, first:last]
    for j in range(games):
        centres[j] = one[j] * half + other[j] * half
    for g in range(worths.shape[0] >> 3):
        size = count_bits(g)
        _eight_games(worths, 8 * g, first, inside[size:], outside[size:], centres, sums, base, totals)
        for i in range(3, n):
            if g >> (i - 3) & 1:
                with_i = sums[i]
                for j in range(games):
                    with_i[j] += totals[j]
    for i in range(n):
        with_i, value = sums[i], values[i, first:last]
        for j in range(games):
            value[j] = with_i[j] - base[j]


@compiled()
def _eight_games(
    worths: FloatN,
    row: int,
    first: Int,
    c: FloatN,
    o: FloatN,
    centres: FloatN,
    sums: FloatN,
    base: FloatN,
    totals: FloatN,
) -> None:
    """Folds the worths of eight coalitions from ``row`` on; ``totals`` becomes their weighted sum."""
    end = first + len(totals)
    v0, v1, v2, v3 = (
        worths[row, first:end],
        worths[row + 1, first:end],
        worths[row + 2, first:end],
        worths[row + 3, first:end],
    )
    v4, v5, v6, v7 = (
        worths[row + 4, first:end],
        worths[row + 5, first:end],
        worths[row + 6, first:end],
        worths[row + 7, first:end],
    )
    bit0, bit1, bit2 = sums[0], sums[1], sums[2]
    c0, c1, c2, c3 = c[0], c[1], c[2], c[3]
    o0, o1, o2, o3 = o[0], o[1], o[2], o[3]
    for j in range(len(totals)):
        x0, x1, x2, x3 = v0[j] - centres[j], v1[j] - centres[j], v2[j] - centres[j], v3[j] - centres[j]
        x4, x5, x6, x7 = v4[j] - centres[j], v5[j] - centres[j], v6[j] - centres[j], v7[j] - centres[j]
        base[j] += o0 * x0 + o1 * (x1 + x2 + x4) + o2 * (x3 + x5 + x6) + o3 * x7
        sum01, sum23 = c0 * x0 + c1 * x1, c1 * x2 + c2 * x3
        sum45, sum67 = c1 * x4 + c2 * x5, c2 * x6 + c3 * x7
        bit0[j] += c1 * x1 + c2 * (x3 + x5) + c3 * x7
        bit1[j] += sum23 + sum67
        bit2[j] += sum45 + sum67
        totals[j] = (sum01 + sum23) + (sum45 + sum67)


@compiled()
def _serial(worths: FloatN, inside: FloatN, outside: FloatN, values: FloatN) -> None:
    for first in range(0, worths.shape[1], TILE):
        _tile(worths, inside, outside, first, min(first + TILE, worths.shape[1]), values)


@compiled(parallel=True)
def _parallel(worths: FloatN, inside: FloatN, outside: FloatN, values: FloatN) -> None:
    for t in prange((worths.shape[1] + TILE - 1) // TILE):
        first = np.int64(t) * TILE
        _tile(worths, inside, outside, first, min(first + TILE, worths.shape[1]), values)
