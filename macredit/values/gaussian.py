"""A Gaussian process on the odd part of a game: the estimate for few evaluations of any game.

Every interaction of odd order has a Gaussian prior (see :mod:`macredit.values.odd_kernels`); its variances are fitted
to the answers, and Shapley values are read out of the posterior in closed form.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from macredit.rows import FloatN
from macredit.values import choosing, leverage, odd, stratified
from macredit.values.answers import Answers, BoolCN, Fit, Plan
from macredit.values.process import Data, Posterior, Prior, data_of
from macredit.values.tuning import TUNING_ROWS, first_part, tuned, widening

WIDENING_ROWS = 200
"""Pairs that tell by how much not knowing the prior widens the intervals: a covariance of them a parameter."""
MOST_ROWS = 5000
"""Pairs that the posterior is conditioned on; all the others serve its correction."""


def smallest(n: int) -> int:
    """The two ends and a pair; both coalitions of a single player."""
    return min(1 << n, 4)


def batch(plan: Plan, answers: Answers) -> BoolCN:
    """What :mod:`macredit.values.choosing` chooses of a game without noise and few evaluations, else `odd.design`.

    Between looks of a stopping rule the design is drawn too, so that what was seen has no part in it.
    """
    fixed = plan.noise or plan.blocks or plan.budget > choosing.MOST_CHOSEN
    return odd.design(plan, answers) if fixed else choosing.batch(plan, answers)


def fit(plan: Plan, answers: Answers) -> Fit:
    """Posterior mean and standard deviation of the Shapley values, the latter for a prior known as well as it is.

    Pairs beyond ``MOST_ROWS`` are not conditioned on: the stratified mean of their residuals estimates the posterior
    mean's error without bias, and both are weighed by their variances.
    """
    pairs = odd.pairs_of(plan, answers).interleaved(plan.seed)
    simple = leverage.of_pairs(pairs)
    if _additive(pairs, simple.values):
        return Fit(simple.values, np.zeros(plan.n))
    data = data_of(pairs, answers)
    few = data.first(TUNING_ROWS)
    prior, curve = tuned(few)
    known = data.doubt < 1  # repeats show the noise, and it is most of the error
    wider, dof = (1.0, float(len(data.odd))) if known else widening(prior, data.first(WIDENING_ROWS))
    near = Posterior(prior, data.first(MOST_ROWS))
    values = near.values * data.unit
    variance = near.variance * data.unit**2 * wider * max(near.surprise, 1.0)
    if curve:
        variance = np.maximum(variance, _tested(curve, data, pairs))
    if not known and data.stepped:
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


def _tested(curve: Prior, data: Data, pairs: odd.Pairs) -> FloatN:
    """float[n]: variance of the values if a prior that is fitted to two thirds misses all pairs as it does the others.

    A curve whose weights explain few answers is too sure of itself; this is how sure it can be.
    """
    known = first_part(min(len(pairs.odd), MOST_ROWS))
    missed = _missed(Posterior(curve, data.first(known)), data.unit, pairs, known)
    return missed.stderr**2 + float(np.mean(missed.values**2))


def _missed(posterior: Posterior, unit: float, pairs: odd.Pairs, known: int) -> Fit:
    """An unbiased estimate of a posterior mean's error, from the pairs after the ``known`` first ones."""
    others, left = pairs.after(known)
    missed = others.odd - unit * posterior.at(others.signs)
    return stratified.of_pairs(replace(others, odd=missed * left, total=0.0))
