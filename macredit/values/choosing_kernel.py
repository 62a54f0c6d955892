"""The compiled loop of :mod:`macredit.values.choosing`: one row after the other."""

from __future__ import annotations

import math

import numpy as np

from macredit.rows import FloatN, IntN
from macredit.values.kernels import compiled
from macredit.values.lacking_kernels import Bytes
from macredit.values.prior_kernels import add_row
from macredit.values.process import JITTER

DIGITS = 1e6
"""To which part the logarithm of a gain is rounded, so that rounding errors do not decide between equals."""


@compiled()
def greedy(
    kinds: IntN,
    theta: FloatN,
    features: FloatN,
    powers: FloatN,
    players: Bytes,
    seen: FloatN,
    told: FloatN,
    variance: FloatN,
    count: int,
) -> IntN:
    """int[count]: of X rows, each the one whose answer lowers Σ Var phi most given the answers to those before it.

    Args:
        kinds: this and the next four as of :func:`macredit.values.prior_kernels.covariance`, for X rows.
        theta: see there.
        features: see there.
        powers: see there.
        players: see there.
        seen: float[R, X], L⁻¹ times the covariance of what is known with u at these rows.
        told: float[X, n], posterior covariance of u with phi. Is used up.
        variance: float[X], posterior variance of u. Is used up.
        count: at most X.
    """
    rows, n = told.shape
    order, steps, left = np.empty(count, np.int64), np.empty((count, rows)), np.ones(rows, np.bool_)
    for k in range(count):
        best, most = -1, -np.inf
        for r in range(rows):
            if left[r]:
                drop = 0.0
                for i in range(n):
                    drop += told[r, i] ** 2
                gain = math.log(max(drop, JITTER**2) / (max(variance[r], 0.0) + JITTER))
                gain = math.floor(gain * DIGITS + 0.5)
                if gain > most:
                    best, most = r, gain
        order[k], left[best] = best, False
        step = steps[k]
        step[:] = 0.0
        add_row(kinds, theta, n, features, powers, players, best, step)
        for m in range(len(seen)):
            for r in range(rows):
                step[r] -= seen[m, best] * seen[m, r]
        for m in range(k):
            for r in range(rows):
                step[r] -= steps[m, best] * steps[m, r]
        root, here = math.sqrt(max(variance[best], 0.0) + JITTER), told[best].copy()
        for r in range(rows):
            step[r] /= root
            variance[r] -= step[r] ** 2
            for i in range(n):
                told[r, i] -= step[r] * here[i] / root
    return order
