"""Compiled covariance of answers under a prior, and its slopes: fitting a prior asks for both hundreds of times.

A prior is the kinds of its parts, their parameters one after the other, and last the log of a factor on the noise.
:mod:`macredit.values.odd_kernels` and :mod:`macredit.values.ridge` have each part in NumPy.
"""

from __future__ import annotations

import math

import numpy as np

from macredit.rows import FloatN, IntN
from macredit.values.kernels import compiled
from macredit.values.lacking_kernels import Bytes, add_between, add_covariance, gradient
from macredit.values.odd_kernels import ADDITIVE, JOINT, PRODUCT, RIDGE, SIZE, WHITE
from macredit.values.process import JITTER
from macredit.values.ridge import FREQUENCIES


@compiled()
def features_of(kinds: IntN, theta: FloatN, x: FloatN) -> tuple[FloatN, FloatN]:
    """float[R, F] and float[F]: what the parts that are Σ_f power_f g_f(x) g_f(y) consist of, one after the other."""
    rows, n = x.shape
    width = 0
    for kind in kinds:
        width += n if kind == ADDITIVE else len(FREQUENCIES) if kind in (SIZE, RIDGE) else 0
    features, powers, at, f = np.empty((rows, width)), np.empty(width), 0, 0
    for kind in kinds:
        part, at = _next(kind, theta, n, at)
        if kind == ADDITIVE:
            for i in range(n):
                powers[f] = math.exp(part[0]) / n
                for r in range(rows):
                    features[r, f] = x[r, i]
                f += 1
        elif kind in (SIZE, RIDGE):
            fall = 0.0
            for frequency in FREQUENCIES:
                fall += math.exp(-frequency * math.exp(part[1]))
            sums = _sums(kind, part, x)
            for frequency in FREQUENCIES:
                powers[f] = math.exp(part[0] - frequency * math.exp(part[1])) / fall
                for r in range(rows):
                    features[r, f] = math.sin(frequency * sums[r])
                f += 1
    return features, powers


@compiled()
def covariance(
    kinds: IntN, theta: FloatN, x: FloatN, features: FloatN, powers: FloatN, players: Bytes, noise: FloatN
) -> FloatN:
    """float[R, R]: of the answers; only the lower triangle is meant.

    Args:
        kinds: int[parts].
        theta: float[parameters].
        x: float[R, n], distinct rows of ±1.
        features: float[R, F], of :func:`features_of`.
        powers: float[F], likewise.
        players: the rows as bytes.
        noise: float[R], variances before their factor.
    """
    rows, n = x.shape
    out, at = np.zeros((rows, rows)), 0
    for i in range(rows):
        for j in range(i + 1):
            out[i, j] = _product(features, i, powers, features, j)
        out[i, i] += math.exp(theta[-1]) * noise[i] + JITTER
    for kind in kinds:
        part, at = _next(kind, theta, n, at)
        if kind in (PRODUCT, JOINT):
            log, _, level = _relevance(kind, part)
            add_covariance(players, np.exp(log), kind == PRODUCT, level, out)
        elif kind == WHITE:
            for i in range(rows):
                out[i, i] += math.exp(part[0])
    return out


@compiled()
def add_row(
    kinds: IntN, theta: FloatN, n: int, features: FloatN, powers: FloatN, players: Bytes, i: int, out: FloatN
) -> None:
    """Adds to ``out``, float[R], the covariance of u at row i with u at each of R distinct rows.

    Args:
        kinds: this and the next five as of :func:`covariance`.
        theta: see there.
        n: players.
        features: see there.
        powers: see there.
        players: see there.
        i: the row.
        out: see above; at i itself it lacks the part of kind ``WHITE``.
    """
    for j in range(len(out)):
        out[j] += _product(features, i, powers, features, j)
    at = 0
    for kind in kinds:
        part, at = _next(kind, theta, n, at)
        if kind in (PRODUCT, JOINT):
            log, _, level = _relevance(kind, part)
            add_between(players[i : i + 1], players, np.exp(log), kind == PRODUCT, level, out.reshape(1, -1))


@compiled()
def slopes(
    kinds: IntN,
    theta: FloatN,
    x: FloatN,
    features: FloatN,
    powers: FloatN,
    players: Bytes,
    noise: FloatN,
    weight: FloatN,
) -> FloatN:
    """float[parameters]: of Σ weight ∘ covariance.

    Args:
        kinds: this and the next six as of :func:`covariance`.
        theta: see there.
        x: see there.
        features: see there.
        powers: see there.
        players: see there.
        noise: see there.
        weight: float[R, R], symmetric.
    """
    rows, n = x.shape
    weighted, by_power = _weighted(weight, features, powers)
    trace, by_noise = 0.0, 0.0
    for i in range(rows):
        trace += weight[i, i]
        by_noise += weight[i, i] * noise[i]
    out, at, f = np.empty(len(theta)), 0, 0
    out[-1] = math.exp(theta[-1]) * by_noise
    for kind in kinds:
        here = out[at:]
        part, at = _next(kind, theta, n, at)
        if kind == ADDITIVE:
            here[0] = by_power[f : f + n].sum()
            f += n
        elif kind in (SIZE, RIDGE):
            end = f + len(FREQUENCIES)
            _by_powers(part, powers[f:end], by_power[f:end], here)
            if kind == RIDGE:
                _by_weights(part, x, weighted[:, f:end], here[2:])
            f = end
        elif kind == WHITE:
            here[0] = math.exp(part[0]) * trace
        else:
            log, slope, level = _relevance(kind, part)
            total, by_log = gradient(players, weight, np.exp(log), kind == PRODUCT)
            none = log.sum()
            of_none = total * math.exp(none) / math.expm1(none)
            here[0], here[1] = level * total, 0.0
            for i in range(n):
                here[2 + i] = level * (by_log[i] - of_none) * slope[i]
                here[1] += here[2 + i]
    return out


