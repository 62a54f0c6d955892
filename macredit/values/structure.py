"""What is known of who can act with whom (links, unions, an order), and which coalitions that makes matter.

Coalitions are listed from the structure, never by filtering all 2^n of them: a chain of 40 agents has 820.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import networkx as nx
import numpy as np

from macredit.errors import UserError, unknown
from macredit.rows import BoolN, IntN
from macredit.values.masks import MOST_BITS, check_size, grow, members_of, sums

Player = str | int
"""A name, or a number where players have no names."""
Players = tuple[Player, ...]
Link = tuple[Player, Player]


@dataclass(frozen=True, slots=True)
class Graph:
    """Links between players: only connected coalitions can act as one (Myerson 1977)."""

    players: Players
    edges: tuple[tuple[int, int], ...]
    """Pairs of player indices, each link once."""

    @classmethod
    def of(cls, links: Any, players: int | Sequence[Player]) -> Graph:
        """From a networkx graph (directions are ignored) or pairs of players; players without a link are alone.

        Raises:
            UserError: an unknown player, a link that is no pair, or one from a player to itself.
        """
        names = named(players)
        if isinstance(links, Graph):
            _same_players(links, names)
            return links
        once: dict[frozenset[int], tuple[int, int]] = {}
        for pair in _pairs(links, names):
            once.setdefault(frozenset(pair), pair)
        return cls(names, tuple(once.values()))

    def near(self) -> IntN:
        """int[n]: the neighbours of each player, as a mask."""
        near = [0] * len(self.players)
        for i, j in self.edges:
            near[i] |= 1 << j
            near[j] |= 1 << i
        return np.array(near, np.int64)

    def around(self, coalitions: IntN) -> IntN:
        """int[C]: the neighbours of coalitions, as masks."""
        around = np.zeros_like(coalitions)
        for i, near in enumerate(self.near()):
            around |= np.where(coalitions >> i & 1, near, 0)
        return around & ~coalitions

    def coalitions(self) -> IntN:
        """int[C]: the connected coalitions, ascending."""
        alone = 1 << np.arange(len(self.players))
        return np.sort(grow(alone, alone - 1, self.near(), alone, "a game on this graph needs the worths of")[0])

    def links(self) -> list[Link]:
        """The edges by the names of their ends."""
        return [(self.players[i], self.players[j]) for i, j in self.edges]

    def parts(self) -> list[list[Player]]:
        """The connected parts of the whole graph, in the order of their first players."""
        graph = nx.Graph(self.edges)
        graph.add_nodes_from(range(len(self.players)))
        return [[self.players[i] for i in sorted(part)] for part in sorted(nx.connected_components(graph), key=min)]


@dataclass(frozen=True, slots=True)
class Unions:
    """Groups that bargain as one before they share inside (Owen 1977): every player is in exactly one."""

    players: Players
    groups: tuple[tuple[int, ...], ...]
    """Player indices of each union."""

    @classmethod
    def of(cls, groups: Any, players: int | Sequence[Player]) -> Unions:
        """From lists of players.

        Raises:
            UserError: an unknown player, or a player in two unions or in none.
        """
        names = named(players)
        if isinstance(groups, Unions):
            _same_players(groups, names)
            return groups
        found = [[member(who, names) for who in listed(group, "union")] for group in listed(groups, "set of unions")]
        times = Counter(i for group in found for i in group)
        for i, who in enumerate(names):
            if times[i] != 1:
                given = f"listed {times[i]} times in the unions" if times[i] else "in no union"
                raise UserError(f"player {who!r} is {given}; put every player in exactly one, alone if need be")
        return cls(names, tuple(tuple(group) for group in found if group))

    @property
    def trivial(self) -> bool:
        """One union of all, or every player alone: as if there were none."""
        return len(self.groups) in (1, len(self.players))

    def masks(self) -> list[int]:
        """The unions as masks."""
        return [sum(1 << i for i in group) for group in self.groups]

    def coalitions(self) -> IntN:
        """int[C]: some members of one union with any whole other unions, ascending; at most Σ_k 2^(u−1) · 2^(b_k)."""
        u, shared = len(self.groups), [k for k, group in enumerate(self.groups) if len(group) > 1]
        check_size(
            2**u + sum(2 ** (u - 1 + len(self.groups[k])) for k in shared),
            "a game with these unions needs the worths of",
        )
        needed = [sums(self.masks()), *(self.around(k).ravel() for k in shared)]
        return np.unique(np.concatenate(needed))[1:]

    def around(self, k: int) -> IntN:
        """int[2**(u−1), 2**b]: every set of other whole unions, with every set of the members of union k."""
        masks = self.masks()
        return np.asarray(sums(masks[:k] + masks[k + 1 :])[:, None] + sums([1 << i for i in self.groups[k]]))


@dataclass(frozen=True, slots=True)
class Precedence:
    """Who must be there before whom (Faigle and Kern 1992): coalitions hold everyone their members need."""

    players: Players
    edges: tuple[tuple[int, int], ...]
    """(before, after) player indices; without cycles."""

    @classmethod
    def of(cls, order: Any, players: int | Sequence[Player]) -> Precedence:
        """From a directed networkx graph or (before, after) pairs.

        Raises:
            UserError: an unknown player, something that is no pair, a cycle, or a graph without directions.
        """
        names = named(players)
        if isinstance(order, Precedence):
            _same_players(order, names)
            return order
        if isinstance(order, nx.Graph) and not order.is_directed():
            raise UserError("a graph without directions was given; expected a networkx.DiGraph from before to after")
        edges = tuple(dict.fromkeys(_pairs(order, names)))
        graph = nx.DiGraph(edges)
        if not nx.is_directed_acyclic_graph(graph):
            cycle = [str(names[i]) for i, _ in nx.find_cycle(graph)]
            path = " → ".join([*cycle, cycle[0]])
            raise UserError(f"each of {path} must come before the next, which is a cycle; remove one of these edges")
        return cls(names, edges)

    def needs(self) -> IntN:
        """int[n]: who must be there before each player, as a mask."""
        needs = [0] * len(self.players)
        for before, after in self.edges:
            needs[after] |= 1 << before
        return np.array(needs, np.int64)

    def coalitions(self) -> IntN:
        """int[C]: the feasible coalitions, ascending."""
        graph = nx.DiGraph(self.edges)
        graph.add_nodes_from(range(len(self.players)))
        needs = self.needs()
        found = np.zeros(1, np.int64)
        for i in nx.topological_sort(graph):
            found = np.concatenate([found, found[found & needs[i] == needs[i]] | 1 << i])
            check_size(len(found), "a game with this precedence needs the worths of")
        return np.sort(found)[1:]


Structure = Graph | Unions | Precedence


def required_coalitions(structure: Any, players: int | Sequence[Player] | None = None) -> BoolN:
    """The coalitions whose worths the value of a structure needs, besides the empty one: evaluate only these.

    Links need the connected coalitions (a chain of 20: 210; a star: 2^(n−1) + n − 1), unions at most
    Σ_k 2^(u−1) · 2^(b_k), an order the feasible ones.

    Args:
        structure: a Graph, Unions or Precedence, or a networkx graph (directed: precedence).
        players: their names, or how many; by default those of the structure.

    Returns:
        bool[C, n], by ascending mask. v(∅) is needed as well where it is not 0.

    Raises:
        UserError: no structure, or one that needs more than 2**22 coalitions.
    """
    if isinstance(structure, nx.Graph):
        kind = Precedence if structure.is_directed() else Graph
        structure = kind.of(structure, tuple(structure.nodes) if players is None else players)
    elif not isinstance(structure, Structure):
        raise UserError(
            f"{repr(structure)[:60]} was given as a structure; expected a Graph, Unions, Precedence or networkx graph"
        )
    elif players is not None:
        _same_players(structure, named(players))
    return members_of(structure.coalitions(), len(structure.players))


def member(who: Any, players: Players) -> int:
    """The index of a player; a number and its text are one name, since players without names are numbered."""
    places = _places(players)
    if str(who) not in places:
        raise unknown("player", str(who), places)
    return places[str(who)]


@lru_cache(maxsize=64)
def _places(players: Players) -> dict[str, int]:
    return {str(player): i for i, player in enumerate(players)}


def named(players: int | Sequence[Player]) -> Players:
    """Players by name; numbers where only their count is known.

    Raises:
        UserError: none, more than 62, or two with one name.
    """
    names = tuple(range(players)) if isinstance(players, int) else tuple(players)
    if not 1 <= len(names) <= MOST_BITS:
        raise UserError(f"{len(names)} players were given; expected 1 to {MOST_BITS} of them with a structure")
    twice = [name for name, count in Counter(map(str, names)).items() if count > 1]
    if twice:
        raise UserError(f"{twice[0]!r} names two players; give each its own name")
    return names


def _same_players(structure: Structure, players: Players) -> None:
    if tuple(map(str, structure.players)) != tuple(map(str, players)):
        raise UserError(
            f"a structure of the players {', '.join(map(str, structure.players))} was given for a game of "
            f"{', '.join(map(str, players))}; expected the same players in the same order"
        )


def _pairs(links: Any, players: Players) -> list[tuple[int, int]]:
    """Pairs of player indices from a networkx graph or any pairs of players."""
    if isinstance(links, nx.Graph):
        for node in links.nodes:
            member(node, players)
        links = list(links.edges())
    pairs = []
    for link in listed(links, "graph"):
        ends = [member(who, players) for who in listed(link, "link")]
        if len(ends) != 2:
            raise UserError(f"a link is {repr(link)[:60]}; expected a pair of players")
        if ends[0] == ends[1]:
            raise UserError(f"player {players[ends[0]]!r} is linked to itself; expected links between two players")
        pairs.append((ends[0], ends[1]))
    return pairs


def listed(given: Any, kind: str) -> list[Any]:
    """The members of a list; text and mappings are none."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise UserError(f"a {kind} is {repr(given)[:60]}; expected a list")
    return list(given)
