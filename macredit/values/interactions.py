"""Interactions: what the players of a set are worth together beyond what its parts are worth.

Every index here is linear in the Möbius coefficients m of the game, I(S) = Σ_{T⊇S} f(|S|, |T|) m(T), so the function f
defines it. In the worths themselves it reads I(S) = Σ_{Q⊆S} Σ_{T⊇Q} b(|T|) v(T) with weights b for each |S| and |Q|,
worked out in exact fractions. The inner sums come from folding the table; m, whose entries can be large, is not needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from macredit.errors import UserError, unknown
from macredit.rows import FloatN, IntN
from macredit.values.exact import (
    Weights,
    centre_of,
    finished,
    rows_of,
    superset_sums,
    weighted_sums,
    weighted_worths,
)
from macredit.values.table import Table, as_table, library_of, like


@np.errstate(invalid="ignore", over="ignore")
def interactions(table: Any, index: str = "sii", order: int = 2) -> Any:
    """Interactions of all sets of up to ``order`` players.

    * ``sii``: Shapley interaction (Grabisch and Roubens 1999); single players get their Shapley values.
    * ``bii``: Banzhaf interaction (Grabisch and Roubens 1999).
    * ``k-sii``: the SII aggregated so that all entries sum to v(N) − v(∅) (Bordt and von Luxburg 2023,
      arXiv:2209.04012); for order 2 single players get phi_i − ½ Σ_j SII_ij.
    * ``stii``: Shapley–Taylor (Dhamdhere, Agarwal and Sundararajan 2020, arXiv:1902.05622), sums likewise.
    * ``fsii``: faithful Shapley interaction (Tsai, Yeh and Ravikumar 2023, arXiv:2203.00870), sums likewise.

    Args:
        table: a game; see :func:`macredit.values.table.as_table`.
        index: one of the names above.
        order: the largest size of a set, at least 1.

    Returns:
        float[n] * order, a symmetric tensor in the library of ``table``: the entry [i, j, …] belongs to the set
        {i, j, …}, so that [i, i] is the value of {i}.

    Raises:
        UserError: no game, an unknown index, an order below 1, or a worth that is not finite.
    """
    game = as_table(table)
    if index not in INDICES:
        raise unknown("interaction index", index, INDICES)
    if not isinstance(order, int) or order < 1:
        raise UserError(f"order {order!r} was given; expected a whole number from 1, the largest size of a set")
    by_size: list[Any] = []
    if game.native and game.n > 2 and order > 1:
        matrix = _matrix(game, index, order)
        if order == 2:
            return finished(game, matrix)
        first, second = _sets(game.n, 2)[0].T
        by_size = [matrix.diagonal(), matrix[first, second]]
    by_size += [_of_size(game, index, order, r) for r in range(len(by_size) + 1, min(order, game.n) + 1)]
    values = library_of(game.worths).concat(by_size)
    return finished(game, values[like(_places(game.n, order), game.worths)])


def _matrix(game: Table, index: str, order: int) -> FloatN:
    """The interactions of all pairs, with those of single players on the diagonal: float[n, n]."""
    from macredit.values.pair_kernels import pairs

    worths = game.worths.astype(np.float64, copy=False)
    matrix, base = pairs(worths, _pair_rows(index, order, game.n), centre_of(game))
    inside = weighted_sums(game, _weights(index, order, 1, game.n)[1])[:-1]
    matrix.ravel()[:: game.n + 1] = inside + base
    return matrix


@lru_cache(maxsize=64)
def _pair_rows(index: str, order: int, n: int) -> FloatN:
    """The weights of pairs by |Q| and the weight of all worths in a single player's value, as the kernel reads them."""
    weights = (*_weights(index, order, 2, n), _weights(index, order, 1, n)[0])
    return np.stack([rows_of(by_size) for by_size in weights], 1)


def _of_size(game: Table, index: str, order: int, r: int) -> Any:
    """The interactions of all sets of r players, by ascending index of the set."""
    weights = _weights(index, order, r, game.n)
    if game.native and game.n > 2 and r == 1:
        return weighted_sums(game, weights[1])[:-1] + weighted_sums(game, weights[0])[-1]
    sums = [superset_sums(weighted_worths(game, weights[q]), q) for q in range(r + 1)]
    parts = [sums[q][like(_subsets(game.n, r, q), game.worths)].sum(1) for q in range(r + 1)]
    return sum(parts[1:], start=parts[0])


