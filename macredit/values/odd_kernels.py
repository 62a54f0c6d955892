"""Covariances of the odd part u of a random game, as sums of parts whose Shapley values have a closed form.

A coalition is a row x of ±1 (+1 inside). u(x) = Σ_T β_T Π_{i∈T} x_i over sets T of odd size, and
phi_i = Σ_{T∋i} 2 β_T / |T|. With 1/|T| = ∫_0^1 t^{|T|−1} dt every sum over sets T below becomes a product over players
inside an integral of a polynomial in t, which Gauss–Legendre nodes do exactly.

Each part knows its covariance between rows, the gradient of Σ G ∘ K in its parameters, and the covariance of phi with
u at each row. Parameters are a flat vector; ``start`` and ``spread`` are the prior's mean and standard deviation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import gammaln

from macredit.rows import FloatN

MOST_NODES = 32
"""Nodes of the integral over t: exact up to 64 players, and beyond to many digits."""


class Part(Protocol):
    """One term of a covariance."""

    @property
    def start(self) -> FloatN:
        """float[parameters]: prior mean."""

    @property
    def spread(self) -> FloatN:
        """float[parameters]: prior standard deviation."""

    def matrix(self, theta: FloatN, x: FloatN, y: FloatN) -> FloatN:
        """float[X, Y]: covariance of u between rows."""

    def gradient(self, theta: FloatN, x: FloatN, weight: FloatN) -> FloatN:
        """float[parameters]: of Σ weight ∘ matrix(x, x), ``weight`` symmetric."""

    def readout(self, theta: FloatN, x: FloatN) -> FloatN:
        """float[X, n]: covariance of u at each row with phi."""

    def variance(self, theta: FloatN) -> FloatN:
        """float[n]: prior variance of phi."""


@dataclass(frozen=True)
class Additive:
    """Players that add up: β_i independent with variance e^θ / n."""

    n: int

    @property
    def start(self) -> FloatN:
        """Prior mean."""
        return np.zeros(1)

    @property
    def spread(self) -> FloatN:
        """Prior standard deviation."""
        return np.full(1, 3.0)

    def matrix(self, theta: FloatN, x: FloatN, y: FloatN) -> FloatN:
        """See :class:`Part`."""
        return math.exp(theta[0]) / self.n * (x @ y.T)

    def gradient(self, theta: FloatN, x: FloatN, weight: FloatN) -> FloatN:
        """See :class:`Part`."""
        return np.array([math.exp(theta[0]) / self.n * float(((weight @ x) * x).sum())])

    def readout(self, theta: FloatN, x: FloatN) -> FloatN:
        """See :class:`Part`."""
        return 2 * math.exp(theta[0]) / self.n * x

    def variance(self, theta: FloatN) -> FloatN:
        """See :class:`Part`."""
        return np.full(self.n, 4 * math.exp(theta[0]) / self.n)


@dataclass(frozen=True)
class White:
    """What no other part explains: every pair of coalitions has a worth of its own with variance e^θ.

    phi_i = Σ over pairs of c_i(S) u(S), c_i(S) = 2 / (n C(n − 1, s − 1)) for a member i of S, of s players, and
    −2 / (n C(n − 1, s)) for another player; so what is left at an answered pair counts, and at others averages out.
    """

    n: int

    @property
    def start(self) -> FloatN:
        """Prior mean."""
        return np.full(1, -7.0)

    @property
    def spread(self) -> FloatN:
        """Prior standard deviation."""
        return np.full(1, 4.0)

    def matrix(self, theta: FloatN, x: FloatN, y: FloatN) -> FloatN:
        """See :class:`Part`; only equal and opposite rows have a product of ±n."""
        return np.asarray(math.exp(theta[0]) * np.trunc(x @ y.T / self.n))

    def gradient(self, theta: FloatN, x: FloatN, weight: FloatN) -> FloatN:
        """See :class:`Part`; the rows are distinct."""
        return np.array([math.exp(theta[0]) * float(np.trace(weight))])

    def readout(self, theta: FloatN, x: FloatN) -> FloatN:
        """See :class:`Part`."""
        size = ((x.sum(axis=1) + self.n) / 2).round().astype(np.int64)
        without = self._inverse_counts()
        rest = np.append(without, 0.0)  # of everybody no player is left out
        return np.asarray(np.where(x > 0, without[size - 1, None], -rest[size, None]) * 2 * math.exp(theta[0]) / self.n)

    def variance(self, theta: FloatN) -> FloatN:
        """See :class:`Part`."""
        return np.full(self.n, 4 / self.n**2 * math.exp(theta[0]) * self._inverse_counts().sum())

    def _inverse_counts(self) -> FloatN:
        """float[n]: 1 / C(n − 1, s) for s = 0 … n − 1."""
        s = np.arange(self.n)
        return np.asarray(np.exp(gammaln(s + 1) + gammaln(self.n - s) - gammaln(self.n)))


def _relevant(n: int, odds: float) -> tuple[FloatN, FloatN]:
    """Prior mean and standard deviation of log a, c, ρ: a size, a level, and a relevance per player."""
    mean = np.concatenate([[-2.5, math.log(odds / n)], np.zeros(n)])
    return mean, np.concatenate([[3.0, 1.0], np.ones(n)])


@dataclass(frozen=True)
class Product:
    """Interactions of all orders with a relevance per player: var β_T ∝ Π_{i∈T} r_i for odd |T|, r_i = σ(c + ρ_i).

    K(x, y) = a · odd part of Π_i (1 + r_i x_i y_i), scaled to K(x, x) = a. A small c is smooth, a large one rough.
    """

    n: int
    odds: float
    """Start of e^c · n: the typical number of interacting players."""

    @property
    def start(self) -> FloatN:
        """Prior mean of log a, c, ρ."""
        return _relevant(self.n, self.odds)[0]

    @property
    def spread(self) -> FloatN:
        """Prior standard deviation."""
        return _relevant(self.n, self.odds)[1]

    def matrix(self, theta: FloatN, x: FloatN, y: FloatN) -> FloatN:
        """See :class:`Part`."""
        plus, minus = self._halves(theta, x, y)
        plus -= minus
        return plus

    def gradient(self, theta: FloatN, x: FloatN, weight: FloatN) -> FloatN:
        """See :class:`Part`."""
        r, (plus, minus) = self._relevance(theta), self._halves(theta, x, x)
        total = float(np.vdot(weight, plus) - np.vdot(weight, minus))
        plus += minus
        by_r = (_form(x, weight * plus) - r * total) / (1 - r * r) - total * _slope_of_log_scale(r)
        by_logit = by_r * r * (1 - r)
        return np.concatenate([[total, by_logit.sum()], by_logit])

    def readout(self, theta: FloatN, x: FloatN) -> FloatN:
        """See :class:`Part`."""
        r = self._relevance(theta)
        out = np.zeros(x.shape)
        for t, weight in zip(*nodes(self.n), strict=True):
            slope, level = np.arctanh(t * r), 0.5 * np.log1p(-((t * r) ** 2)).sum() + theta[0] - _log_scale(r)
            project = x @ slope
            plus, minus = np.exp(level + project)[:, None], np.exp(level - project)[:, None]
            out += weight * (plus / (1 + t * r * x) + minus / (1 - t * r * x))
        return out * 2 * r * x

    def variance(self, theta: FloatN) -> FloatN:
        """See :class:`Part`; Σ 4 var β_T / |T|²."""
        r = self._relevance(theta)
        t, weight = _squared_nodes(self.n)
        inside = t[:, None] * r
        plus = np.log1p(inside).sum(axis=1, keepdims=True) - np.log1p(inside)
        minus = np.log1p(-inside).sum(axis=1, keepdims=True) - np.log1p(-inside)
        even = np.exp(theta[0] - _log_scale(r)) * (np.exp(plus) + np.exp(minus))
        return np.asarray(4 * r * (weight @ even))

    def _relevance(self, theta: FloatN) -> FloatN:
        return np.asarray(1 / (1 + np.exp(-theta[1] - theta[2:])))

    def _halves(self, theta: FloatN, x: FloatN, y: FloatN) -> tuple[FloatN, FloatN]:
        """Gives a Π (1 ± r x y) / 2, over the scale: Π (1 + r z) = exp(½ Σ log(1 − r²) + Σ atanh(r) z) for z = ±1."""
        r = self._relevance(theta)
        level = 0.5 * np.log1p(-r * r).sum() + theta[0] - _log_scale(r)
        plus = np.exp((x * np.arctanh(r)) @ y.T)
        minus = math.exp(level) / plus
        plus *= math.exp(level)
        return plus, minus


@dataclass(frozen=True)
class Joint:
    """Players who need each other: v(S) = Σ_{Z⊆S} m_Z with var m_Z ∝ Π_{i∈Z} r_i, r_i = e^{c + ρ_i}.

    The odd part of "all of Z are there" is also that of "one of Z is there", so this covers redundant players too.
    K = a' (k(S,T) − k(S,Tᶜ) − k(Sᶜ,T) + k(Sᶜ,Tᶜ)) with k(S,T) = Π_{i∈S∩T} (1 + r_i), scaled to K(N, N) = a.
    """

    n: int
    odds: float
    """Start of Σ r."""

    @property
    def start(self) -> FloatN:
        """Prior mean of log a, c, ρ."""
        return _relevant(self.n, self.odds)[0]

    @property
    def spread(self) -> FloatN:
        """Prior standard deviation."""
        return _relevant(self.n, self.odds)[1]

    def matrix(self, theta: FloatN, x: FloatN, y: FloatN) -> FloatN:
        """See :class:`Part`."""
        near, far, scale, (left, right) = self._factors(theta, x, y)
        rows = scale * np.stack([left, 1 / left], axis=1)
        near *= rows @ np.stack([right, 1 / right])
        far *= rows @ np.stack([1 / right, right])
        near -= far
        return near

    def gradient(self, theta: FloatN, x: FloatN, weight: FloatN) -> FloatN:
        """See :class:`Part`."""
        near, far, scale, grown = self._factors(theta, x, x)
        near, far = scale * weight * near, scale * weight * far
        left, inside, outside = grown[0][:, None], (1 + x) / 2, (1 - x) / 2
        total = _form(left, near) + _form(1 / left, near) - 2 * _form(left, far, 1 / left)
        by_log = _form(inside * left, near) + _form(outside / left, near)
        by_log -= 2 * _form(inside * left, far, outside / left)
        log = self._logs(theta)
        by_rho = (by_log - total / -np.expm1(-log.sum())) * -np.expm1(-log)
        return np.concatenate([total, [by_rho.sum()], by_rho])

    def readout(self, theta: FloatN, x: FloatN) -> FloatN:
        """See :class:`Part`."""
        log = self._logs(theta)
        r, level = np.expm1(log), theta[0] - _log_expm1(log.sum())
        inside, outside = (1 + x) / 2, (1 - x) / 2
        out = np.zeros(x.shape)
        for t, weight in zip(*nodes(self.n), strict=True):
            grown = np.log1p(t * r)
            here, there = np.exp(level + inside @ grown)[:, None], np.exp(level + outside @ grown)[:, None]
            out += weight * (inside * here - outside * there) / (1 + t * r)
        return out * 2 * r

    def variance(self, theta: FloatN) -> FloatN:
        """See :class:`Part`; Σ var m_Z / |Z|²."""
        log = self._logs(theta)
        r, level = np.expm1(log), theta[0] - _log_expm1(log.sum())
        t, weight = _squared_nodes(self.n)
        grown = np.log1p(t[:, None] * r)
        return np.asarray(4 * r * (weight @ np.exp(level + grown.sum(axis=1, keepdims=True) - grown)))

    def _logs(self, theta: FloatN) -> FloatN:
        """float[n]: log(1 + r)."""
        return np.asarray(np.logaddexp(0, theta[1] + theta[2:]))

    def _factors(self, theta: FloatN, x: FloatN, y: FloatN) -> tuple[FloatN, FloatN, float, tuple[FloatN, FloatN]]:
        """Gives near, far, scale, (left, right), which make up the scaled products k for b = log(1 + r).

        k(S, T) = exp(¼ Σ b (1 + x) (1 + y)) = scale · near · left · right; a complement turns the sign of its row, so
        that k(S, Tᶜ) = scale · far · left / right.
        """
        log = self._logs(theta) / 4
        level = theta[0] - _log_expm1(4 * log.sum()) + log.sum()
        near = np.exp((x * log) @ y.T)
        return near, 1 / near, math.exp(level), (np.exp(x @ log), np.exp(y @ log))


def _form(left: FloatN, matrix: FloatN, right: FloatN | None = None) -> FloatN:
    """The diagonal of leftᵀ · matrix · right, a number for each column."""
    return np.asarray(np.einsum("ij,ij->j", left, matrix @ (left if right is None else right)))


def nodes(n: int) -> tuple[FloatN, FloatN]:
    """Gauss–Legendre nodes and weights on [0, 1], exact for polynomials of degree n − 1 while n ≤ 64."""
    at, weight = np.polynomial.legendre.leggauss(min(n // 2 + 1, MOST_NODES))
    return (at + 1) / 2, weight / 2


def _squared_nodes(n: int) -> tuple[FloatN, FloatN]:
    """Nodes and weights that give 1/k² for t^(k−1): products of two of :func:`nodes`."""
    t, weight = nodes(n)
    return np.multiply.outer(t, t).ravel(), np.multiply.outer(weight, weight).ravel()


def _log_scale(r: FloatN) -> float:
    """Logarithm of Π (1 + r) − Π (1 − r)."""
    most = float(np.log1p(r).sum())
    return most + math.log1p(-math.exp(float(np.log1p(-r).sum()) - most))


def _log_expm1(log: float) -> float:
    """Logarithm of (e^log − 1)."""
    return float(log + math.log(-math.expm1(-log)))


def _slope_of_log_scale(r: FloatN) -> FloatN:
    """Its derivative in each r."""
    ratio = math.exp(float((np.log1p(-r) - np.log1p(r)).sum()))
    return np.asarray((1 / (1 + r) + ratio / (1 - r)) / (1 - ratio))
