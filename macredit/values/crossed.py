"""Values of scores on shared tasks: coalitions that played the same task are compared on it.

Only differences δ(S) = v(S) − v(N∖S) matter for an odd value, one with M_iS = −M_i,N∖S. Each task scores several of
them, so that their errors depend on each other. Were a task either too hard for a coalition or not, they would have
the covariance of a bridge, sign(δ δ') R min(|δ|, |δ'|) − δ δ' for scores that span R: coalitions as good as each other
fail together, and what tells them apart is known far better than either. How much of that there is beside independent
noise is read from the products of residuals on one task, 0 where there is none.

All δ have the Gaussian prior of :mod:`macredit.values.gaussian`, with its interactions of players but without curves.
The values are a little biased towards games with few interactions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.sparse import block_diag, csr_array
from scipy.special import erf

from macredit.rows import FloatN, IntN
from macredit.seeds import generator
from macredit.values.answers import Fit
from macredit.values.masks import members_of
from macredit.values.noisy import Design, Tallies, clustered_fit, summary, variances
from macredit.values.odd_kernels import Additive, Product
from macredit.values.process import Data
from macredit.values.tuning import TUNING_ROWS, maximised

PAIRS = range(8, 2049)
"""Pairs of coalitions that are worth smoothing, and that one covariance holds."""
LEAST_TOGETHER = 3
"""Pairs that a task is played by, however few the players."""
MOST_TOGETHER = 128
"""Pairs on one task whose joint covariance is still inverted."""
DOUBT = 0.3
"""How well repeated scores tell the logarithm of the noise's variance."""
LEAST = 0.01
"""Independent noise of a difference that there is at least, as a part of the squared span of scores."""
MOST_GAINED = 1.5
"""By how much variances are trusted to be below those of means of scores: a fitted prior does not show where it is
wrong, and decides more the fewer scores there are for each coalition."""
OWN = 0.01
"""Variance that each difference has of its own besides the prior's, as a part of their mean square."""


class Played(NamedTuple):
    """Differences of the two scores of each pair on each task, task by task."""

    pair: IntN
    """int[R]: a column of the design's half."""
    score: FloatN
    """float[R]: of the smaller member less that of its complement; means where a task was played again."""
    times: IntN
    """int[R]: how often it was played."""
    starts: IntN
    """int[T]: where each task begins."""

    @property
    def tasks(self) -> list[slice]:
        """The rows of each task."""
        ends = [*self.starts[1:].tolist(), len(self.pair)]
        return [slice(start, end) for start, end in zip(self.starts.tolist(), ends, strict=True)]


class Guess(NamedTuple):
    """What the differences seem to be when all noise is taken as independent."""

    mean: FloatN
    """float[P]."""
    spread: FloatN
    """float[P]: standard deviation of each."""

    def of(self, pairs: IntN) -> Guess:
        """Of some of the pairs."""
        return Guess(self.mean[pairs], self.spread[pairs])


class Noise(NamedTuple):
    """Covariance of differences on one task: shared · bridge + own · identity / times."""

    shared: float
    own: float
    span: float

    def covariance(self, guess: Guess, times: IntN) -> FloatN:
        """float[R, R] of the rows of one task, given what they seem to be."""
        return self.shared * bridge(guess, self.span) + np.diag(self.own / times)


