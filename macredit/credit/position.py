"""Position values: credit of the channels between agents, from silencing agents alone.

The Shapley values of the team's links (each both ways) in the game in which links come and go, and agents that are not
linked to the orchestrator are silent. An agent gets what it earns without links and half of each of its links.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from macredit.credit.coalitions import Value, asked_with, replays, scored, valued
from macredit.credit.games import Needs, Solved, none, solve, some
from macredit.credit.method import Credits, Method
from macredit.credit.payout import link_credit
from macredit.rows import Rows
from macredit.team import Team
from macredit.values.graph import position_weights
from macredit.values.linear import Linear
from macredit.values.structure import Graph

if TYPE_CHECKING:
    from macredit.whatif import WhatIf


@dataclass(frozen=True, slots=True)
class PositionSettings:
    """``position`` has no settings; absence and players are chosen with the replays."""


def position(rows: Rows, _settings: PositionSettings, whatif: WhatIf | None) -> Credits:
    """Position values of every link of the team in every episode."""
    whatif = replays(rows, whatif)
    players = {e: whatif.players_of(e) for e in scored(rows)}
    graphs = {e: _graph(rows.teams[e], names) for e, names in players.items()}
    solved = solve(whatif, players, {e: _needs(graphs[e], players[e]) for e in players})
    values = {pair: value for e, graph in graphs.items() for pair, value in _agents(e, graph, solved[e]).items()}
    links = [
        link_credit(rows, e, (str(a), str(b)), *solved[e].total([k]))
        for e, graph in graphs.items()
        for k, (a, b) in enumerate(graph.links())
    ]
    return replace(valued(rows, values, asked_with(whatif, players), ()), links=tuple(links))


def _graph(team: Team, players: tuple[str, ...]) -> Graph:
    """The team's channels, without directions; the orchestrator is last where it is no player."""
    everyone = players if team.orchestrator in players else (*players, team.orchestrator)
    return Graph.of([edge for edge in team.edges if set(edge) <= set(everyone)], everyone)


def _needs(graph: Graph, players: tuple[str, ...]) -> Needs:
    """Links first, then agents: own worth and half of each link; nothing is earned without a fixed orchestrator."""
    if not players:
        return none()
    n, everyone = len(players), len(graph.players)
    links = position_weights(graph)
    alone = np.eye(everyone)[:, [int(mask).bit_length() - 1 for mask in links.coalitions]]
    alone *= np.bitwise_count(links.coalitions) == 1
    half = np.array([[(i in edge) / 2 for edge in graph.edges] for i in range(everyone)]).reshape(everyone, -1)
    weights = np.concatenate([links.weights, alone + half @ links.weights])
    if everyone == n:
        return some(Linear(players, links.coalitions, weights))
    led = (links.coalitions >> n & 1 == 1) & (links.coalitions != 1 << n)
    return some(Linear(players, links.coalitions[led] ^ 1 << n, weights[:, led]))


def _agents(e: int, graph: Graph, solved: Solved) -> dict[tuple[int, str], Value]:
    """Values of the agents; 0 where nobody plays."""
    return {
        (e, str(name)): Value(*solved.total([len(graph.edges) + i])) if len(solved.values) else Value(0.0, 0.0)
        for i, name in enumerate(graph.players)
    }


METHOD = Method(
    name="position",
    run=position,
    settings=PositionSettings,
    grain="link",
    needs=frozenset({"group", "replay"}),
    estimand="position value of the team's links",
    paper="Borm, Owen and Tijs 1992, On the position value for communication situations",
    evaluations=lambda players: 2**players,
    axioms=frozenset({"linearity", "centred"}),
    labels={"setting": "multi-agent", "granularity": "multi-agent", "methodology": "Shapley"},
)
