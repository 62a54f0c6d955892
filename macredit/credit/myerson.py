"""Myerson values of silence: Shapley values when only players that can reach each other act together.

Over agents the graph is the team's, and the orchestrator, where it is always present, is who must be reached: an
agent whose every path to it is silent counts as silent too. Over turns and messages two are linked if one read the
other. Only connected coalitions are asked: a line of n agents needs n of them, not 2^n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from macredit.credit.games import Needs, none, some
from macredit.credit.method import Credits, Method
from macredit.credit.payout import credit_by
from macredit.episode import Episode
from macredit.rows import Rows
from macredit.units import Unit
from macredit.values.graph import myerson_weights
from macredit.values.structure import Graph

if TYPE_CHECKING:
    from macredit.whatif import WhatIf


@dataclass(frozen=True, slots=True)
class MyersonSettings:
    """Settings of ``myerson``; absence and players are chosen with the replays."""

    over: Literal["agents", "turns", "messages"] = "agents"
    """What the players are."""


def myerson(rows: Rows, settings: MyersonSettings, whatif: WhatIf | None) -> Credits:
    """Myerson values of every player in every episode."""

    def needs(e: int, units: Sequence[Unit]) -> Needs:
        names = tuple(map(str, units))
        if not names:
            return none()
        if settings.over != "agents":
            return some(myerson_weights(Graph.of(_read(rows.episodes[e], names), names)))
        lead = rows.teams[e].orchestrator
        everyone = names if lead in names else (*names, lead)
        links = [edge for edge in rows.teams[e].edges if set(edge) <= set(everyone)]
        return some(myerson_weights(Graph.of(links, everyone), led=lead not in names))

    return credit_by(rows, settings.over, whatif, needs)


def _read(episode: Episode, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Which turn was read by which; where the record does not say, every later one may have."""
    turns = [turn for turn in episode.turns if not turn.null]
    name = {turn.id: unit for turn, unit in zip(turns, names, strict=True)}
    for t, turn in enumerate(turns):
        reads = [earlier.id for earlier in turns[:t]] if turn.reads is None else turn.reads
        yield from ((name[id_], name[turn.id]) for id_ in reads if id_ in name)


METHOD = Method(
    name="myerson",
    run=myerson,
    settings=MyersonSettings,
    grain="agent",
    needs=frozenset({"group", "replay"}),
    estimand="Myerson value of silence",
    paper="Myerson 1977, Graphs and cooperation in games",
    evaluations=lambda players: 2**players,
    axioms=frozenset({"linearity", "centred"}),
    labels={"setting": "multi-agent", "granularity": "multi-agent", "methodology": "Shapley"},
)
