"""A Gaussian process: a prior that is a sum of parts, and the posterior of Shapley values given answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_solve, solve_triangular

from macredit.rows import FloatN, IntN
from macredit.values.answers import Answers
from macredit.values.odd import Pairs
from macredit.values.odd_kernels import Part

BLOCK = 128
"""Rows of a covariance that are computed at a time, which bounds the memory beside the covariance itself."""
MOST_LEVELS, DIGITS = 4, 9
"""Sizes of u, to so many digits, that make a game one of steps: a pair of 0/1 worths has two, the ends may add one."""
JITTER = 1e-8
"""Variance added to every answer, relative to their mean square, so that the covariance can be factored."""
GUESS = 0.1
"""Share of the noise in the mean square of the answers, where no repeated answer shows it."""
DOUBT, FEW = 0.3, 50
"""How well repeated answers tell the logarithm of the noise's variance, and repeats that double its variance."""


@dataclass(frozen=True)
class Data:
    """Rows of ±1 with the odd part of the game, in units of its root mean square; the full coalition comes last."""

    x: FloatN
    """float[R, n]."""
    odd: FloatN
    """float[R]."""
    noise: FloatN
    """float[R]: variance of the noise in each answer as it seems; all 0 where a coalition always answers the same."""
    unit: float
    doubt: float = 4.0
    """Prior standard deviation of the logarithm of the factor on ``noise``."""

    @cached_property
    def players(self) -> npt.NDArray[np.uint8]:
        """uint8[R, ceil(n / 8)]: the rows as bytes."""
        from macredit.values.lacking_kernels import packed

        return packed(self.x)

    @property
    def noisy(self) -> bool:
        """Whether answers carry noise."""
        return bool(self.noise.any())

    @property
    def stepped(self) -> bool:
        """Whether answers jump between a few levels, as a vote's do: answers that agree say little about the next jump.

        No smooth prior knows how sure it may be of such a game.
        """
        return len(np.unique(np.round(np.abs(self.odd), DIGITS))) <= MOST_LEVELS

    def first(self, count: int) -> Data:
        """At most ``count`` of the pairs, and the full coalition."""
        kept = np.append(np.arange(min(count, len(self.odd) - 1)), len(self.odd) - 1)
        return replace(self, x=self.x[kept], odd=self.odd[kept], noise=self.noise[kept])


def data_of(pairs: Pairs, answers: Answers) -> Data:
    """The pairs and the full coalition."""
    x = np.concatenate([pairs.signs, np.ones((1, pairs.members.shape[1]))])
    u = np.append(pairs.odd, pairs.total / 2)
    unit = float(np.sqrt(np.mean(u * u))) or 1.0
    if not pairs.noisy:
        return Data(x, u / unit, np.zeros(len(u)), unit)
    noise = np.append(pairs.noise, pairs.total_noise)
    between = int((answers.count[1:-1] - 1).sum())  # repeats besides those of nobody and everybody, first and last
    seen = float(answers.squares[1:-1].sum())
    if not between or not seen:
        return Data(x, u / unit, noise / float(noise.mean()) * GUESS, unit)
    return Data(x, u / unit, noise * seen / between / unit**2, unit, DOUBT * math.sqrt(1 + FEW / between))


@dataclass(frozen=True)
class Prior:
    """Parts, their parameters one after the other, and last the log of the factor on the noise's variance."""

    parts: Sequence[Part]
    theta: FloatN

    @cached_property
    def pieces(self) -> list[tuple[Part, FloatN]]:
        """Each part with its own parameters."""
        ends = [0, *accumulate(len(part.start) for part in self.parts)]
        return [(part, self.theta[slice(*ends[i : i + 2])]) for i, part in enumerate(self.parts)]

    @cached_property
    def kinds(self) -> IntN:
        """int[parts]."""
        return np.array([part.kind for part in self.parts])

    def covariance(self, data: Data) -> FloatN:
        """float[R, R]: of the answers; only the lower triangle is meant."""
        from macredit.values.prior_kernels import covariance

        return np.asarray(covariance(*self.arguments(data)))

    def arguments(self, data: Data) -> tuple[IntN, FloatN, FloatN, FloatN, FloatN, npt.NDArray[np.uint8], FloatN]:
        """What :func:`macredit.values.prior_kernels.covariance` and ``slopes`` are given."""
        return self.kinds, self.theta, data.x, *self.features(data.x), data.players, data.noise

    def features(self, x: FloatN) -> tuple[FloatN, FloatN]:
        """float[X, F] and float[F]: see :func:`macredit.values.prior_kernels.features_of`."""
        from macredit.values.prior_kernels import features_of

        return features_of(self.kinds, self.theta, x)

    def between(self, x: FloatN, y: FloatN) -> FloatN:
        """float[X, Y]: covariance of u between rows."""
        return _sum([part.matrix(theta, x, y) for part, theta in self.pieces])

    def diagonal(self, x: FloatN) -> FloatN:
        """float[X]: variance of u at rows."""
        return _sum([part.diagonal(theta, x) for part, theta in self.pieces])

    def readout(self, x: FloatN) -> FloatN:
        """float[X, n]: covariance of u at rows with the values."""
        return _sum([part.readout(theta, x) for part, theta in self.pieces])

    def variance(self) -> FloatN:
        """float[n]: of the values."""
        return _sum([part.variance(theta) for part, theta in self.pieces])


@dataclass(frozen=True)
class Posterior:
    """A prior conditioned on answers."""

    prior: Prior
    data: Data

    @cached_property
    def factor(self) -> FloatN:
        """float[R, R]: lower triangle L with L Lᵀ the covariance of the answers."""
        return np.asarray(np.linalg.cholesky(self.prior.covariance(self.data)))

    @cached_property
    def weights(self) -> FloatN:
        """float[R]: the inverse covariance times the answers."""
        return np.asarray(cho_solve((self.factor, True), self.data.odd, check_finite=False))

    @cached_property
    def readout(self) -> FloatN:
        """float[R, n]: prior covariance of the answers with phi."""
        return self.prior.readout(self.data.x)

    @cached_property
    def known(self) -> FloatN:
        """float[R, n]: L⁻¹ times the covariance of the answers with phi."""
        return np.asarray(solve_triangular(self.factor, self.readout, lower=True, check_finite=False))

    @cached_property
    def values(self) -> FloatN:
        """float[n]: posterior mean of phi."""
        return np.asarray(self.readout.T @ self.weights)

    @cached_property
    def variance(self) -> FloatN:
        """float[n]: posterior variance of phi."""
        return np.asarray(np.maximum(self.prior.variance() - (self.known**2).sum(axis=0), 0))

    @property
    def surprise(self) -> float:
        """uᵀ K⁻¹ u / R: near 1 where the prior fits all these answers, above where it is too sure."""
        return float(self.data.odd @ self.weights) / len(self.data.odd)

    def at(self, x: FloatN) -> FloatN:
        """float[X]: posterior mean of u at other rows."""
        blocks = [x[start : start + BLOCK] for start in range(0, len(x), BLOCK)]
        return np.concatenate([self.prior.between(block, self.data.x) @ self.weights for block in blocks])


def _sum(terms: Sequence[FloatN]) -> FloatN:
    total = terms[0]
    for term in terms[1:]:
        total += term
    return total
