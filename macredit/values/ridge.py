"""Parts of the Gaussian process for games that are a curve: over a weighted sum of players, or over their number."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from macredit.rows import FloatN
from macredit.values.odd_kernels import RIDGE, SIZE, nodes

FREQUENCIES = np.array([0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0])
"""Of the sines that make up a curve f = Σ_k sin(ω_k ·), with independent amplitudes."""


class _Curve(ABC):
    """K = Σ_k b_k sin(a_k(x)) sin(a_k(y)). First parameters: log Σ b, and the log of the rate at which b falls."""

    @abstractmethod
    def _angles(self, theta: FloatN, x: FloatN) -> FloatN:
        """float[X, K]: a_k of each row."""

    @abstractmethod
    def _values(self, theta: FloatN) -> FloatN:
        """float[K, n]: Shapley values of sin(a_k)."""

    def matrix(self, theta: FloatN, x: FloatN, y: FloatN) -> FloatN:
        """See :class:`Part`."""
        return np.asarray((np.sin(self._angles(theta, x)) * _powers(theta)) @ np.sin(self._angles(theta, y)).T)

    def diagonal(self, theta: FloatN, x: FloatN) -> FloatN:
        """See :class:`Part`."""
        return np.asarray(np.sin(self._angles(theta, x)) ** 2 @ _powers(theta))

    def readout(self, theta: FloatN, x: FloatN) -> FloatN:
        """See :class:`Part`."""
        return np.asarray((np.sin(self._angles(theta, x)) * _powers(theta)) @ self._values(theta))

    def variance(self, theta: FloatN) -> FloatN:
        """See :class:`Part`."""
        return np.asarray(_powers(theta) @ self._values(theta) ** 2)


@dataclass(frozen=True)
class Ridge(_Curve):
    """A curve over a weighted sum of players, as when a team's strength decides: u = f(w·x), f odd.

    The last parameters are w, which starts at ``direction``.
    """

    direction: FloatN
    """float[n]: a first guess of w."""

    kind: ClassVar[int] = RIDGE

    @property
    def n(self) -> int:
        """Players."""
        return len(self.direction)

    @property
    def start(self) -> FloatN:
        """Prior mean."""
        return np.concatenate([[-4.0, -0.4], self.direction])

    @property
    def spread(self) -> FloatN:
        """Prior standard deviation."""
        return np.concatenate([[3.0, 0.7], np.ones(self.n)])

    def _angles(self, theta: FloatN, x: FloatN) -> FloatN:
        return np.asarray(np.multiply.outer(x @ theta[2:] / (2 * math.sqrt(self.n)), FREQUENCIES))

    def _values(self, theta: FloatN) -> FloatN:
        return _of_sines(theta[2:])


@dataclass(frozen=True)
class Size(_Curve):
    """What players share, all alike before anything is known of them: u = f(how many are in), f odd.

    The curve of :class:`Ridge` over the sum of x, without weights of its own. Where answers are few, values are drawn
    towards each other instead of towards 0.
    """

    n: int

    kind: ClassVar[int] = SIZE

    @property
    def start(self) -> FloatN:
        """Prior mean of log Σ b and of the log of the rate at which b falls."""
        return np.array([-1.0, -0.4])

    @property
    def spread(self) -> FloatN:
        """Prior standard deviation."""
        return np.array([3.0, 0.7])

    def _angles(self, theta: FloatN, x: FloatN) -> FloatN:
        return np.asarray(np.multiply.outer(x.sum(axis=1) / (2 * math.sqrt(self.n)), FREQUENCIES))

    def _values(self, theta: FloatN) -> FloatN:
        return self._alike

    @cached_property
    def _alike(self) -> FloatN:
        """The values of equal weights, which hang on no parameter."""
        return _of_sines(np.ones(self.n))


def _powers(theta: FloatN) -> FloatN:
    """float[K]: the variance of each sine."""
    fall = np.exp(-FREQUENCIES * math.exp(theta[1]))
    return np.asarray(math.exp(theta[0]) * fall / fall.sum())


def _of_sines(w: FloatN) -> FloatN:
    """float[K, n]: Shapley values of sin(Σ a_i x_i), 2 sin(a_i) ∫_0^1 Re Π_{j≠i} (cos a_j + i t sin a_j) dt."""
    angle = np.multiply.outer(FREQUENCIES, w / (2 * math.sqrt(len(w))))
    t, weight = nodes(len(w))
    factor = np.cos(angle)[:, None, :] + 1j * t[:, None] * np.sin(angle)[:, None, :]
    others = _products_of_others(factor).real
    return np.asarray(2 * np.sin(angle) * np.einsum("t,ktn->kn", weight, others))


def _products_of_others(factor: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Π_{j≠i} along the last axis, without dividing: what comes before times what comes after."""
    ones = np.ones_like(factor[..., :1])
    before = np.cumprod(np.concatenate([ones, factor[..., :-1]], axis=-1), axis=-1)
    after = np.cumprod(np.concatenate([ones, factor[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    return np.asarray(before * after)
