"""Shapley values of silence: each player's marginal reward, averaged over all orders in which players could join.

phi_i = Σ_{S∌i} |S|! (n−|S|−1)! / n! · (v(S∪i) − v(S)), v(S) = the team's reward with all players outside S silenced.
Exact over the 2^n coalitions of each episode, or estimated from a budget of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from macredit.bounds import Within
from macredit.credit.coalitions import asked_with, marginals_by_agent, redundant, replays, scored, values_by_agent
from macredit.credit.games import MOST_EVALUATIONS, Budget, shapley_of_silence
from macredit.credit.method import Credits, Method
from macredit.credit.payout import paid
from macredit.rows import Rows
from macredit.units import Over

if TYPE_CHECKING:
    from macredit.whatif import WhatIf


@dataclass(frozen=True, slots=True)
class ShapleySettings:
    """Settings of ``shapley``; absence and players are chosen with the replays."""

    over: Over = "agents"
    """What the players are: agents, single turns, messages, or links."""
    budget: Annotated[int, Within(0, MOST_EVALUATIONS)] = 0
    """Terminal evaluations of one episode, from which values are estimated where 2^n are more; 0: all 2^n."""
    width: Annotated[float, Within(0)] = 0.0
    """With a budget: stop earlier, when every 95 % interval is at most this wide; 0: spend it."""
    seed: Annotated[int, Within(0)] = 0
    """With a budget: fixes what is asked."""


def shapley(rows: Rows, settings: ShapleySettings, whatif: WhatIf | None) -> Credits:
    """Shapley values of every player in every episode; they add up to v(N) − v(∅)."""
    whatif = replays(rows, whatif)
    players = {e: whatif.units_of(e, settings.over) for e in scored(rows)}
    budget = Budget(settings.budget, settings.width, settings.seed) if settings.budget else None
    solved = shapley_of_silence(whatif, players, budget)
    warnings: list[str] = []
    if settings.over == "agents":
        warnings = redundant(rows, marginals_by_agent(players, solved), values_by_agent(players, solved))
    return paid(rows, settings.over, players, solved, asked_with(whatif, players), warnings)


METHOD = Method(
    name="shapley",
    run=shapley,
    settings=ShapleySettings,
    grain="agent",
    needs=frozenset({"group", "replay"}),
    estimand="Shapley value of silence",
    paper="Shapley 1953, A value for n-person games",
    index=lambda settings: "shapley" if settings.get("over", "agents") == "agents" else None,
    evaluations=lambda players: 2**players,
    estimates=True,
    axioms=frozenset({"efficiency", "symmetry", "dummy", "linearity", "centred"}),
    labels={"setting": "multi-agent", "granularity": "multi-agent", "methodology": "Shapley"},
)
