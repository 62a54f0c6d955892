"""Parts of the Gaussian process for games that are a curve: over a weighted sum of players, or over their number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from macredit.rows import FloatN
from macredit.values.odd_kernels import nodes


@dataclass(frozen=True)
class Ridge:
    """A curve over a weighted sum of players, as when a team's strength decides: u = f(w·x), f odd.

    f is a sum of sines of fixed frequencies with independent amplitudes: K = Σ_k b_k sin(ω_k w·x) sin(ω_k w·y).
    Parameters are log Σ b, the log of the rate at which b falls with ω, and w, which starts at ``direction``.
    """

    direction: FloatN
    """float[n]: a first guess of w."""

    FREQUENCIES = np.array([0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0])

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

    def matrix(self, theta: FloatN, x: FloatN, y: FloatN) -> FloatN:
        """See :class:`Part`."""
        return np.asarray((self._sines(theta, x) * self._powers(theta)) @ self._sines(theta, y).T)

    def gradient(self, theta: FloatN, x: FloatN, weight: FloatN) -> FloatN:
        """See :class:`Part`."""
        power, sines = self._powers(theta), self._sines(theta, x)
        weighted = weight @ sines
        by_power = (weighted * sines).sum(axis=0) * power
        rate = self.FREQUENCIES * math.exp(theta[1])
        by_rate = -float(by_power @ (rate - rate @ power / power.sum()))
        cosines = np.cos(np.multiply.outer(self._project(theta, x), self.FREQUENCIES))
        by_w = x.T @ ((2 * weighted * power * cosines) @ self.FREQUENCIES) / (2 * math.sqrt(self.n))
        return np.concatenate([[by_power.sum(), by_rate], by_w])

    def readout(self, theta: FloatN, x: FloatN) -> FloatN:
        """See :class:`Part`."""
        return np.asarray((self._sines(theta, x) * self._powers(theta)) @ self._values(theta))

    def variance(self, theta: FloatN) -> FloatN:
        """See :class:`Part`."""
        return np.asarray(self._powers(theta) @ self._values(theta) ** 2)

    def _project(self, theta: FloatN, x: FloatN) -> FloatN:
        return np.asarray(x @ theta[2:] / (2 * math.sqrt(self.n)))

    def _sines(self, theta: FloatN, x: FloatN) -> FloatN:
        return np.asarray(np.sin(np.multiply.outer(self._project(theta, x), self.FREQUENCIES)))

    def _powers(self, theta: FloatN) -> FloatN:
        fall = np.exp(-self.FREQUENCIES * math.exp(theta[1]))
        return np.asarray(math.exp(theta[0]) * fall / fall.sum())

    def _values(self, theta: FloatN) -> FloatN:
        """float[K, n]: Shapley values of sin(Σ a_i x_i), 2 sin(a_i) ∫_0^1 Re Π_{j≠i} (cos a_j + i t sin a_j) dt."""
        angle = np.multiply.outer(self.FREQUENCIES, theta[2:] / (2 * math.sqrt(self.n)))
        t, weight = nodes(self.n)
        factor = np.cos(angle)[:, None, :] + 1j * t[:, None] * np.sin(angle)[:, None, :]
        others = _products_of_others(factor).real
        return np.asarray(2 * np.sin(angle) * np.einsum("t,ktn->kn", weight, others))


@dataclass(frozen=True)
class Size:
    """What players share, all alike before anything is known of them: u = f(how many are in), f odd.

    The curve of :class:`Ridge` over the sum of x, without weights of its own. Where answers are few, values are drawn
    towards each other instead of towards 0.
    """

    n: int

    @property
    def start(self) -> FloatN:
        """Prior mean of log Σ b and of the log of the rate at which b falls."""
        return np.array([-1.0, -0.4])

    @property
    def spread(self) -> FloatN:
        """Prior standard deviation."""
        return np.array([3.0, 0.7])

    def matrix(self, theta: FloatN, x: FloatN, y: FloatN) -> FloatN:
        """See :class:`Part`."""
        return self._curve.matrix(self._weighted(theta), x, y)

    def gradient(self, theta: FloatN, x: FloatN, weight: FloatN) -> FloatN:
        """See :class:`Part`."""
        return self._curve.gradient(self._weighted(theta), x, weight)[:2]

    def readout(self, theta: FloatN, x: FloatN) -> FloatN:
        """See :class:`Part`."""
        return self._curve.readout(self._weighted(theta), x)

    def variance(self, theta: FloatN) -> FloatN:
        """See :class:`Part`."""
        return self._curve.variance(self._weighted(theta))

    @property
    def _curve(self) -> Ridge:
        return Ridge(np.ones(self.n))

    def _weighted(self, theta: FloatN) -> FloatN:
        return np.append(theta, np.ones(self.n))


def _products_of_others(factor: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Π_{j≠i} along the last axis, without dividing: what comes before times what comes after."""
    ones = np.ones_like(factor[..., :1])
    before = np.cumprod(np.concatenate([ones, factor[..., :-1]], axis=-1), axis=-1)
    after = np.cumprod(np.concatenate([ones, factor[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    return np.asarray(before * after)
