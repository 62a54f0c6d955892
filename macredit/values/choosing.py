"""Which coalitions tell most about the values: each batch is chosen to leave the least total variance.

A Gaussian process's variances do not depend on the answers, so that the whole batch is chosen before any of it is
evaluated: pair after pair, each as if the ones before it were answered already (Krause, Singh and Guestrin 2008 choose
sensors so; the criterion is A-optimality for the Shapley values).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import solve_triangular

from macredit.rows import FloatN, IntN
from macredit.values import designs, odd
from macredit.values.answers import Answers, BoolCN, Plan, nothing
from macredit.values.process import Posterior, data_of
from macredit.values.tuning import TUNING_ROWS, without_curve

MOST_CHOSEN = 1000
"""Evaluations up to which choosing them is worth the time it takes."""
STAGES = (0.4, 0.6, 0.8, 1.0)
"""Shares of the pairs that are asked for when each batch ends: the first is drawn, the others are chosen."""
TIMES, POOL = 10, 1000
"""For every pair that is asked for so many are chosen from, equally many of each size, and so many in all at most."""
ROUGH = 1e-2
"""In place of ``tuning.TOLERANCE`` where a prior only chooses: finer fits choose no better."""


def batch(plan: Plan, answers: Answers) -> BoolCN:
    """The two ends and the first pairs of a design, then the pairs of the pool that tell most, both members of each."""
    in_all = designs.pairs_in_all(plan.n)
    pairs = min((plan.budget - 2) // 2, in_all)
    ends = [0, *(math.ceil(share * pairs) for share in STAGES), pairs]
    begun, until = ends[answers.rounds : answers.rounds + 2]
    if begun == until:
        return nothing(plan.n)
    pool = designs.paired(plan.n, min(TIMES * pairs, POOL, in_all), plan.seed)
    if not answers.rounds:
        return np.concatenate([odd.ends(plan.n), odd.with_complements(pool[:until])])
    pool = pool[answers.find(pool) < 0]
    return odd.with_complements(pool[_best(plan, answers, pool, until - begun)])


def _best(plan: Plan, answers: Answers, pool: BoolCN, count: int) -> IntN:
    """Rows of the pool; the first ones where the two ends, which every estimate needs, have no answer."""
    if np.isnan(answers.ends()).any():
        return np.arange(count)
    data = data_of(odd.pairs_of(plan, answers).interleaved(plan.seed), answers)
    prior, _ = without_curve(data.first(TUNING_ROWS), ROUGH)
    return chosen(Posterior(prior, data), np.where(pool, 1.0, -1.0), count)


def chosen(posterior: Posterior, x: FloatN, count: int) -> IntN:
    """``count`` of the rows ``x`` one after the other, each with the largest drop of Σ Var phi given those before it.

    Answering a row whose u has variance s and covariance c with phi lowers Σ Var phi by |c|² / s.
    """
    from macredit.values.choosing_kernel import greedy
    from macredit.values.lacking_kernels import packed

    prior, known = posterior.prior, posterior.known
    between = prior.between(posterior.data.x, x)
    seen = np.ascontiguousarray(solve_triangular(posterior.factor, between, lower=True, check_finite=False))
    told = prior.readout(x) - seen.T @ known
    variance = prior.diagonal(x) - (seen**2).sum(axis=0)
    return greedy(prior.kinds, prior.theta, *prior.features(x), packed(x), seen, told, variance, count)
