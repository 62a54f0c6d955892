"""Owen and Owen–Banzhaf values: unions of players bargain as one, then share inside."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from macredit.values.exact import banzhaf, shapley
from macredit.values.linear import Linear
from macredit.values.masks import members_of
from macredit.values.structure import Unions
from macredit.values.table import as_table


def owen(table: Any, unions: Any) -> Any:
    """Owen values: the mean marginal over the orders in which every union arrives together.

    φ_i = Σ_{H ⊆ M∖k} Σ_{S ⊆ B_k∖i} h!(u−h−1)!/u! · s!(b−s−1)!/b! · (v(Q∪S∪i) − v(Q∪S)), where i is in union k of b
    players and Q are the players of the unions H among all u unions M (Owen 1977). Σφ = v(N) − v(∅), and a union earns
    its Shapley value in the game between unions. One union, or unions of one player each: the Shapley value.

    Args:
        table: float[2**n] worths, as in :func:`~macredit.values.shapley`.
        unions: lists of players, or :class:`~macredit.values.structure.Unions`.

    Returns:
        float[n].

    Raises:
        UserError: no game, an unknown player, or a player in two unions or in none.
    """
    game = as_table(table)
    groups = Unions.of(unions, game.names or game.n)
    return shapley(table) if groups.trivial else owen_weights(groups).of_table(game)


def owen_banzhaf(table: Any, unions: Any) -> Any:
    """Owen–Banzhaf values: all coalitions count alike on both levels, 2^−(u−1) · 2^−(b−1) (Owen 1982). Not efficient.

    One union, or unions of one player each: the Banzhaf value. See :func:`owen`.
    """
    game = as_table(table)
    groups = Unions.of(unions, game.names or game.n)
    return banzhaf(table) if groups.trivial else owen_banzhaf_weights(groups).of_table(game)


def owen_weights(unions: Unions) -> Linear:
    """:func:`owen` as weights of the coalitions it needs."""
    return _weights(unions, lambda m: [1 / (m * math.comb(m - 1, s)) for s in range(m)])


def owen_banzhaf_weights(unions: Unions) -> Linear:
    """:func:`owen_banzhaf` as weights of the coalitions it needs."""
    return _weights(unions, lambda m: [0.5 ** (m - 1)] * m)


def _weights(unions: Unions, semivalue: Callable[[int], list[float]]) -> Linear:
    """One semivalue on both levels: among m, a newcomer's marginal to s others counts ``semivalue(m)[s]``."""
    coalitions = np.concatenate([np.zeros(1, np.int64), unions.coalitions()])
    weights = np.zeros((len(unions.players), len(coalitions)))
    between = np.array(semivalue(len(unions.groups)))
    for k, group in enumerate(unions.groups):
        at = np.searchsorted(coalitions, unions.around(k))
        outside = between[np.bitwise_count(np.arange(len(at)))]
        inside = members_of(np.arange(2 ** len(group)), len(group)).T
        size = inside.sum(0)
        joined = np.array([0.0, *semivalue(len(group)), 0.0])
        for i, present in zip(group, inside, strict=True):
            weights[i, at] = outside[:, None] * np.where(present, joined[size], -joined[size + 1])
    return Linear(unions.players, coalitions[1:], weights[:, 1:])
