"""Shapley values when some players must come before others: only feasible orders count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from macredit.rows import IntN
from macredit.values.linear import Linear
from macredit.values.structure import Precedence
from macredit.values.table import as_table


def precedence(table: Any, dag: Any) -> Any:
    """Precedence-restricted Shapley values: the mean marginal over the orders in which everyone waits for its needs.

    φ_i = Σ_{S, S∪i feasible} e(S) · e*(S∪i) / e(N) · (v(S∪i) − v(S)), where e(S) counts the feasible orders of S and
    e*(T) those of the players outside T after T (Faigle and Kern 1992). Σφ = v(N) − v(∅). No precedence: the Shapley
    value.

    Args:
        table: float[2**n] worths, as in :func:`~macredit.values.shapley`; infeasible coalitions are never read.
        dag: (before, after) pairs, a ``networkx.DiGraph``, or :class:`~macredit.values.structure.Precedence`.

    Returns:
        float[n].

    Raises:
        UserError: no game, an unknown player, or a cycle.
    """
    game = as_table(table)
    return precedence_weights(Precedence.of(dag, game.names or game.n)).of_table(game)


def precedence_weights(order: Precedence) -> Linear:
    """:func:`precedence` as weights of the feasible coalitions."""
    coalitions = np.concatenate([np.zeros(1, np.int64), order.coalitions()])
    by_size = np.argsort(np.bitwise_count(coalitions), kind="stable")
    steps = list(_steps(coalitions[by_size], order.needs()))
    before, after = np.zeros((2, len(coalitions)))
    before[0] = after[-1] = 1
    for _, without, joined in steps:
        before[joined] += before[without]
    for _, without, joined in reversed(steps):
        after[without] += after[joined]
    weights = np.zeros((len(order.players), len(coalitions)))
    for i, without, joined in steps:
        share = before[without] / before[-1] * after[joined]
        weights[i, by_size[joined]] += share
        weights[i, by_size[without]] -= share
    return Linear(order.players, coalitions[1:], weights[:, 1:])


def _steps(coalitions: IntN, needs: IntN) -> Iterator[tuple[int, IntN, IntN]]:
    """(player, positions without it, positions with it) for all feasible arrivals, smaller coalitions first."""
    first = np.searchsorted(np.bitwise_count(coalitions), np.arange(len(needs) + 2))
    for size in range(len(needs)):
        here, larger = (coalitions[first[s] : first[s + 1]] for s in (size, size + 1))
        for i in range(len(needs)):
            can = np.flatnonzero((here >> i & 1 == 0) & (here & needs[i] == needs[i]))
            yield i, first[size] + can, first[size + 1] + np.searchsorted(larger, here[can] | 1 << i)
