"""Difference rewards: what the team would have lost without the agent, D_i = v(N) − v(N∖i).

Leave-one-out is exact about one absence and blind to redundancy: of two agents either of which suffices, both get 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from macredit.credit.coalitions import asked_with, leave_one_out, redundant, replays, scored, valued
from macredit.credit.method import Credits, Method
from macredit.rows import Rows

if TYPE_CHECKING:
    from macredit.whatif import WhatIf


@dataclass(frozen=True, slots=True)
class DifferenceSettings:
    """``difference`` has no settings; absence and players are chosen with the replays."""


def difference(rows: Rows, _settings: DifferenceSettings, whatif: WhatIf | None) -> Credits:
    """Leave-one-out of every player in every episode; an agent that was never asked costs no call."""
    whatif = replays(rows, whatif)
    players = {e: whatif.players_of(e) for e in scored(rows)}
    values = leave_one_out(whatif, [(e, agent) for e, names in players.items() for agent in names])
    return valued(rows, values, asked_with(whatif, players), redundant(rows, values))


METHOD = Method(
    name="difference",
    run=difference,
    settings=DifferenceSettings,
    grain="agent",
    needs=frozenset({"group", "replay"}),
    estimand="leave-one-out of silence",
    paper="Wolpert and Tumer 2002, arXiv cs/9908014",
    index=lambda _: "loo",
    evaluations=lambda players: 1 + players,
    axioms=frozenset({"symmetry", "dummy", "linearity", "centred"}),
    labels={"setting": "multi-agent", "granularity": "multi-agent", "methodology": "Counterfactual"},
)
