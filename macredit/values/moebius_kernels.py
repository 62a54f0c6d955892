"""The compiled Möbius transform: blocks that stay in the cache, then the players above them a few at a time."""

from __future__ import annotations

import numpy as np
from numba import prange

from macredit.rows import FloatN
from macredit.values.kernels import THREADS_FROM, Int, compiled, count_bits, frozen, run

NEAR = 16
"""Players whose bits are transformed within a block of 2**NEAR worths, which stays in the cache."""
FAR = 10
"""Players whose bits are transformed together, above those."""
STRIP = 64
"""Neighbouring worths moved together in that."""


def transformed(values: FloatN, sign: int) -> FloatN:
    """Σ_{T⊆S} sign^|S∖T| values(T) for every S: the Möbius transform (sign −1) or its inverse (+1).

    Args:
        values: float64[2**n], n ≥ 3.
        sign: −1 or 1.

    Returns:
        A new array float64[2**n].
    """
    out = np.empty_like(values)
    run(_serial, _parallel, len(values) >= 1 << THREADS_FROM, frozen(values), out, sign)
    return out


@compiled()
def _near(values: FloatN, out: FloatN, sign: int) -> None:
    """The transform of one block by all its bits."""
    for start in range(0, len(out), 8):
        x, y = values[start : start + 8], out[start : start + 8]
        y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7] = _three_bits(
            x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], sign
        )
    _upwards(out, 8, sign)


@compiled()
def _upwards(values: FloatN, half: int, sign: int) -> None:
    """The transform in place by the bits from ``half`` up: three at a time, then one by one."""
    while 4 * half < len(values):
        for start in range(0, len(values), 8 * half):
            y0, y1 = values[start : start + half], values[start + half : start + 2 * half]
            y2, y3 = values[start + 2 * half : start + 3 * half], values[start + 3 * half : start + 4 * half]
            y4, y5 = values[start + 4 * half : start + 5 * half], values[start + 5 * half : start + 6 * half]
            y6, y7 = values[start + 6 * half : start + 7 * half], values[start + 7 * half : start + 8 * half]
            for e in range(half):
                _, y1[e], y2[e], y3[e], y4[e], y5[e], y6[e], y7[e] = _three_bits(
                    y0[e], y1[e], y2[e], y3[e], y4[e], y5[e], y6[e], y7[e], sign
                )
        half *= 8
    while half < len(values):
        for start in range(0, len(values), 2 * half):
            lower, upper = values[start : start + half], values[start + half : start + 2 * half]
            for e in range(half):
                upper[e] += sign * lower[e]
        half *= 2


@compiled()
def _three_bits(
    x0: float, x1: float, x2: float, x3: float, x4: float, x5: float, x6: float, x7: float, sign: int
) -> tuple[float, float, float, float, float, float, float, float]:
    """The transform of eight numbers."""
    x1, x3, x5, x7 = x1 + sign * x0, x3 + sign * x2, x5 + sign * x4, x7 + sign * x6
    x2, x3, x6, x7 = x2 + sign * x0, x3 + sign * x1, x6 + sign * x4, x7 + sign * x5
    return x0, x1, x2, x3, x4 + sign * x0, x5 + sign * x1, x6 + sign * x2, x7 + sign * x3


@compiled()
def _far(out: FloatN, strip: Int, bit: int, count: int, sign: int) -> None:
    """The transform of one strip by the bits from ``bit`` up to ``bit + count``.

    It is gathered first: so many rows at a distance of a power of two would drive each other out of the cache.
    """
    below, above = strip * STRIP & ((1 << bit) - 1), strip * STRIP >> bit
    first = (above << (bit + count)) + below
    gathered = np.empty(STRIP << count)
    for j in range(1 << count):
        start = first + (j << bit)
        gathered[j * STRIP : (j + 1) * STRIP] = out[start : start + STRIP]
    _upwards(gathered, STRIP, sign)
    for j in range(1 << count):
        start = first + (j << bit)
        out[start : start + STRIP] = gathered[j * STRIP : (j + 1) * STRIP]


@compiled()
def _serial(values: FloatN, out: FloatN, sign: int) -> None:
    near = min(len(out), 1 << NEAR)
    for start in range(0, len(out), near):
        _near(values[start : start + near], out[start : start + near], sign)
    bit = NEAR
    while 1 << bit < len(out):
        count = min(FAR, count_bits(len(out) - 1) - bit)
        for strip in range((len(out) >> count) // STRIP):
            _far(out, strip, bit, count, sign)
        bit += count


@compiled(parallel=True)
def _parallel(values: FloatN, out: FloatN, sign: int) -> None:
    near = min(len(out), 1 << NEAR)
    for t in prange(len(out) // near):
        start = np.int64(t) * near
        _near(values[start : start + near], out[start : start + near], sign)
    bit = NEAR
    while 1 << bit < len(out):
        count = min(FAR, count_bits(len(out) - 1) - bit)
        for t in prange((len(out) >> count) // STRIP):
            _far(out, np.int64(t), bit, count, sign)
        bit += count
