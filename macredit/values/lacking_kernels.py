"""Compiled sums of Π_{i lacking} q_i, one factor for each player that a set lacks, over the sets that two rows make.

``alike`` has two such sets, the players that two coalitions agree on (+) and the others (−). Otherwise there are four:
the members of both (+), of neither (+), of the first alone (−) and of the second alone (−). Coalitions are bytes of
eight players, as of :func:`packed`, and a table holds the product of every byte.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from macredit.rows import FloatN
from macredit.values.kernels import compiled, fold

Bytes = npt.NDArray[np.uint8]
"""uint8[X, ceil(n / 8)]."""


def packed(x: FloatN) -> Bytes:
    """Rows of ±1, float[X, n], as bytes: bit 0 is the first of eight players, set where x is +1."""
    return np.packbits(x > 0, axis=1, bitorder="little")


@compiled()
def _tables(q: FloatN) -> FloatN:
    """float[ceil(n / 8), 256]: the product over the players in each byte, 1 for bits beyond the last player."""
    out = np.ones((len(q) + 7 >> 3, 256))
    for i in range(8 * len(out)):
        bit, factor = 1 << (i & 7), q[i] if i < len(q) else 1.0
        for low in range(bit):
            out[i >> 3, low | bit] = out[i >> 3, low] * factor
    return out


@compiled()
def _products(tables: FloatN, x: Bytes, i: int, y: Bytes, alike: bool, out: FloatN) -> None:
    """``out``, float[4, ≥ Y]: the products for the sets that row i of x makes with each row of y.

    Where ``alike``, rows 0 and 2: what they agree on, the others. Else all four: both, neither, first and second alone.
    """
    for j in range(len(y)):
        p0, p1, p2, p3 = 1.0, 1.0, 1.0, 1.0
        for b in range(len(tables)):
            s, t = np.int64(x[i, b]), np.int64(y[j, b])
            if alike:
                p0 *= tables[b, s ^ t]
                p2 *= tables[b, 255 - (s ^ t)]
            else:
                p0 *= tables[b, 255 - (s & t)]
                p1 *= tables[b, s | t]
                p2 *= tables[b, (255 - s) | t]
                p3 *= tables[b, s | (255 - t)]
        out[0, j], out[1, j], out[2, j], out[3, j] = p0, p1, p2, p3


@compiled()
def add_between(x: Bytes, y: Bytes, q: FloatN, alike: bool, factor: float, out: FloatN) -> None:
    """Adds ``factor`` times the sum for every two rows to float[X, Y]."""
    tables, row = _tables(q), np.empty((4, len(y)))
    for i in range(len(x)):
        _add_row(tables, x, i, y, alike, factor, row, out[i])


@compiled()
def add_covariance(x: Bytes, q: FloatN, alike: bool, factor: float, out: FloatN) -> None:
    """Adds ``factor`` times the sum for every two rows of ``x`` to the lower triangle of float[X, X]."""
    tables, row = _tables(q), np.empty((4, len(x)))
    for i in range(len(x)):
        _add_row(tables, x, i, x[: i + 1], alike, factor, row, out[i])


@compiled()
def _add_row(tables: FloatN, x: Bytes, i: int, y: Bytes, alike: bool, factor: float, row: FloatN, out: FloatN) -> None:
    """Adds to ``out`` what row i of x makes with each row of y; ``row`` is float[4, ≥ Y] to work in."""
    _products(tables, x, i, y, alike, row)
    for j in range(len(y)):
        out[j] += factor * ((row[0, j] - row[2, j]) - (row[3, j] - row[1, j]))


@compiled()
def gradient(x: Bytes, weight: FloatN, q: FloatN, alike: bool) -> tuple[float, FloatN]:
    """Σ weight ∘ covariance(x, x) for a symmetric weight, and float[n]: its derivative in each log q_i."""
    tables, total, row = _tables(q), 0.0, np.empty((4, len(x)))
    lacking = np.zeros(tables.shape)  # by the byte of players that a set lacks
    for i in range(len(x)):
        _products(tables, x, i, x[: i + 1], alike, row)
        for j in range(i + 1):
            w = weight[i, j] if i == j else 2 * weight[i, j]
            p0, p1, p2, p3 = w * row[0, j], w * row[1, j], w * row[2, j], w * row[3, j]
            total += (p0 - p2) - (p3 - p1)
            for b in range(len(tables)):
                s, t = np.int64(x[i, b]), np.int64(x[j, b])
                if alike:
                    lacking[b, s ^ t] += p0
                    lacking[b, 255 - (s ^ t)] -= p2
                else:
                    lacking[b, 255 - (s & t)] += p0
                    lacking[b, s | t] += p1
                    lacking[b, (255 - s) | t] -= p2
                    lacking[b, s | (255 - t)] -= p3
    slope = np.empty(8 * len(lacking))
    for b in range(len(lacking)):
        fold(lacking[b], slope[8 * b : 8 * b + 8])
    return total, slope[: len(q)]


@compiled()
def integral(x: FloatN, near: FloatN, far: FloatN, weight: FloatN, alike: bool) -> FloatN:
    """float[X, n]: ± Σ_t weight_t Π_{j≠k} (near_tj if j is where k is, else far_tj), + for members k, − for others.

    Where ``alike``, the same with near and far exchanged is added.

    Args:
        x: float[X, n], rows of ±1.
        near: float[T, n], not 0.
        far: float[T, n], not 0.
        weight: float[T].
        alike: see above.
    """
    out, without_near, without_far = np.zeros(x.shape), 1 / near, 1 / far
    for i in range(len(x)):
        for t in range(len(weight)):
            here, there = weight[t], weight[t]
            for j in range(x.shape[1]):
                here *= near[t, j] if x[i, j] > 0 else far[t, j]
                there *= far[t, j] if x[i, j] > 0 else near[t, j]
            for k in range(x.shape[1]):
                inside = x[i, k] > 0
                term = (here if inside else there) * without_near[t, k]
                if alike:
                    term += (there if inside else here) * without_far[t, k]
                out[i, k] += term if inside else -term
    return out
