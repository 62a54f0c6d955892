"""Stratified sampling: unbiased, one mean for every player and size of coalition; a pair serves all players."""

from __future__ import annotations

import numpy as np

from macredit.rows import FloatN
from macredit.values import odd
from macredit.values.answers import Answers, BoolCN, Fit, Plan


def smallest(n: int) -> int:
    """The ends and a pair of every size."""
    return 2 + 2 * (n // 2)


def batch(plan: Plan, answers: Answers) -> BoolCN:
    """See :func:`odd.design`."""
    return odd.design(plan, answers)


def fit(plan: Plan, answers: Answers) -> Fit:
    """phi_i = 1/n Σ_{s=1}^{n} mean of 2 u(S) over coalitions S of s players with i.

    Every coalition serves all players (Kolpaczki et al. 2024, arXiv 2302.00736); a pair gives u(S) to the players of S
    and −u(S) to the others. A player without a sample at some size takes the mean over all players there, and the line
    from −u(N) to u(N) where no coalition of a size is answered. The errors of the strata add up, each with the part of
    its finite population that is still unknown.
    """
    return of_pairs(odd.pairs_of(plan, answers))


def of_pairs(pairs: odd.Pairs) -> Fit:
    """The same for pairs of any odd function of coalitions; see :func:`fit`."""
    n = pairs.members.shape[1]
    count, total, squares = (_strata(pairs, power) for power in range(3))
    mean = np.where(count > 0, total / np.maximum(count, 1), _typical(pairs, total, count))
    variance = np.maximum(squares - total * mean, 0) / np.maximum(count - 1, 1)
    many = count > 1
    pooled = float(variance[many].mean()) if many.any() else np.nan
    share = np.zeros(n + 1)
    share[pairs.size] = share[n - pairs.size] = pairs.share
    spread = np.where(many, variance, pooled) / np.maximum(count, 1) * (1 - share[1:n, None])
    values = (mean.sum(axis=0) + pairs.total) / n
    values += (pairs.total - values.sum()) / n
    return Fit(values, np.sqrt(spread.sum(axis=0) + pairs.total_variance) / n, max(float(len(pairs.odd)) - n + 1, 1.0))


def _strata(pairs: odd.Pairs, power: int) -> FloatN:
    """float[n − 1, n]: Σ (2 u)^power over the answered coalitions of each size 1 … n − 1 that hold each player."""
    n = pairs.members.shape[1]
    of_size = (np.arange(n + 1)[:, None] == pairs.size).astype(np.float64)
    value = ((2 * pairs.odd) ** power)[:, None]
    inside, outside = pairs.members * value, ~pairs.members * value * (-1) ** power
    return np.asarray((of_size @ inside + of_size[::-1] @ outside)[1:n])


def _typical(pairs: odd.Pairs, total: FloatN, count: FloatN) -> FloatN:
    """float[n − 1, 1]: mean of 2 u over all players and coalitions of a size."""
    n = pairs.members.shape[1]
    line = pairs.total * (2 * np.arange(1, n) / n - 1)
    everyone = count.sum(axis=1)
    return np.asarray(np.where(everyone > 0, total.sum(axis=1) / np.maximum(everyone, 1), line)[:, None])
