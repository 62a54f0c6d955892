"""Antithetic permutations: the mean marginal of each player over random orders; unbiased, from one pass an order."""

from __future__ import annotations

import numpy as np

from macredit.errors import UserError
from macredit.rows import FloatN, IntN
from macredit.values import designs
from macredit.values.answers import Answers, BoolCN, Fit, Plan, keys_of, nothing
from macredit.values.stopping import sample_variance

FIRST_BLOCK = 8
"""Orders in the first block when a stopping rule looks between blocks; each later block doubles the total."""


def smallest(n: int) -> int:
    """One order: nobody, each longer prefix, everybody."""
    return n + 1


def batch(plan: Plan, answers: Answers) -> BoolCN:
    """All orders the budget allows, or the next block of them; a coalition already answered costs nothing.

    Of a noisy game every prefix of every order is evaluated anew, the two ends included.
    """
    total = _affordable(plan)
    begun = min(FIRST_BLOCK << (answers.rounds - 1), total) if answers.rounds else 0
    until = min(FIRST_BLOCK << answers.rounds, total) if plan.blocks else total
    if until <= begun or (answers.rounds and not plan.blocks):
        return nothing(plan.n)
    rows = designs.prefixes(designs.orders(plan.n, begun, until - begun, plan.seed))
    if plan.noise:
        return rows
    rows = rows[np.sort(np.unique(keys_of(rows), return_index=True)[1])]
    return rows[answers.find(rows) < 0]


def fit(plan: Plan, answers: Answers) -> Fit:
    """phi_i = mean over orders of v(before i ∪ i) − v(before i) (Castro et al. 2009), in antithetic pairs.

    Every order's marginals sum to v(N) − v(∅), so the values do. The standard error is that of the mean of the pairs;
    see :func:`sample_variance`.

    Raises:
        UserError: not one order is answered whole.
    """
    order = designs.orders(plan.n, 0, _affordable(plan), plan.seed)
    worth = answers.worths(designs.prefixes(order)).reshape(len(order), plan.n + 1)
    marginal = np.empty(order.shape)
    np.put_along_axis(marginal, order, np.diff(worth, axis=1), axis=1)
    marginal = _paired(marginal)
    if not len(marginal):
        raise UserError("no order of the players is answered whole; tell the answers to every coalition asked for")
    units = len(marginal)
    variance = sample_variance(marginal) / units
    if plan.noise:
        variance += _shared_noise(answers, order)
    return Fit(marginal.mean(axis=0), np.sqrt(variance), max(units - 1.0, 1.0), None if plan.noise else marginal)


def _shared_noise(answers: Answers, order: IntN) -> FloatN:
    """float[n]: variance from noise that orders share and that their spread therefore does not show.

    A coalition with k answers whose mean enters m of the P marginals of a player adds m² σ²/k / P², of which the
    spread shows m σ²/k / P².
    """
    orders, n = order.shape
    at = answers.find(designs.prefixes(order)).reshape(orders, n + 1)
    uses = np.concatenate([(at[:, 1:] * n + order).ravel(), (at[:, :-1] * n + order).ravel()])
    which, m = np.unique(uses, return_counts=True)
    shared = (m * m - m) * answers.noise / answers.count[which // n] / orders**2
    return np.asarray(np.bincount(which % n, weights=shared, minlength=n), np.float64)


def _paired(marginal: FloatN) -> FloatN:
    """Means of each order and its reverse; where only whole single orders exist, those."""
    pairs = (marginal[0:-1:2] + marginal[1::2]) / 2
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    return pairs if len(pairs) else marginal[np.isfinite(marginal).all(axis=1)]


def _affordable(plan: Plan) -> int:
    """How many orders the budget pays for; pairs are kept whole where there is one."""
    if plan.noise:
        return _even(plan.budget // (plan.n + 1))
    order: IntN = designs.orders(plan.n, 0, 2 * (plan.budget // max(plan.n - 1, 1) + 1), plan.seed)
    keys = keys_of(designs.prefixes(order))
    first = np.zeros(len(keys), np.int64)
    first[np.unique(keys, return_index=True)[1]] = 1
    cost = np.cumsum(first.reshape(len(order), -1).sum(axis=1))
    return _even(int(np.searchsorted(cost, plan.budget, side="right")))


def _even(orders: int) -> int:
    return orders - orders % 2 if orders > 1 else orders
