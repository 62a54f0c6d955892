"""A Gaussian process on the odd part of a game: the estimate for few evaluations of any game.

Every interaction of odd order has a Gaussian prior (see :mod:`macredit.values.odd_kernels`); its variances are fitted
to the answers, and Shapley values are read out of the posterior in closed form.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from macredit.rows import FloatN
from macredit.values import leverage, odd, stratified
from macredit.values.answers import Answers, BoolCN, Fit, Plan
from macredit.values.process import Data, Posterior, Prior
from macredit.values.tuning import maximised, tuned, widening

TUNING_ROWS = 400
"""Pairs that the prior is fitted to."""
WIDENING_ROWS = 200
"""Pairs that tell by how much not knowing the prior widens the intervals: one likelihood a parameter."""
MOST_ROWS = 5000
"""Pairs that the posterior is conditioned on; all the others serve its correction."""
GUESS = 0.1
"""Share of the noise in the mean square of the answers, where no repeated answer shows it."""
DOUBT, FEW = 0.3, 50
"""How well repeated answers tell the logarithm of the noise's variance, and repeats that double its variance."""
MOST_LEVELS, DIGITS = 4, 9
"""Sizes of u, to so many digits, that make a game one of steps: a pair of 0/1 worths has two, the ends may add one."""


def smallest(n: int) -> int:
    """The two ends and a pair; both coalitions of a single player."""
    return min(1 << n, 4)


def batch(plan: Plan, answers: Answers) -> BoolCN:
    """See :func:`odd.design`."""
    return odd.design(plan, answers)


def fit(plan: Plan, answers: Answers) -> Fit:
    """Posterior mean and standard deviation of the Shapley values, the latter for a prior known as well as it is.

    Pairs beyond ``MOST_ROWS`` are not conditioned on: the stratified mean of their residuals estimates the posterior
    mean's error without bias, and both are weighed by their variances.
    """
    pairs = odd.pairs_of(plan, answers)
    simple = leverage.of_pairs(pairs)
    if _additive(pairs, simple.values):
        return Fit(simple.values, np.zeros(plan.n))
    data = _rows(pairs, answers)
    few = data.first(TUNING_ROWS)
    prior, curved = tuned(few)
    known = data.doubt < 1  # repeats show the noise, and it is most of the error
    wider, dof = (1.0, float(len(data.odd))) if known else widening(prior, data.first(WIDENING_ROWS))
    near = Posterior(prior, data.first(MOST_ROWS))
    values = near.values * data.unit
    variance = near.variance * data.unit**2 * wider * max(near.surprise, 1.0)
    if curved:
        variance = np.maximum(variance, _tested(prior, few, data, pairs))
    if not known and _stepped(data):
        variance = np.fmax(variance, simple.stderr**2)
    if len(pairs.odd) > MOST_ROWS:
        error = _missed(near, data.unit, pairs, MOST_ROWS)
        trust = variance / (variance + error.stderr**2)
        values, variance = values + trust * error.values, (1 - trust) * variance
    if not pairs.noisy:
        values += (pairs.total - values.sum()) / plan.n
    return Fit(values, np.sqrt(variance), dof)


def _additive(pairs: odd.Pairs, values: FloatN) -> bool:
    """Whether single players explain every answer, and there are more answers than players."""
    missed = pairs.odd - (pairs.members - 0.5) @ values
    return len(missed) > len(values) and bool(np.abs(missed).max() <= 1e-10 * np.abs(pairs.odd).max())


def _stepped(data: Data) -> bool:
    """Whether answers jump between a few levels, as a vote's do: answers that agree say little about the next jump.

    No smooth prior knows how sure it may be of such a game; the regression's residuals do.
    """
    return len(np.unique(np.round(np.abs(data.odd), DIGITS))) <= MOST_LEVELS


def _tested(prior: Prior, few: Data, data: Data, pairs: odd.Pairs) -> FloatN:
    """float[n]: variance of the values if a prior that is fitted to two thirds misses all pairs as it does the others.

    A curve whose weights explain few answers is too sure of itself; this is how sure it can be.
    """
    some = few.first(2 * len(few.odd) // 3)
    known = 2 * min(len(pairs.odd), MOST_ROWS) // 3
    tested = Posterior(maximised(prior.parts, some)[0], data.first(known))
    missed = _missed(tested, data.unit, pairs, known)
    return missed.stderr**2 + float(np.mean(missed.values**2))


def _missed(posterior: Posterior, unit: float, pairs: odd.Pairs, known: int) -> Fit:
    """An unbiased estimate of a posterior mean's error, from the pairs after the ``known`` first ones."""
    others, left = pairs.after(known)
    missed = others.odd - unit * posterior.at(others.signs)
    return stratified.of_pairs(replace(others, odd=missed * left, total=0.0))


def _rows(pairs: odd.Pairs, answers: Answers) -> Data:
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
