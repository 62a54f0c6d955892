"""When enough is known: intervals that hold however the moment to stop was chosen, and rules that look at them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from macredit.errors import UserError
from macredit.rows import FloatN

POOLED = 2
"""How many samples the variance of all players counts for in that of one."""
FEWEST = 16
"""Samples below which nothing is said about their distribution at all times."""


class Looked(Protocol):
    """What a rule looks at: an estimate with its intervals."""

    def interval(self, level: float = 0.95, *, anytime: bool = False) -> FloatN:
        """float[n, 2]."""


class Stop(Protocol):
    """A stopping rule."""

    def settled(self, estimate: Looked) -> bool:
        """Whether the estimate is good enough to stop."""


@dataclass(frozen=True, slots=True)
class Width:
    """Stop when every player's interval is at most this wide."""

    width: float
    level: float = 0.95

    def __post_init__(self) -> None:
        if not self.width > 0:
            raise UserError(f"the width is {self.width!r}; expected a number above 0")
        _check(self.level)

    def settled(self, estimate: Looked) -> bool:
        """Whether every interval is narrow enough."""
        interval = estimate.interval(self.level, anytime=True)
        return bool((np.diff(interval, axis=1) <= self.width).all())


@dataclass(frozen=True, slots=True)
class Ranking:
    """Stop when the order of the players is settled: with this probability, all pairs are in their true order."""

    level: float = 0.95

    def __post_init__(self) -> None:
        _check(self.level)

    def settled(self, estimate: Looked) -> bool:
        """Whether no two intervals overlap."""
        interval = _together(estimate, self.level)
        low, high = interval[np.argsort(interval[:, 0])].T
        return bool((high[:-1] < low[1:]).all())


@dataclass(frozen=True, slots=True)
class Sign:
    """Stop when it is settled who helps and who harms: with this probability, every sign is right."""

    level: float = 0.95

    def __post_init__(self) -> None:
        _check(self.level)

    def settled(self, estimate: Looked) -> bool:
        """Whether no interval holds 0."""
        low, high = _together(estimate, self.level).T
        return bool(((low > 0) | (high < 0)).all())


def student_interval(values: FloatN, stderr: FloatN, dof: float, level: float) -> FloatN:
    """Values ± t · stderr: float[n, 2]; for one look at a time fixed beforehand."""
    _check(level)
    at = 0.5 + level / 2
    radius = (ndtri(at) if math.isinf(dof) else stdtrit(dof, at)) * stderr
    return np.stack([values - radius, values + radius], axis=1)


def sample_variance(samples: FloatN) -> FloatN:
    """float[n]: variance of each column of float[U, n] samples, drawn towards the mean variance of all columns.

    A few samples that agree do not say that all would: a player whose marginal is rarely not 0 is the rule in a vote.
    NaN for a single sample.
    """
    units, n = samples.shape
    if units < 2:
        return np.full(n, np.nan)
    own = samples.var(axis=0, ddof=1)
    return np.asarray(((units - 1) * own + POOLED * own.mean()) / (units - 1 + POOLED))


def anytime_interval(samples: FloatN, span: float | None, level: float) -> FloatN:
    """Intervals for the mean of each column that hold at all times together.

    With a ``span`` (samples lie in [−span, span]): the empirical Bernstein sequence with predictable mixing
    (Waudby-Smith and Ramdas 2024, arXiv 2010.09686, theorem 2). Without: the asymptotic sequence (Waudby-Smith et al.
    2024, arXiv 2103.06476), infinite before there are ``FEWEST`` samples.

    Args:
        samples: float[U, n] independent rows in the order they were drawn.
        span: highest minus lowest possible worth, or None.
        level: probability.

    Returns:
        float[n, 2]
    """
    _check(level)
    if span is None:
        return _asymptotic(samples, level)
    unit = (samples + span) / (2 * span)
    centre, radius = _bernstein(unit, 1 - level)
    return np.clip(np.stack([centre - radius, centre + radius], axis=1), 0, 1) * 2 * span - span


def _bernstein(x: FloatN, alpha: float) -> tuple[FloatN, FloatN]:
    """Centre and radius for the mean of rows in [0, 1]: each row's weight depends on earlier rows alone."""
    t = np.arange(1, len(x) + 1)[:, None]
    mean = (0.5 + np.cumsum(x, axis=0)) / (t + 1)
    variance = (0.25 + np.cumsum((x - mean) ** 2, axis=0)) / (t + 1)
    mean = np.concatenate([np.full((1, x.shape[1]), 0.5), mean[:-1]])
    variance = np.concatenate([np.full((1, x.shape[1]), 0.25), variance[:-1]])
    bet = np.minimum(np.sqrt(2 * math.log(2 / alpha) / (variance * t * np.log1p(t))), 0.5)
    price = (-np.log1p(-bet) - bet) * (x - mean) ** 2
    total = bet.sum(axis=0)
    return (bet * x).sum(axis=0) / total, (math.log(2 / alpha) + price.sum(axis=0)) / total


def _asymptotic(x: FloatN, level: float) -> FloatN:
    """The normal boundary at t samples, replaced by the Student boundary of the same probability of missing."""
    t, alpha = len(x), 1 - level
    if t < FEWEST:
        return np.stack([np.full(x.shape[1], -np.inf), np.full(x.shape[1], np.inf)], axis=1)
    tight = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / 32  # ρ² tightest near 32 samples
    normal = math.sqrt(2 * (t * tight + 1) / (t * tight) * math.log(math.sqrt(t * tight + 1) / alpha))
    radius = -stdtrit(t - 1, ndtr(-normal)) * np.sqrt(sample_variance(x) / t)
    return np.stack([x.mean(axis=0) - radius, x.mean(axis=0) + radius], axis=1)


def _together(estimate: Looked, level: float) -> FloatN:
    """Intervals that hold for all players at once: each spends its share of the error (Bonferroni)."""
    n = len(estimate.interval(level))
    return estimate.interval(1 - (1 - level) / n, anytime=True)


def _check(level: float) -> None:
    if not 0 < level < 1:
        raise UserError(f"the level is {level!r}; expected a probability between 0 and 1")
