"""Linear values of games with noisy scores: what they need, and how sure they are.

A linear value is φ = M v. With n_S scores of coalition S, φ̂ = M v̄ and Var φ̂_i = Σ_S M_iS² σ_S² / n_S.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from macredit.errors import UserError
from macredit.rows import FloatN, IntN
from macredit.values.answers import Answers, Fit
from macredit.values.game import coalition_name
from macredit.values.linear import Linear
from macredit.values.masks import masks_of, members_of

FloatPC = npt.NDArray[np.float64]
"""float[P, C]: one value a row, the weight of one coalition's worth a column."""

PRIOR = 3
"""How many scores the variance of a size counts for in that of one coalition, and that of all in that of a size."""
COIN = 0.5
"""Squares that scores of 0 and 1 are taken to have had in one score more."""


class Design(NamedTuple):
    """A linear value as what it needs: values = matrix @ worths of these coalitions."""

    n: int
    """Players."""
    masks: IntN
    """int[C]: the coalitions with a weight, ascending; bit i says whether player i is in."""
    matrix: FloatPC
    """float[P, C]: M."""

    @property
    def sizes(self) -> IntN:
        """int[C]: players of each coalition."""
        return np.bitwise_count(self.masks).astype(np.int64)

    @property
    def odd(self) -> bool:
        """Whether M_iS = −M_i,N∖S, so that values depend only on differences v(S) − v(N∖S)."""
        whole = np.array_equal(self.masks, (2**self.n - 1 - self.masks)[::-1])
        return whole and np.allclose(self.matrix, -self.matrix[:, ::-1], rtol=1e-9, atol=0)

    @property
    def half(self) -> Design:
        """Of an odd value, one member of each pair, the smaller: values = matrix @ (v(S) − v(N∖S))."""
        size = 2 * self.sizes
        kept = (size < self.n) | ((size == self.n) & (self.masks < 2 ** (self.n - 1)))
        return Design(self.n, self.masks[kept], self.matrix[:, kept])


@dataclass(frozen=True, slots=True)
class Tallies:
    """What the scores of each coalition of a design come to."""

    count: IntN
    """int[C]."""
    mean: FloatN
    """float[C]; 0 without a score."""
    squares: FloatN
    """float[C]: sum of squared deviations from the mean."""


class Variances(NamedTuple):
    """How much one score of each coalition differs from its mean."""

    own: FloatN
    """float[C]."""
    of_size: FloatN
    """float[C]: of the coalitions of the same size together."""
    freedom: int
    """Scores beyond the first of each coalition."""


def shapley_design(n: int) -> Design:
    """The Shapley value: M_iS = (s − 1)! (n − s)! / n! with player i in S, −s! (n − s − 1)! / n! without."""
    return semivalue_design(n, [1 / (n * math.comb(n - 1, s)) for s in range(n)])


def semivalue_design(n: int, weights: Sequence[float]) -> Design:
    """M_iS = w(s − 1) with player i in S, −w(s) without.

    Args:
        n: players.
        weights: float[n], w(s) of each coalition of s others.
    """
    around = np.array([0.0, *weights, 0.0])
    size = np.bitwise_count(np.arange(2**n)).astype(np.int64)
    used = np.flatnonzero((around[size] != 0) | (around[size + 1] != 0))
    size = size[used]
    return Design(n, used, np.where(members_of(used, n).T, around[size], -around[size + 1]))


def design_of(index: Callable[[Any], Any], n: int) -> Design:
    """Any linear index, column by column: its value of the game that is worth 1 for one coalition alone.

    Args:
        index: float[2**n] → array of any shape, linear; ``shapley``, ``banzhaf``, ``interactions`` …
        n: players.
    """
    columns = []
    for mask in range(2**n):
        unit = np.zeros(2**n)
        unit[mask] = 1.0
        columns.append(np.asarray(index(unit), np.float64).ravel())
    matrix = np.stack(columns, axis=1)
    used = np.flatnonzero(np.any(matrix != 0, axis=0))
    return Design(n, used, matrix[:, used])


def design_of_linear(linear: Linear) -> Design:
    """The value of a structure; the empty coalition's weight makes every row sum to 0."""
    empty = -linear.weights.sum(axis=1, keepdims=True)
    return Design(len(linear.players), linear.needed, np.concatenate([empty, linear.weights], axis=1))


def tallies_of(answers: Answers) -> Tallies:
    """A session's answers as tallies of all 2**n coalitions."""
    n = answers.coalitions.shape[1]
    masks = masks_of(answers.coalitions, n)
    found = Tallies(np.zeros(2**n, np.int64), np.zeros(2**n), np.zeros(2**n))
    found.count[masks], found.mean[masks], found.squares[masks] = answers.count, answers.mean, answers.squares
    return found


