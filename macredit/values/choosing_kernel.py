"""The compiled loop of :mod:`macredit.values.choosing`: one row after the other."""

from __future__ import annotations

import math

import numpy as np

from macredit.rows import FloatN, IntN
from macredit.values.kernels import compiled
from macredit.values.lacking_kernels import Bytes
from macredit.values.prior_kernels import add_row, features_of
from macredit.values.process import JITTER

DIGITS = 1e6
"""To which part the logarithm of a gain is rounded, so that rounding errors do not decide between equals."""


@compiled()
def greedy(
    kinds: IntN, theta: FloatN, x: FloatN, players: Bytes, seen: FloatN, told: FloatN, variance: FloatN, count: int
) -> IntN:
    """int[count]: rows of ``x``, each the one whose answer lowers Σ Var phi most given the answers to those before it.

    Args:
        kinds: of the prior's parts.
        theta: its parameters.
        x: float[X, n], distinct rows of ±1.
        players: the same as bytes.
        seen: float[R, X], L⁻¹ times the covariance of what is known with u at ``x``.
        told: float[X, n], posterior covariance of u at ``x`` with phi. Is used up.
        variance: float[X], posterior variance of u at ``x``. Is used up.
        count: at most X.
    """
    features, powers = features_of(kinds, theta, x)
    order, steps, left = np.empty(count, np.int64), np.empty((count, len(x))), np.ones(len(x), np.bool_)
    for k in range(count):
        best, most = -1, -np.inf
        for r in range(len(x)):
            if left[r]:
                drop = 0.0
                for i in range(x.shape[1]):
                    drop += told[r, i] ** 2
                gain = math.log(max(drop, JITTER**2) / (max(variance[r], 0.0) + JITTER))
                gain = math.floor(gain * DIGITS + 0.5)
                if gain > most:
                    best, most = r, gain
        order[k], left[best] = best, False
        step = steps[k]
        step[:] = 0.0
        add_row(kinds, theta, x.shape[1], features, powers, players, best, step)
        for m in range(len(seen)):
            for r in range(len(x)):
                step[r] -= seen[m, best] * seen[m, r]
        for m in range(k):
            for r in range(len(x)):
                step[r] -= steps[m, best] * steps[m, r]
        root, here = math.sqrt(max(variance[best], 0.0) + JITTER), told[best].copy()
        for r in range(len(x)):
            step[r] /= root
            variance[r] -= step[r] ** 2
            for i in range(x.shape[1]):
                told[r, i] -= step[r] * here[i] / root
    return order