def _sii(_order: int, r: int, t: int) -> Fraction:
    return Fraction(1, t - r + 1)


def _bii(_order: int, r: int, t: int) -> Fraction:
    return Fraction(1, 2 ** (t - r))


def _k_sii(order: int, r: int, t: int) -> Fraction:
    """Σ_R B_|R| SII(S∪R) over the sets R of up to order − r others, with the Bernoulli numbers B."""
    extra = range(min(order, t) - r + 1)
    return sum((_bernoulli(q) * math.comb(t - r, q) * _sii(order, r + q, t) for q in extra), Fraction())


def _stii(order: int, r: int, t: int) -> Fraction:
    return Fraction(1, math.comb(t, r)) if r == order else Fraction(t == r)


def _fsii(order: int, r: int, t: int) -> Fraction:
    if t <= order:
        return Fraction(t == r)
    sign = 1 if (order - r) % 2 == 0 else -1
    ways = Fraction(math.comb(order, r) * math.comb(t - 1, order), math.comb(t + order - 1, order + r))
    return sign * ways * r / (order + r)


INDICES: dict[str, Callable[[int, int, int], Fraction]] = {
    "bii": _bii,
    "fsii": _fsii,
    "k-sii": _k_sii,
    "sii": _sii,
    "stii": _stii,
}
"""f(order, |S|, |T|): the share of the Möbius coefficient of T that its subset S gets."""


@cache
def _bernoulli(k: int) -> Fraction:
    """The Bernoulli numbers 1, −1/2, 1/6, 0, −1/30, and so on."""
    if k == 0:
        return Fraction(1)
    return -sum((math.comb(k + 1, j) * _bernoulli(j) for j in range(k)), Fraction()) / (k + 1)


@lru_cache(maxsize=64)
def _weights(index: str, order: int, r: int, n: int) -> tuple[Weights, ...]:
    """The weights b by |Q| = 0 … r and |T| = 0 … n, for the sets S of r players."""
    by_overlap = [[_weight(index, order, r, t, j, n) if t >= j else 0 for t in range(n + 1)] for j in range(r + 1)]
    return tuple(
        tuple(
            float(sum((-1) ** (q - j) * math.comb(q, j) * by_overlap[j][t] for j in range(q + 1))) for t in range(n + 1)
        )
        for q in range(r + 1)
    )


def _weight(index: str, order: int, r: int, t: int, j: int, n: int) -> Fraction:
    """The weight of v(T) in I(S) for |T| = t and |S∩T| = j: through every m(U) with U ⊇ S∪T."""
    union = r + t - j
    return sum(
        ((-1) ** (u - t) * math.comb(n - union, u - union) * INDICES[index](order, r, u) for u in range(union, n + 1)),
        Fraction(),
    )


@lru_cache(maxsize=64)
def _sets(n: int, size: int) -> tuple[IntN, IntN]:
    """Members int[C, size] and indices int[C] of all sets of a size, by ascending index."""
    members = np.array(list(combinations(range(n), size)), np.int64).reshape(math.comb(n, size), size)
    masks = (1 << members).sum(1)
    order = np.argsort(masks)
    return members[order], masks[order]


@lru_cache(maxsize=64)
def _subsets(n: int, r: int, q: int) -> IntN:
    """int[C(n, r), C(r, q)]: for every set of r players, the places of its subsets of q among all sets of q."""
    members, _ = _sets(n, r)
    columns = np.array(list(combinations(range(r), q)), np.int64).reshape(math.comb(r, q), q)
    places: IntN = np.searchsorted(_sets(n, q)[1], (1 << members[:, columns]).sum(-1))
    return places


@lru_cache(maxsize=64)
def _places(n: int, order: int) -> IntN:
    """int[n] * order: where the set of an entry stands among all sets by size, then by index."""
    masks = np.bitwise_or.reduce(1 << np.indices((n,) * order))
    known = np.concatenate([_sets(n, size)[1] for size in range(1, min(order, n) + 1)])
    sorting = np.argsort(known)
    places: IntN = sorting[np.searchsorted(known, masks, sorter=sorting)]
    return places
