"""Exact values of single players from a full table of worths; bit i of its index says whether player i is in.

A semivalue is phi_i = Σ_{S∌i} p(|S|) (v(S∪i) − v(S)) = Σ_{S∋i} [p(|S|−1) + p(|S|)] v(S) − Σ_S p(|S|) v(S), p(n) = 0:
sums over the coalitions with i, less one number that is the same for all. They are linear and ignore null players.

Every function takes what :func:`macredit.values.table.as_table` takes, returns float[n] in the array library and
precision of its table, and raises ``UserError`` for a table that is no game and for a worth that is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from macredit.errors import UserError
from macredit.rows import FloatN
from macredit.values.table import TYPICAL, Table, as_array, as_table, library_of, like, not_finite, players_of

Weights = tuple[float, ...]
"""A weight for each size of a coalition."""


def shapley(table: Any) -> Any:
    """Shapley values: p(s) = s! (n−1−s)! / n!, the mean marginal worth over all orders (Shapley 1953).

    Keeps efficiency (Σ phi = v(N) − v(∅)), symmetry, the null player and linearity.
    """
    game = as_table(table)
    sums = weighted_sums(game, _shapley_inside(game.n))[:-1]
    surplus = sums.sum() - (game.worths[-1] - game.worths[0])
    return rounded(game, sums - surplus / game.n)


def banzhaf(table: Any) -> Any:
    """Banzhaf values: p(s) = 2^−(n−1), the mean marginal worth over all coalitions (Banzhaf 1965). Not efficient."""
    game = as_table(table)
    sums = weighted_sums(game, (0.5 ** (game.n - 2),) * (game.n + 1))
    return rounded(game, sums[:-1] - sums[-1] / 2)


def beta_shapley(table: Any, alpha: float, beta: float) -> Any:
    """Beta values: p(s) = B(s + beta, n − 1 − s + alpha) / B(alpha, beta) (Kwon and Zou 2022, arXiv:2110.14049).

    (1, 1) is Shapley; a larger alpha gives small coalitions more weight, a larger beta large ones.
    """
    game = as_table(table)
    if not (0 < alpha < math.inf and 0 < beta < math.inf):
        raise UserError(f"alpha {alpha} and beta {beta} were given; expected two positive numbers")
    return semivalue(game, _beta_weights(game.n, alpha, beta))


def semivalue(table: Any, weights: Sequence[float]) -> Any:
    """The semivalue of any weights: phi_i = Σ_{S∌i} weights[|S|] (v(S∪i) − v(S)) (Dubey, Neyman and Weber 1981).

    Args:
        table: a game of n players.
        weights: float[n], of a coalition of 0 … n−1 others; Σ_s C(n−1, s) weights[s] = 1 makes it a mean.

    Raises:
        UserError: not n finite weights.
    """
    game = as_table(table)
    outside = tuple(float(weight) for weight in weights)
    if len(outside) != game.n or not all(map(math.isfinite, outside)):
        raise UserError(f"weights {list(outside)} were given; expected {game.n} finite numbers, one for each size")
    inside = (0.0, *(a + b for a, b in zip(outside, (*outside[1:], 0.0), strict=True)))
    return rounded(game, weighted_sums(game, inside)[:-1] - weighted_sums(game, (*outside, 0.0))[-1])


@np.errstate(invalid="ignore", over="ignore")
def loo(table: Any) -> Any:
    """Leave-one-out: v(N) − v(N∖i). Not efficient: of two redundant players each gets 0. Reads n + 1 worths."""
    game = as_table(table)
    last = 2**game.n - 1
    without = like(last ^ 1 << np.arange(game.n), game.worths)
    return finished(game, game.worths[last] - game.worths[without])


@np.errstate(invalid="ignore", over="ignore")
def loi(table: Any) -> Any:
    """Leave-one-in: v({i}) − v(∅), what a player is worth alone. Reads n + 1 worths."""
    game = as_table(table)
    return finished(game, game.worths[like(1 << np.arange(game.n), game.worths)] - game.worths[0])


def shapley_batch(tables: Any) -> Any:
    """Shapley values of B games at once: float[2**n, B] (coalition-major) → float[n, B]; see :func:`shapley`."""
    worths = as_array(tables)
    if worths.ndim != 2:
        raise UserError(f"tables of shape {tuple(worths.shape)} were given; expected (2**n, games)")
    games = Table(worths, players_of(worths))
    inside = _shapley_inside(games.n)
    if games.native and games.n > 2:
        from macredit.values.batch_kernels import semivalue_batch

        outside = (*_shapley_outside(games.n), 0.0)
        return finished(games, semivalue_batch(worths, np.array(inside), np.array(outside)))
    sums = sums_by_folding(games, inside)[:-1]
    return finished(games, sums - (sums.sum(0) - (worths[-1] - worths[0])) / games.n)


def weighted_sums(game: Table, weights: Weights) -> Any:
    """Σ_{S∋i} weights[|S|] (v(S) − c) of every player i, then the sum over all S: float[n + 1].

    The constant c is a typical worth; it must not matter to the caller.

    Raises:
        UserError: a worth is not finite. The last sum shows it, as it holds every worth.
    """
    if game.native and game.n > 2:
        sums = kernels().singles(game.worths, rows_of(weights), centre_of(game))
        finite = math.isfinite(sums[-1])
    else:
        sums = sums_by_folding(game, weights)
        finite = bool(library_of(sums).isfinite(sums[-1]))
    if not finite:
        raise not_finite(game)
    return sums


def sums_by_folding(game: Table, weights: Weights) -> Any:
    """:func:`weighted_sums` in plain array operations, for one game (2**n) or a batch of them (2**n, B)."""
    weighted = weighted_worths(game, weights)
    return library_of(weighted).concat([superset_sums(weighted, 1), superset_sums(weighted, 0)])


@np.errstate(invalid="ignore", over="ignore")
def weighted_worths(game: Table, weights: Weights) -> Any:
    """weights[|S|] (v(S) − c) of every coalition; see :func:`weighted_sums`."""
    worths = game.worths
    by_coalition = np.array(weights)[np.bitwise_count(np.arange(2**game.n))]
    by_coalition = by_coalition.reshape(-1, *[1] * (worths.ndim - 1))
    return like(by_coalition, worths, worths.dtype) * (worths - centre_of(game))


def centre_of(game: Table) -> Any:
    """A typical worth, to subtract from all: the sums stay small, and an offset common to all costs no digits."""
    last = 2**game.n - 1
    typical = [game.worths[mask & last] for mask in TYPICAL]
    one, other = map(float, typical) if game.native and game.worths.ndim == 1 else typical
    return one / 2 + other / 2


def superset_sums(values: Any, size: int) -> Any:
    """Σ_{S⊇Q} values[S] for every set Q of ``size`` players, by ascending index of Q.

    Folding: sets with the last player need the upper half alone, sets without it the sum of both halves.
    """
    if size == 0:
        return values.sum(0)[None]
    half = len(values) // 2
    if half < 1 << (size - 1):
        return values[:0]
    lower, upper = values[:half], values[half:]
    return library_of(values).concat([superset_sums(lower + upper, size), superset_sums(upper, size - 1)])


def rounded(game: Table, values: Any) -> Any:
    """Values in the precision of the table."""
    return values.astype(game.worths.dtype, copy=False) if game.native else values


def finished(game: Table, values: Any) -> Any:
    """Values in the precision of the table.

    Raises:
        UserError: they are not finite, naming the coalition that made them so.
    """
    if not bool(library_of(values).isfinite(values).all()):
        raise not_finite(game)
    return rounded(game, values)


@cache
def kernels() -> ModuleType:
    """The compiled kernels, imported when the first table is worked on."""
    from macredit.values import kernels

    return kernels


@lru_cache(maxsize=64)
def rows_of(weights: Weights) -> FloatN:
    """Weights by size as the kernels read them."""
    rows: FloatN = kernels().weight_rows(np.array(weights))
    return rows


@cache
def _shapley_outside(n: int) -> Weights:
    return tuple(1 / (n * math.comb(n - 1, s)) for s in range(n))


@cache
def _shapley_inside(n: int) -> Weights:
    """The weight p(s−1) + p(s) in one rounding: 1 / ((n−1) C(n−2, s−1)), and p(n−1) = 1/n for all players together."""
    return (0.0, *(1 / ((n - 1) * math.comb(n - 2, s - 1)) for s in range(1, n)), 1 / n)


@lru_cache(maxsize=64)
def _beta_weights(n: int, alpha: float, beta: float) -> Weights:
    """B(s + beta, m − s + alpha) / B(alpha, beta) with m = n − 1, by rising factorials, in one rounding."""
    a, b, m = Fraction(alpha), Fraction(beta), n - 1
    whole = _rising(a + b, m)
    return tuple(float(_rising(b, s) * _rising(a, m - s) / whole) for s in range(n))


def _rising(x: Fraction, count: int) -> Fraction:
    """The product x (x+1) … (x+count−1)."""
    return math.prod((x + i for i in range(count)), start=Fraction(1))
