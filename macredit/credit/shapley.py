"""Shapley values of silence: each player's marginal reward, averaged over all orders in which players could join.

phi_i = Σ_{S∌i} |S|! (n−|S|−1)! / n! · (v(S∪i) − v(S)), v(S) = the team's reward with all players outside S silenced;
exact over all 2^n coalitions of each episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from macredit.credit.coalitions import asked_with, redundant, replays, scored, shapley_of_silence, valued
from macredit.credit.method import Credits, Method
from macredit.rows import Rows

if TYPE_CHECKING:
    from macredit.whatif import WhatIf


@dataclass(frozen=True, slots=True)
class ShapleySettings:
    """``shapley`` has no settings; absence and players are chosen with the replays."""


def shapley(rows: Rows, _settings: ShapleySettings, whatif: WhatIf | None) -> Credits:
    """Exact Shapley values of every player in every episode; they add up to v(N) − v(∅)."""
    whatif = replays(rows, whatif)
    players = {e: whatif.players_of(e) for e in scored(rows)}
    values, marginals = shapley_of_silence(rows, whatif, players)
    return valued(rows, values, asked_with(whatif, players), redundant(rows, marginals, values))


METHOD = Method(
    name="shapley",
    run=shapley,
    settings=ShapleySettings,
    grain="agent",
    needs=frozenset({"group", "replay"}),
    estimand="Shapley value of silence",
    paper="Shapley 1953, A value for n-person games",
    evaluations=lambda players: 2**players,
    axioms=frozenset({"efficiency", "symmetry", "dummy", "linearity", "centred"}),
    labels={"setting": "multi-agent", "granularity": "multi-agent", "methodology": "Shapley"},
)
