"""Covariances of the odd part u of a random game, as sums of parts whose Shapley values have a closed form.

A coalition is a row x of ±1 (+1 inside). u(x) = Σ_T β_T Π_{i∈T} x_i over sets T of odd size, and
phi_i = Σ_{T∋i} 2 β_T / |T|. With 1/|T| = ∫_0^1 t^{|T|−1} dt every sum over sets T below becomes a product over players
inside an integral of a polynomial in t, which Gauss–Legendre nodes do exactly.

Each part knows its covariance between rows and the covariance of phi with u at each row. Parameters are a flat vector;
``start`` and ``spread`` are the prior's mean and standard deviation.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np
from scipy.special import gammaln

from macredit.rows import FloatN

ADDITIVE, SIZE, RIDGE, PRODUCT, JOINT, WHITE = range(6)
"""Kinds of parts; :mod:`macredit.values.prior_kernels` has all of them compiled."""
MOST_NODES = 32
"""Nodes of the integral over t: exact up to 64 players, and beyond to many digits."""


class Part(Protocol):
    """One term of a covariance."""

    kind: ClassVar[int]

    @property
    def start(self) -> FloatN:
        """float[parameters]: prior mean."""

    @property
    def spread(self) -> FloatN:
        """float[parameters]: prior standard deviation."""

    def matrix(self, theta: FloatN, x: FloatN, y: FloatN) -> FloatN:
        """float[X, Y]: covariance of u between rows."""

    def diagonal(self, theta: FloatN, x: FloatN) -> FloatN:
        """float[X]: prior variance of u at rows."""

    def readout(self, theta: FloatN, x: FloatN) -> FloatN:
        """float[X, n]: covariance of u at each row with phi."""

    def variance(self, theta: FloatN) -> FloatN:
        """float[n]: prior variance of phi."""


@dataclass(frozen=True)
class Additive:
    """Players that add up: β_i independent with variance e^θ / n."""

    n: int

    kind: ClassVar[int] = ADDITIVE

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

    def diagonal(self, theta: FloatN, x: FloatN) -> FloatN:
        """See :class:`Part`."""
        return np.full(len(x), math.exp(theta[0]))

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

    kind: ClassVar[int] = WHITE

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

    def diagonal(self, theta: FloatN, x: FloatN) -> FloatN:
        """See :class:`Part`."""
        return np.full(len(x), math.exp(theta[0]))

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


@dataclass(frozen=True)
class _Relevance(ABC):
    """Interactions of all orders with a relevance r_i per player; parameters are log a, c and ρ_i.

    K(x, y) = a / (1 − Π q) Σ ± Π_{i lacking} q_i over the sets of :mod:`macredit.values.lacking_kernels`, so that
    K(N, N) = a. Nothing here overflows: every factor is at most 1.
    """

    n: int
    odds: float
    """Start of e^c · n: the typical number of interacting players."""

    kind: ClassVar[int]
    alike: ClassVar[bool]

    @abstractmethod
    def _factors(self, theta: FloatN) -> tuple[FloatN, FloatN]:
        """float[n] each: r and log q."""

    @abstractmethod
    def _absent(self, inside: FloatN) -> FloatN:
        """The factor of a player that lacks, where that of one that does not is 1 + ``inside``."""

    @property
    def start(self) -> FloatN:
        """Prior mean."""
        return np.concatenate([[-2.5, math.log(self.odds / self.n)], np.zeros(self.n)])

    @property
    def spread(self) -> FloatN:
        """Prior standard deviation."""
        return np.concatenate([[3.0, 1.0], np.ones(self.n)])

    def matrix(self, theta: FloatN, x: FloatN, y: FloatN) -> FloatN:
        """See :class:`Part`."""
        from macredit.values.lacking_kernels import add_between, packed

        _, log = self._factors(theta)
        out = np.zeros((len(x), len(y)))
        add_between(packed(x), packed(y), np.exp(log), self.alike, _amplitude(theta, log), out)
        return out

    def readout(self, theta: FloatN, x: FloatN) -> FloatN:
        """See :class:`Part`."""
        from macredit.values.lacking_kernels import integral

        t, weight = nodes(self.n)
        level, near, far = self._integrand(theta, t)
        return np.asarray(level * integral(x, near, far, weight, self.alike))

    def variance(self, theta: FloatN) -> FloatN:
        """See :class:`Part`; Σ 4 var β_T / |T|² or Σ var m_Z / |Z|²."""
        t, weight = _squared_nodes(self.n)
        level, near, far = self._integrand(theta, t)
        others = near.prod(axis=1, keepdims=True) / near
        if self.alike:
            others += far.prod(axis=1, keepdims=True) / far
        return np.asarray(2 * level * (weight @ others))

    def _integrand(self, theta: FloatN, t: FloatN) -> tuple[FloatN, FloatN, FloatN]:
        """float[n] and float[T, n] twice: what stands before the integral, and the factors under it at each t."""
        r, log = self._factors(theta)
        inside = t[:, None] * r
        return 2 * r / (1 + r) * _amplitude(theta, log), (1 + inside) / (1 + r), self._absent(inside) / (1 + r)


class Product(_Relevance):
    """Characters: var β_T ∝ Π_{i∈T} r_i for odd |T|, r_i = σ(c + ρ_i). A small c is smooth, a large one rough.

    K ∝ odd part of Π_i (1 + r_i x_i y_i), in which q_i = (1 − r_i) / (1 + r_i).
    """

    kind, alike = PRODUCT, True

    def diagonal(self, theta: FloatN, x: FloatN) -> FloatN:
        """See :class:`Part`."""
        return np.full(len(x), math.exp(theta[0]))

    def _factors(self, theta: FloatN) -> tuple[FloatN, FloatN]:
        logit = theta[1] + theta[2:]
        r = 1 / (1 + np.exp(-logit))
        return r, -np.logaddexp(0, logit) - np.log1p(r)

    def _absent(self, inside: FloatN) -> FloatN:
        return 1 - inside


class Joint(_Relevance):
    """Players who need each other: v(S) = Σ_{Z⊆S} m_Z with var m_Z ∝ Π_{i∈Z} r_i, r_i = e^{c + ρ_i}.

    The odd part of "all of Z are there" is also that of "one of Z is there", so this covers redundant players too.
    K ∝ k(S,T) − k(S,Tᶜ) − k(Sᶜ,T) + k(Sᶜ,Tᶜ) with k(S,T) = Π_{i∈S∩T} (1 + r_i), in which q_i = 1 / (1 + r_i).
    """

    kind, alike = JOINT, False

    def diagonal(self, theta: FloatN, x: FloatN) -> FloatN:
        """See :class:`Part`."""
        _, log = self._factors(theta)
        ends = np.exp((1 + x) / 2 @ log) + np.exp((1 - x) / 2 @ log)
        return np.asarray((ends - 2 * math.exp(log.sum())) * _amplitude(theta, log))

    def _factors(self, theta: FloatN) -> tuple[FloatN, FloatN]:
        log = -np.logaddexp(0, theta[1] + theta[2:])
        return np.expm1(-log), log

    def _absent(self, inside: FloatN) -> FloatN:
        return np.ones_like(inside)


def _amplitude(theta: FloatN, log: FloatN) -> float:
    """Gives a / (1 − Π q)."""
    return math.exp(theta[0]) / -math.expm1(log.sum())


@lru_cache
def nodes(n: int) -> tuple[FloatN, FloatN]:
    """Gauss–Legendre nodes and weights on [0, 1], exact for polynomials of degree n − 1 while n ≤ 64."""
    at, weight = np.polynomial.legendre.leggauss(min(n // 2 + 1, MOST_NODES))
    return (at + 1) / 2, weight / 2


@lru_cache
def _squared_nodes(n: int) -> tuple[FloatN, FloatN]:
    """Nodes and weights that give 1/k² for t^(k−1): products of two of :func:`nodes`."""
    t, weight = nodes(n)
    return np.multiply.outer(t, t).ravel(), np.multiply.outer(weight, weight).ravel()