def variances(design: Design, tallies: Tallies, caution: int = PRIOR) -> Variances:
    """Variance of one score of each coalition.

    Few scores say little about their own spread: a coalition's sample variance is drawn towards that of its size, and
    that towards the variance of all, weighing as much as ``PRIOR`` and ``caution`` scores. Where every score is 0 or 1,
    ``COIN`` joins the squares of all, as a Beta prior does: ten successes out of ten do not rule failure out.
    Without any repeated score every variance is 1.
    """
    count, mean, squares = tallies.count, tallies.mean, tallies.squares
    degrees = np.maximum(count - 1, 0)
    freedom = int(degrees.sum())
    if not freedom:
        return Variances(np.ones(len(count)), np.ones(len(count)), 0)
    coin = np.allclose(squares, count * mean * (1 - mean))
    of_all = (squares.sum() + COIN) / (freedom + 1) if coin else squares.sum() / freedom
    size = design.sizes
    of_size = ((np.bincount(size, squares) + caution * of_all) / (np.bincount(size, degrees) + caution))[size]
    return Variances((squares + PRIOR * of_size) / (degrees + PRIOR), of_size, freedom)


def linear_fit(design: Design, tallies: Tallies, *, noise: bool = True) -> Fit:
    """Values M v̄ with Var φ_i = Σ_S M_iS² σ_S² / n_S.

    Standard errors are 0 without noise, NaN where no score was repeated.

    Raises:
        UserError: a coalition has no score.
    """
    complete(design.masks, design.masks[tallies.count > 0], tuple(map(str, range(design.n))))
    values = design.matrix @ tallies.mean
    if not noise:
        return Fit(values, np.zeros(len(values)))
    spread = variances(design, tallies)
    if not spread.freedom:
        return Fit(values, np.full(len(values), np.nan))
    parts = design.matrix**2 * (spread.own / tallies.count)
    return Fit(values, np.sqrt(parts.sum(axis=1)), _freedom(parts, design.sizes, tallies.count))


def _freedom(parts: FloatPC, sizes: IntN, count: IntN) -> float:
    """Satterthwaite's degrees of freedom of Σ_S M_iS² σ_S² / n_S, the least of any value.

    Coalitions of one size pool their degrees, since their variances are drawn together.
    """
    degrees = np.bincount(sizes, count - 1) + 1
    by_size = np.stack([np.bincount(sizes, row) for row in parts])
    below, total = (by_size**2 / degrees).sum(axis=1), parts.sum(axis=1)
    known = below > 0
    return float((total[known] ** 2 / below[known]).min()) if known.any() else math.inf


def clustered_fit(design: Design, masks: IntN, tasks: IntN, scores: FloatN) -> Fit:
    """Values of scores on tasks, with standard errors that let scores on one task depend on each other.

    With e = (score − mean of its coalition) · sqrt(n_S / (n_S − 1)), the variance of :func:`linear_fit` is multiplied
    by Σ_t (Σ_{S on t} M_iS e / n_S)² / Σ_t Σ_{S on t} (M_iS e / n_S)², which is 1 where no two scores share a task.

    Args:
        design: the value.
        masks: int[E], the coalition of each score; those without a weight are ignored.
        tasks: int[E], the task it was played on.
        scores: float[E].

    Raises:
        UserError: a coalition has no score.
    """
    used = np.isin(masks, design.masks)
    masks, tasks, scores = masks[used], tasks[used], scores[used]
    every = summary(design, masks, scores)
    found = linear_fit(design, every)
    order = np.argsort(tasks, kind="stable")
    starts = np.flatnonzero(np.diff(tasks[order], prepend=np.int64(-1)))
    if len(starts) == len(scores):
        return found
    column = np.searchsorted(design.masks, masks)[order]
    often = np.maximum(every.count, 2)
    terms = design.matrix[:, column] * ((scores[order] - every.mean[column]) / np.sqrt(often * (often - 1.0))[column])
    apart, joint = (terms**2).sum(axis=1), (np.add.reduceat(terms, starts, axis=1) ** 2).sum(axis=1)
    clusters = len(starts)
    factor = np.divide(joint, apart, out=np.ones_like(apart), where=apart > 0) * clusters / max(clusters - 1, 1)
    return Fit(found.values, found.stderr * np.sqrt(factor), min(found.dof, max(clusters - 1.0, 1.0)))


def summary(design: Design, masks: IntN, scores: FloatN) -> Tallies:
    """Counts, means and squares of a design's coalitions from single scores."""
    column, size = np.searchsorted(design.masks, masks), len(design.masks)
    count = np.bincount(column, minlength=size)
    mean: FloatN = np.bincount(column, scores, size) / np.maximum(count, 1)
    squares: FloatN = np.bincount(column, (scores - mean[column]) ** 2, size).astype(np.float64)
    return Tallies(count, mean, squares)


def complete(needed: IntN, scored: IntN, players: tuple[str, ...]) -> None:
    """Every needed coalition has a score.

    Raises:
        UserError: one has none.
    """
    missing = np.setdiff1d(needed, scored)
    if len(missing):
        raise UserError(
            f"{len(needed) - len(missing)} of {len(needed)} coalitions that are needed have a score; "
            f"{coalition_name(players, int(missing[0]))} has none; score each of them"
        )
