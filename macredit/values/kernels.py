"""Compiled sums over all coalitions: one sequential read of the table, the same result for any number of threads.

Every linear value needs, for each player i, the sum of c(|S|)·v(S) over the coalitions S that contain i. *Folding*
gives all n of them in O(2^n): add up the upper half (the coalitions with the last player), then add it onto the lower
half and repeat. The table is read in chunks of fixed size, each folded on its own, and the chunks are merged in pairs:
tree summation, so errors stay at rounding. Eight blocks are folded at once, in registers.

Importing this module imports Numba; the rest of the package does it when the first table is worked on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import prange

from macredit.rows import FloatN

LOW, LOW_IN_MEMORY, CACHED = 8, 9, 21
"""2**LOW neighbouring worths share one row of weights; longer runs pay for tables beyond the cache."""
CHUNK = 16
"""2**CHUNK worths are folded by one thread; more where there would be more than 2**MOST_CHUNKS chunks."""
MOST_CHUNKS = 10
THREADS_FROM = 19
"""Players of a table, or 2**THREADS_FROM worths of many, from which starting threads costs less than it saves."""

_THREADS = threading.Lock()
"""Numba's simplest threading layer must not be entered twice."""
_PROCESS = os.getpid()
"""A forked child may not use the threads of its parent."""

Int = int | np.int64
_F = TypeVar("_F", bound=Callable[..., Any])


def compiled(parallel: bool = False) -> Callable[[_F], _F]:
    """Numba's compiler with sums that may be reordered, but with NaN and infinity kept."""
    jit = numba.njit(cache=True, nogil=True, parallel=parallel, fastmath={"reassoc", "nsz", "contract"})
    return cast(Callable[[_F], _F], jit)


def run(serial: Callable[..., None], parallel: Callable[..., None], large: bool, *arguments: Any) -> None:
    """Calls the kernel that pays; both give the same numbers."""
    if large and os.getpid() == _PROCESS:
        with _THREADS:
            parallel(*arguments)
    else:
        serial(*arguments)


def singles(worths: FloatN, rows: FloatN, centre: float) -> FloatN:
    """Σ_{S∋i} c(|S|) (v(S) − centre) for every player i, and in entry n the sum over all S.

    Args:
        worths: float[2**n], n ≥ 3; float32 is summed in float64.
        rows: float[n−low+1, 2**low] weights of :func:`weight_rows`.
        centre: subtracted from every worth, so that a large common offset costs no digits.

    Returns:
        float64[n + 1].
    """
    n = len(worths).bit_length() - 1
    bits = min(n, max(CHUNK, n - MOST_CHUNKS))
    parts = np.zeros((1 << (n - bits), n + 1))
    run(_serial, _parallel, n >= THREADS_FROM, frozen(worths), rows, centre, bits, parts)
    if len(parts) > 1:
        _merge(parts, bits)
    return cast(FloatN, parts[0])


def weight_rows(weights: FloatN) -> FloatN:
    """c(p + |low part|) for the low part of every coalition of a block, one row for each number p of players above it.

    Args:
        weights: float[n + 1] by coalition size, n ≥ 3.
    """
    n = len(weights) - 1
    low = min(n - 3, LOW if n <= CACHED else LOW_IN_MEMORY)
    sizes = np.bitwise_count(np.arange(1 << low))
    return weights[np.arange(n - low + 1)[:, None] + sizes]


def frozen(worths: FloatN) -> FloatN:
    """A read-only view: memory maps are read-only, and one kind of array needs one compiled kernel."""
    view = worths.view()
    view.flags.writeable = False
    return view


@compiled()
def count_bits(bits: Int) -> int:
    """Number of set bits."""
    x, count = np.int64(bits), 0
    while x:
        x &= x - 1
        count += 1
    return count


@compiled()
def fold(values: FloatN, out: FloatN) -> float:
    """out[i] = sum of the entries whose index has bit i; returns the sum of all. ``values`` is used up."""
    half = len(values)
    for i in range(len(out) - 1, -1, -1):
        half >>= 1
        upper = 0.0
        for j in range(half):
            upper += values[half + j]
            values[j] += values[half + j]
        out[i] = upper
    return float(values[0])


@compiled()
def _eight(worths: FloatN, rows: FloatN, centre: float, sums: FloatN) -> tuple[float, float, float, float]:
    """Folds eight neighbouring blocks onto ``sums``; returns their total and the sums of bits 0, 1 and 2."""
    total, bit0, bit1, bit2 = 0.0, 0.0, 0.0, 0.0
    size = len(sums)
    r0, r1, r2, r3 = rows[0], rows[1], rows[2], rows[3]
    v0, v1, v2, v3 = worths[:size], worths[size : 2 * size], worths[2 * size : 3 * size], worths[3 * size : 4 * size]
    v4, v5, v6 = worths[4 * size : 5 * size], worths[5 * size : 6 * size], worths[6 * size : 7 * size]
    v7 = worths[7 * size :]
    for e in range(size):
        x1, x3, x5, x7 = v1[e] - centre, v3[e] - centre, v5[e] - centre, v7[e] - centre
        sum01 = r0[e] * (v0[e] - centre) + r1[e] * x1
        sum23 = r1[e] * (v2[e] - centre) + r2[e] * x3
        sum45 = r1[e] * (v4[e] - centre) + r2[e] * x5
        sum67 = r2[e] * (v6[e] - centre) + r3[e] * x7
        bit0 += r1[e] * x1 + r2[e] * x3 + r2[e] * x5 + r3[e] * x7
        bit1 += sum23 + sum67
        bit2 += sum45 + sum67
        column = (sum01 + sum23) + (sum45 + sum67)
        sums[e] += column
        total += column
    return total, bit0, bit1, bit2


@compiled()
def _chunk(worths: FloatN, rows: FloatN, centre: float, bits: int, out: FloatN) -> None:
    """``out`` of one chunk of 2**bits worths; ``rows`` start at the number of players outside the chunk."""
    size = rows.shape[1]
    low = count_bits(size - 1)
    sums, totals = np.zeros(size), np.empty(len(worths) // (8 * size))
    for g in range(len(totals)):
        first = g * 8 * size
        totals[g], bit0, bit1, bit2 = _eight(worths[first : first + 8 * size], rows[count_bits(g) :], centre, sums)
        out[low] += bit0
        out[low + 1] += bit1
        out[low + 2] += bit2
    fold(sums, out[:low])
    out[-1] = fold(totals, out[low + 3 : bits])


@compiled()
def _merge(parts: FloatN, bits: int) -> None:
    """Merges neighbouring chunks, then neighbouring pairs, …: row 0 becomes the result of the whole table."""
    step = 1
    for i in range(bits, parts.shape[1] - 1):
        for c in range(0, parts.shape[0], 2 * step):
            parts[c] += parts[c + step]
            parts[c, i] = parts[c + step, -1]
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
