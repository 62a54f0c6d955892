"""Weighted Shapley values: players of unequal weight share what they can only earn together in proportion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from macredit.errors import UserError
from macredit.rows import FloatN, IntN
from macredit.values.masks import sums
from macredit.values.structure import Players, member, named
from macredit.values.table import as_table, library_of, like, not_finite


def weighted_shapley(table: Any, weights: Any) -> Any:
    """Weighted Shapley values: the mean marginal over orders drawn from the back, the last player with chance ∝ weight.

    φ_i = Σ_{S∋i} P(S) · w_i / w(S) · (v(S) − v(S∖i)), P(S) the chance that exactly S came first; the surplus of a
    unanimity game is shared in proportion to the weights (Shapley 1953, thesis; Kalai and Samet 1987).
    Σφ = v(N) − v(∅). Equal weights: the Shapley value; the scale of the weights does not matter.

    Players of weight 0 come before all others, in equally likely orders: they earn only what they add to each other,
    the limit of small equal weights (a weight system of two classes).

    Args:
        table: float[2**n] worths, as in :func:`~macredit.values.shapley`.
        weights: n numbers ≥ 0, or a mapping from every player to one.

    Returns:
        float[n].

    Raises:
        UserError: no game, not one weight for every player, or a weight that is negative or not finite.
    """
    game = as_table(table)
    worths, leaves = game.worths, _leaving(_checked(weights, named(game.names or game.n)))
    if not bool(library_of(worths).isfinite(worths).all()):
        raise not_finite(game)
    values = []
    for i in range(game.n):
        v, chance = worths.reshape(-1, 2, 1 << i), like(leaves(i).reshape(-1, 2, 1 << i)[:, 1], worths, worths.dtype)
        values.append(((v[:, 1] - v[:, 0]) * chance).sum())
    return library_of(worths).stack(values)


def _leaving(weight: FloatN) -> Callable[..., FloatN]:
    """Player i → float[2**n]: the chance that players come as coalition S and that i, in S, comes last of it."""
    n = len(weight)
    total, rate = sums(weight), np.zeros(2**n)
    light = total == 0

    def leaves(i: int, at: IntN | slice = slice(None)) -> FloatN:
        return np.asarray(rate[at] * (weight[i] if weight[i] > 0 else light[at]))

    coalitions = np.arange(2**n)
    size = np.bitwise_count(coalitions)
    rate[-1] = 1 / (total[-1] or n)
    for s in range(n - 1, 0, -1):
        here = coalitions[size == s]
        for i in range(n):
            without = here[here >> i & 1 == 0]
            rate[without] += leaves(i, without | 1 << i)
        rate[here] /= np.where(light[here], s, total[here])
    return leaves


def _checked(weights: Any, players: Players) -> FloatN:
    if isinstance(weights, Mapping):
        given = {member(who, players): weight for who, weight in weights.items()}
        weights = [given.get(i, np.nan) for i in range(len(players))]
    try:
        weight = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        raise UserError("the weights hold something that is no number; expected one for each player") from None
    if weight.shape != (len(players),):
        raise UserError(f"weights of shape {weight.shape} were given; expected one for each of {len(players)} players")
    for who, w in zip(players, weight, strict=True):
        if not 0 <= w < np.inf:
            raise UserError(f"the weight of player {who!r} is {w}; expected a finite number, 0 or more")
    return weight