@compiled()
def minus_log_density(odd: FloatN, factor: FloatN, inverse: FloatN) -> tuple[float, FloatN]:
    """½ uᵀ K⁻¹ u + ½ log det K of the answers u, and its slope in K, ½ (K⁻¹ − α αᵀ) with α = K⁻¹ u.

    Args:
        odd: float[R], u.
        factor: float[R, R], the lower triangle L with L Lᵀ = K.
        inverse: float[R, R], the lower triangle of K⁻¹.
    """
    rows, value = len(odd), 0.0
    alpha, slope = np.zeros(rows), np.empty((rows, rows))
    for i in range(rows):
        for j in range(i):
            alpha[i] += inverse[i, j] * odd[j]
            alpha[j] += inverse[i, j] * odd[i]
        alpha[i] += inverse[i, i] * odd[i]
    for i in range(rows):
        value += math.log(factor[i, i]) + 0.5 * odd[i] * alpha[i]
        for j in range(i + 1):
            slope[i, j] = slope[j, i] = 0.5 * (inverse[i, j] - alpha[i] * alpha[j])
    return value, slope


@compiled()
def _next(kind: int, theta: FloatN, n: int, at: int) -> tuple[FloatN, int]:
    """The parameters of a part, and where the next part's begin."""
    end = at + 1 if kind in (ADDITIVE, WHITE) else at + 2 if kind == SIZE else at + 2 + n
    return theta[at:end], end


@compiled()
def _sums(kind: int, part: FloatN, x: FloatN) -> FloatN:
    """float[R]: the angle of a sine of frequency 1."""
    out, scale = np.zeros(len(x)), 2 * math.sqrt(x.shape[1])
    for r in range(len(x)):
        for i in range(x.shape[1]):
            out[r] += x[r, i] * part[2 + i] if kind == RIDGE else x[r, i]
        out[r] /= scale
    return out


@compiled()
def _product(x: FloatN, i: int, powers: FloatN, y: FloatN, j: int) -> float:
    """Σ_f power_f x_if y_jf."""
    total = 0.0
    for f in range(len(powers)):
        total += powers[f] * x[i, f] * y[j, f]
    return total


@compiled()
def _weighted(weight: FloatN, features: FloatN, powers: FloatN) -> tuple[FloatN, FloatN]:
    """float[R, F]: weight times the features and their powers; float[F]: how much of Σ weight ∘ K is due to each."""
    rows, width = features.shape
    out, total = np.zeros((rows, width)), np.zeros(width)
    for i in range(rows):
        for j in range(rows):
            for f in range(width):
                out[i, f] += weight[i, j] * features[j, f]
        for f in range(width):
            out[i, f] *= powers[f]
            total[f] += out[i, f] * features[i, f]
    return out, total


@compiled()
def _by_powers(part: FloatN, powers: FloatN, by_power: FloatN, out: FloatN) -> None:
    """The slopes in log Σ power and in the log of the rate at which powers fall."""
    mean, total = 0.0, 0.0
    for f in range(len(powers)):
        mean += FREQUENCIES[f] * powers[f]
        total += powers[f]
    mean /= total
    out[0], out[1] = 0.0, 0.0
    for f in range(len(powers)):
        out[0] += by_power[f]
        out[1] -= by_power[f] * (FREQUENCIES[f] - mean) * math.exp(part[1])


@compiled()
def _by_weights(part: FloatN, x: FloatN, weighted: FloatN, out: FloatN) -> None:
    """The slopes in the weights of a ridge."""
    n, sums = x.shape[1], _sums(RIDGE, part, x)
    out[:n] = 0.0
    for r in range(len(x)):
        by_sum = 0.0
        for f in range(len(FREQUENCIES)):
            by_sum += weighted[r, f] * FREQUENCIES[f] * math.cos(FREQUENCIES[f] * sums[r])
        for i in range(n):
            out[i] += by_sum * x[r, i] / math.sqrt(n)


@compiled()
def _relevance(kind: int, part: FloatN) -> tuple[FloatN, FloatN, float]:
    """float[n] each: log q and its slope in ρ; a / (1 − Π q)."""
    log, slope = np.empty(len(part) - 2), np.empty(len(part) - 2)
    for i in range(len(log)):
        logit = part[1] + part[2 + i]
        log[i] = -max(logit, 0.0) - math.log1p(math.exp(-abs(logit)))
        if kind == PRODUCT:
            r = 1 / (1 + math.exp(-logit))
            log[i] -= math.log1p(r)
            slope[i] = -2 * r / (1 + r)
        else:
            slope[i] = math.expm1(log[i])
    return log, slope, math.exp(part[0]) / -math.expm1(log.sum())
