"""The price of an accuracy, before anything is spent.

With scores allocated as in :mod:`macredit.values.allocation`, B of them give Σ_i Var φ_i = (Σ_S sqrt(a_S) σ_S)² / B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from macredit.errors import UserError
from macredit.rows import FloatN

SPREAD = math.sqrt(0.2)
"""Standard deviation of one score: of 0/1 outcomes, 0.5 at a success rate of a half, sqrt(0.2) over coalitions whose
success rates vary moderately (mean and spread of a Beta(2, 2))."""


@dataclass(frozen=True, slots=True)
class Price:
    """What an accuracy costs in evaluations."""

    evaluations: int
    """With the best allocation. Where these are fewer than ``coalitions``, scoring each of them costs more than the
    accuracy needs, and an estimate from some of them adds its own error to that of the noise."""
    equal: float
    """With the same number of scores for every coalition."""
    coalitions: int
    """How many coalitions have a weight in the index."""


def price(
    n: int,
    accuracy: float,
    *,
    spread: float = SPREAD,
    weights: Sequence[float] | None = None,
) -> Price:
    """Evaluations for a root mean squared error of ``accuracy`` in a semivalue of ``n`` players.

    B = (Σ_s C(n, s) sqrt(a_s) σ)² / (n · accuracy²), a_s = s w(s − 1)² + (n − s) w(s)².

    Args:
        n: players.
        accuracy: root mean squared error of one player's value.
        spread: standard deviation of one score of one coalition.
        weights: float[n], the weight w(s) of each coalition of s others; None: the Shapley value's.

    Raises:
        UserError: a number that cannot be meant.
    """
    if n < 1:
        raise UserError(f"{n} players were given; expected at least 1")
    log_count = _log_binomials(n)
    log_energy = _log_energies(n, weights)
    used = np.isfinite(log_energy)
    coalitions = sum(math.comb(n, int(s)) for s in np.flatnonzero(used))
    best = float(np.exp(log_count[used] + log_energy[used] / 2).sum()) ** 2
    with np.errstate(over="ignore"):
        equal = float(np.exp(log_count[used] + log_energy[used] + math.log(coalitions)).sum())
    return _price(best / n, equal / n, coalitions, accuracy, spread)


def price_of(matrix: FloatN, accuracy: float, *, spread: float = SPREAD) -> Price:
    """The same for any linear index by its matrix float[P, C], such as ``needed(indices).matrix`` of a scoring."""
    energy = (matrix**2).sum(axis=0)
    coalitions = int((energy > 0).sum())
    values = len(matrix)
    return _price(
        float(np.sqrt(energy).sum()) ** 2 / values,
        float(energy.sum()) * coalitions / values,
        coalitions,
        accuracy,
        spread,
    )


def _price(best: float, equal: float, coalitions: int, accuracy: float, spread: float) -> Price:
    if not 0 < accuracy < math.inf:
        raise UserError(f"an accuracy of {accuracy} was given; expected a root mean squared error above 0")
    if not 0 <= spread < math.inf:
        raise UserError(f"a spread of {spread} was given; expected the standard deviation of one score")
    ratio = spread / accuracy
    evaluations = best * ratio * ratio * (1 - 1e-12)
    if math.isinf(evaluations):
        raise UserError(f"an accuracy of {accuracy} was given; no number of evaluations buys that; give a larger one")
    return Price(math.ceil(evaluations), equal * ratio * ratio, coalitions)


def _log_binomials(n: int) -> FloatN:
    """float[n + 1]: log C(n, s)."""
    return np.array([math.lgamma(n + 1) - math.lgamma(s + 1) - math.lgamma(n - s + 1) for s in range(n + 1)])


def _log_energies(n: int, weights: Sequence[float] | None) -> FloatN:
    """float[n + 1]: log a_s; −inf where no value depends on coalitions of that size."""
    size = np.arange(n + 1)
    if weights is None:
        log_weight = -math.log(n) - _log_binomials(n - 1)
    else:
        if len(weights) != n:
            raise UserError(f"{len(weights)} weights were given; expected {n}, one for each number of others")
        with np.errstate(divide="ignore"):
            log_weight = np.log(np.abs(np.asarray(weights, np.float64)))
    with np.errstate(divide="ignore"):
        inside = np.log(size) + 2 * np.concatenate([[-np.inf], log_weight])
        outside = np.log(n - size) + 2 * np.concatenate([log_weight, [-np.inf]])
    energy: FloatN = np.logaddexp(inside, outside)
    return energy
