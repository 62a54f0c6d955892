"""Banzhaf values of silence: each player's marginal reward, averaged over all coalitions of the others alike.

phi_i = 2^−(n−1) Σ_{S∌i} (v(S∪i) − v(S)). Steadier than Shapley values when worths are noisy, but not efficient: credits
need not add up to the reward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from macredit.credit.games import every
from macredit.credit.method import Credits, Method
from macredit.credit.payout import credit_by
from macredit.rows import Rows
from macredit.units import Over
from macredit.values.exact import banzhaf as banzhaf_values

if TYPE_CHECKING:
    from macredit.whatif import WhatIf


@dataclass(frozen=True, slots=True)
class BanzhafSettings:
    """Settings of ``banzhaf``; absence and players are chosen with the replays."""

    over: Over = "agents"
    """What the players are: agents, single turns, messages, or links."""


def banzhaf(rows: Rows, settings: BanzhafSettings, whatif: WhatIf | None) -> Credits:
    """Banzhaf values of every player in every episode."""
    return credit_by(rows, settings.over, whatif, lambda _, units: every(len(units), banzhaf_values))


METHOD = Method(
    name="banzhaf",
    run=banzhaf,
    settings=BanzhafSettings,
    grain="agent",
    needs=frozenset({"group", "replay"}),
    estimand="Banzhaf value of silence",
    paper="Banzhaf 1965; Wang and Jia 2023, arXiv 2205.15466",
    index=lambda settings: "banzhaf" if settings.get("over", "agents") == "agents" else None,
    evaluations=lambda players: 2**players,
    axioms=frozenset({"symmetry", "dummy", "linearity", "centred"}),
    labels={"setting": "multi-agent", "granularity": "multi-agent", "methodology": "Shapley"},
)