def together(design: Design) -> int:
    """How many pairs a task is played by, half as many as players; 1 where they would not be compared."""
    return max(LEAST_TOGETHER, design.n // 2) if _suits(design) else 1


def crossed_fit(design: Design, masks: IntN, tasks: IntN, scores: FloatN) -> Fit | None:
    """Posterior mean and standard deviation of an odd value; None where scores do not lend themselves to it.

    They do if each coalition was scored on the same tasks as its complement, some tasks by several pairs, and some
    pairs more than once.

    Args:
        design: the value.
        masks: int[E], the coalition of each score, all with a weight.
        tasks: int[E], the task it was played on.
        scores: float[E].
    """
    if not _suits(design):
        return None
    half = design.half
    played = played_of(design, masks, tasks, scores)
    if played is None or len(played.starts) == len(played.pair):
        return None
    if np.diff(played.starts, append=len(played.pair)).max() > MOST_TOGETHER:
        return None
    every = summary(half, half.masks[played.pair], played.score)
    if not (every.count.all() and every.squares.any() and every.mean.any()):
        return None
    covariance, guess, parameters = _smoothed(half, every)
    noise = _noise_of(played, guess, float(np.ptp(scores)))
    fit = _posterior(half, covariance, played, guess, noise)
    rows = len(played.pair)
    told = fit.stderr * math.sqrt(rows / max(rows - parameters, 1.0))
    unsmoothed = clustered_fit(design, masks, tasks, scores).stderr
    return fit._replace(stderr=np.maximum(told, unsmoothed / math.sqrt(MOST_GAINED)))


def _suits(design: Design) -> bool:
    return len(design.masks) // 2 in PAIRS and design.odd


def played_of(design: Design, masks: IntN, tasks: IntN, scores: FloatN) -> Played | None:
    """The scores as differences; None if a coalition's complement was not scored on one of its tasks."""
    half = design.half.masks
    lower = np.isin(masks, half)
    pair = np.searchsorted(half, np.where(lower, masks, 2**design.n - 1 - masks))
    label, row = np.unique(np.stack([tasks, pair]), axis=1, return_inverse=True)
    row = row.ravel()
    here, there = np.bincount(row, lower), np.bincount(row, ~lower)
    if not (here.all() and there.all()):
        return None
    difference: FloatN = np.bincount(row, scores * lower) / here - np.bincount(row, scores * ~lower) / there
    starts = np.flatnonzero(np.diff(label[0], prepend=np.int64(-1)))
    return Played(label[1], difference, np.minimum(here, there).astype(np.int64), starts)


def bridge(guess: Guess, span: float) -> FloatN:
    """float[R, R]: covariance of outcomes that are 0 or ``span`` by one common difficulty, given their differences.

    What is not known of a difference adds to its own variance: the mean of |δ| is above |mean of δ|.
    """
    mean, spread = np.clip(guess.mean, -span, span), np.maximum(guess.spread, 1e-12)
    size = np.abs(mean)
    expected = spread * math.sqrt(2 / math.pi) * np.exp(-0.5 * (size / spread) ** 2) + size * erf(
        size / spread / 2**0.5
    )
    sign = np.sign(mean)
    joint = np.outer(sign, sign) * span * np.minimum.outer(size, size) - np.outer(mean, mean)
    return np.asarray(joint + np.diag(span * (expected - size)))


def _smoothed(half: Design, every: Tallies) -> tuple[FloatN, Guess, float]:
    """What the scores tell if all noise is independent.

    Returns:
        Prior covariance of all differences, what they seem to be, and how many parameters that takes up.
    """
    n = half.n
    x = np.where(members_of(half.masks, n), 1.0, -1.0)
    noise = variances(half, every).of_size / every.count
    unit = math.sqrt(float(np.mean(every.mean**2)))
    draws = np.log(generator("crossed", n).random(len(x))) / every.count  # weighted by scores, without replacement
    some = np.append(1 + np.argsort(-draws[1:])[:TUNING_ROWS], 0)  # nobody against everybody comes last
    data = Data(x[some], every.mean[some] / unit, noise[some] / unit**2, unit, DOUBT)
    prior, _ = maximised([Additive(n), Product(n, 1.0)], data)
    covariance = unit**2 * (prior.between(x, x) + OWN * np.eye(len(x)))
    inverse = np.linalg.inv(covariance + np.diag(noise))
    known = 1 - noise * np.diagonal(inverse)
    guess = Guess(covariance @ (inverse @ every.mean), np.sqrt(np.maximum(noise * known, 0.0)))
    return covariance, guess, float(known.sum())


def _noise_of(played: Played, guess: Guess, span: float) -> Noise:
    """Shares of shared and of independent noise, from products of residuals on one task."""
    joint = apart = own = seen = 0.0
    for rows in played.tasks:
        here = guess.of(played.pair[rows])
        missed, shared = played.score[rows] - here.mean, bridge(here, span)
        product, others = np.outer(missed, missed), ~np.eye(len(missed), dtype=np.bool_)
        joint, apart = joint + float(product[others] @ shared[others]), apart + float((shared[others] ** 2).sum())
        own += float(played.times[rows] @ missed**2)
        seen += float(played.times[rows] @ np.diagonal(shared))
    share = min(max(joint / apart, 0.0), 1.0) if apart else 0.0
    return Noise(share, max((own - share * seen) / len(played.pair), LEAST * span**2), span)


def _posterior(half: Design, covariance: FloatN, played: Played, guess: Guess, noise: Noise) -> Fit:
    """Values given all scores: with W = Σ_t Ω_t⁻¹ and b = Σ_t Ω_t⁻¹ d_t, the mean is (I + K W)⁻¹ K b."""
    inverses = [
        np.linalg.inv(noise.covariance(guess.of(played.pair[rows]), played.times[rows])) for rows in played.tasks
    ]
    by_row = block_diag(inverses, format="csr")
    where = csr_array(
        (np.ones(len(played.pair)), (np.arange(len(played.pair)), played.pair)), (len(played.pair), len(covariance))
    )
    told = where.T @ (by_row @ played.score)
    system = np.asarray((where.T @ by_row @ where) @ covariance).T  # K W; both are symmetric
    system[np.diag_indices_from(system)] += 1
    found = np.linalg.solve(system, covariance @ np.column_stack([told, half.matrix.T]))
    mean, spread = found[:, 0], half.matrix @ found[:, 1:]
    energy = float(played.score @ (by_row @ played.score) - told @ mean)  # dᵀ (H K Hᵀ + Ω)⁻¹ d, near the rows' number
    stderr = np.sqrt(np.diagonal(spread) * max(energy / len(played.pair), 1.0))
    return Fit(half.matrix @ mean, stderr, max(len(played.starts) - 1.0, 1.0))
