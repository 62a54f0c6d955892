"""Myerson and position values: credit of the players and of the links of a communication graph."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from macredit.rows import FloatN, IntN
from macredit.values.exact import shapley
from macredit.values.linear import Linear
from macredit.values.masks import grow, members_of
from macredit.values.structure import Graph, Link
from macredit.values.table import as_table

BLOCK = 2**20
"""Numbers held at once while links are valued."""


def myerson(table: Any, graph: Any) -> Any:
    """Myerson values: the Shapley values of what coalitions earn when only linked players can act together.

    v^g(S) = v(∅) + Σ_{C connected part of S} (v(C) − v(∅)) (Myerson 1977). The values of a connected part of the graph
    sum to its worth, centred: Σ_{i∈C} φ_i = v(C) − v(∅); a link's two ends gain the same from it. All linked: the
    Shapley value.

    Args:
        table: float[2**n] worths, as in :func:`~macredit.values.shapley`; unconnected coalitions are never read.
        graph: a networkx graph, pairs of players, or :class:`~macredit.values.structure.Graph`.

    Returns:
        float[n].

    Raises:
        UserError: no game, an unknown player, or a link from a player to itself.
    """
    game = as_table(table)
    links = Graph.of(graph, game.names or game.n)
    if game.native:
        from macredit.values.graph_kernel import restrict  # imports Numba

        return shapley(game._replace(worths=restrict(game.worths, links.near())))
    return myerson_weights(links).of_table(game)


def position(table: Any, graph: Any) -> dict[Link, Any]:
    """Position values of links: the Shapley values of the game in which the links, not the players, come and go.

    r(L) = Σ_{C connected part of (N, L)} (v(C) − v(∅)) (Meessen 1988; Borm, Owen and Tijs 1992). A link's value is what
    joining the two sides adds, averaged over all orders of links: with every player alone nothing is linked, so the
    values sum to v(N) − v(∅) − Σ_i (v(i) − v(∅)) on a connected graph.

    Computed from connected coalitions, not from the 2^m sets of links: φ_ij = Σ over disjoint connected A ∋ i, B ∋ j of
    (v(A∪B) − v(A) − v(B) + v(∅)) · ∫ R_A(t) R_B(t) (1−t)^b dt, with R_C(t) the chance that C hangs together when each
    link is there with chance t, and b the other links that leave A or B.

    Args:
        table: float[2**n] worths, as in :func:`~macredit.values.shapley`; unconnected coalitions are never read.
        graph: a networkx graph, pairs of players, or :class:`~macredit.values.structure.Graph`.

    Returns:
        Link → value, in the order of the links. A player's position value is its own v(i) − v(∅) and half of each of
        its links.

    Raises:
        UserError: no game, an unknown player, a link from a player to itself, or more than 2**22 ways to cut connected
            coalitions in two.
    """
    game = as_table(table)
    links = Graph.of(graph, game.names or game.n)
    return dict(zip(links.links(), position_weights(links).of_table(game), strict=True))


def myerson_weights(graph: Graph, led: bool = False) -> Linear:
    """:func:`myerson` as weights of the connected coalitions.

    A connected coalition acts from its last member's arrival until a neighbour's: with c members and m neighbours its
    worth counts (c−1)! m! / (c+m)! for each member and −c! (m−1)! / (c+m)! for each neighbour (Skibski, Michalak,
    Rahwan and Wooldridge 2014).

    Args:
        graph: who is linked to whom.
        led: the last player of the graph is always present and none of the game; others act only as far as links
            lead to it, so only coalitions connected to it are needed.
    """
    n = len(graph.players) - led
    coalitions = graph.coalitions()
    if led:
        coalitions = coalitions[coalitions > 1 << n]
    around = graph.around(coalitions)
    coalitions = coalitions & ((1 << n) - 1)
    joined = np.array([[1 / (c * math.comb(c + m, m)) if c else 0 for m in range(n + 1)] for c in range(n + 1)])
    size, edge = np.bitwise_count(coalitions), np.bitwise_count(around)
    gain, loss = joined[size, edge], -joined[edge, size]
    weights = np.stack([np.where(coalitions >> i & 1, gain, np.where(around >> i & 1, loss, 0)) for i in range(n)])
    return Linear(graph.players[:n], coalitions, weights)


def position_weights(graph: Graph) -> Linear:
    """:func:`position` as weights of the connected coalitions, one row a link."""
    coalitions = graph.coalitions()
    cuts = _cuts(graph, coalitions)
    share = _shares(graph, coalitions, cuts)
    whole, one = coalitions[cuts.whole], coalitions[cuts.one]
    weights = np.zeros((len(graph.edges), len(coalitions)))
    for row, (i, j) in zip(weights, graph.edges, strict=True):
        ends = 1 << i | 1 << j
        across = np.flatnonzero((whole & ends == ends) & (one >> i & 1 != one >> j & 1))
        for sign, part in ((1, cuts.whole), (-1, cuts.one), (-1, cuts.other)):
            row += sign * np.bincount(part[across], share[across], len(coalitions))
    return Linear(graph.players, coalitions, weights)


class _Cuts(NamedTuple):
    """All ways to cut a connected coalition into two connected ones; int[K] positions among the coalitions."""

    one: IntN
    other: IntN
    whole: IntN
    """Ascending by size, the cuts of one coalition together."""


def _cuts(graph: Graph, coalitions: IntN) -> _Cuts:
    """The side with the lowest player is any connected coalition; the other grows from its lowest link to that side."""
    lowest = coalitions & -coalitions
    around = graph.around(coalitions) & -lowest
    one, link = np.nonzero(members_of(around, len(graph.players)))
    start = 1 << link
    barred = coalitions[one] | (lowest[one] - 1) | (around[one] & (start - 1))
    other, one = grow(start, barred, graph.near(), one, "valuing the links of this graph needs two-part cuts of")
    whole = coalitions[one] | other
    order = np.lexsort((whole, np.bitwise_count(whole)))
    return _Cuts(one[order], *(np.searchsorted(coalitions, part[order]) for part in (other, whole)))


def _shares(graph: Graph, coalitions: IntN, cuts: _Cuts) -> FloatN:
    """float[K]: the integral of :func:`position` for every cut.

    R of a whole comes from its own cuts: R' = Σ k R_A R_B (1−t)^(k−1), k the links across. All integrands are
    polynomials of degree below the number of links, so that many Gauss points make them exact.
    """
    ends = [(coalitions >> i & 1) + (coalitions >> j & 1) for i, j in graph.edges]
    inside, leaving = (sum((end == count for end in ends), np.zeros_like(coalitions)) for count in (2, 1))
    across = inside[cuts.whole] - inside[cuts.one] - inside[cuts.other]
    t, weight, integral = _gauss(max(len(graph.edges), 1))
    absent = (1 - t) ** np.arange(len(graph.edges) + 1)[:, None]
    together = np.ones((len(coalitions), len(t)))
    share = np.empty(len(across))
    for begin, end, first in _blocks(coalitions, cuts.whole, BLOCK // len(t)):
        one, other, whole = (part[begin:end] for part in cuts)
        k = across[begin:end]
        both = together[one] * together[other]
        share[begin:end] = (both * absent[k - 1 + leaving[whole]]) @ weight
        together[whole[first]] = np.add.reduceat(k[:, None] * both * absent[k - 1], first) @ integral
    return share


def _blocks(coalitions: IntN, whole: IntN, most: int) -> Iterator[tuple[int, int, IntN]]:
    """(begin, end, where each whole begins in it) of about ``most`` cuts, wholes undivided and of one size."""
    first = np.flatnonzero(np.diff(whole, prepend=-1))
    size = np.bitwise_count(coalitions[whole[first]]).astype(np.int64)
    begins = np.flatnonzero(np.diff(size * len(whole) + first // (1 + most), prepend=-1))
    for here, there in pairwise([*begins, len(first)]):
        end = first[there] if there < len(first) else len(whole)
        yield first[here], end, first[here:there] - first[here]


def _gauss(points: int) -> tuple[FloatN, FloatN, FloatN]:
    """Gauss–Legendre points and weights on [0, 1], and the matrix from values at the points to integrals up to them."""
    x, weight = np.polynomial.legendre.leggauss(points)
    basis = np.polynomial.legendre.legvander(x, points)
    rise = basis[:, 1:] - np.hstack([-np.ones((points, 1)), basis[:, : points - 1]])  # ∫ (2k+1) P_k = P_{k+1} − P_{k−1}
    return (x + 1) / 2, weight / 2, weight[:, None] * basis[:, :points] @ rise.T / 4
