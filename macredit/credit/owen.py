"""Owen values of silence: players of one union bargain together, then share what their union is worth.

The mean marginal reward over the orders in which every union arrives as a block: fewer coalitions are asked than for
Shapley values, at most Σ_k 2^(unions−1) · 2^(size of union k).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from macredit.credit.games import Needs, none, some
from macredit.credit.method import Credits, Method
from macredit.credit.payout import credit_by
from macredit.errors import UserError
from macredit.rows import Rows
from macredit.team import Team
from macredit.units import MessageUnit, TurnUnit, Unit
from macredit.values.structure import Unions
from macredit.values.unions import owen_weights

if TYPE_CHECKING:
    from macredit.whatif import WhatIf


@dataclass(frozen=True, slots=True)
class OwenSettings:
    """Settings of ``owen``; absence and players are chosen with the replays."""

    over: Literal["agents", "turns", "messages"] = "agents"
    """What the players are. The turns and messages of one agent are a union."""
    unions: str = ""
    """Unions of agents, as ``a+b,c``; agents that are left out are alone. Empty: agents that share a policy."""


def owen(rows: Rows, settings: OwenSettings, whatif: WhatIf | None) -> Credits:
    """Owen values of every player in every episode; they add up to v(N) − v(∅)."""
    if settings.unions and settings.over != "agents":
        raise UserError(
            f"unions {settings.unions!r} of agents were given for {settings.over}, of which those of one agent are a "
            "union; leave one of the two out"
        )

    def needs(e: int, units: Sequence[Unit]) -> Needs:
        names = tuple(map(str, units))
        if not names:
            return none()
        return some(owen_weights(Unions.of(_unions(units, rows.teams[e], settings.unions), names)))

    return credit_by(rows, settings.over, whatif, needs)


def _unions(units: Sequence[Unit], team: Team, given: str) -> list[list[str]]:
    """Unions of players by name, in the order of their first members."""
    listed = [[name.strip() for name in union.split("+")] for union in given.split(",")] if given else []
    members = [name for union in listed for name in union]
    for name in members:
        team[name]
        if members.count(name) > 1:
            raise UserError(f"agent {name!r} stands {members.count(name)} times in unions {given!r}; list it once")
    union_of = {name: f"union {k}" for k, union in enumerate(listed) for name in union}
    unions: dict[str, list[str]] = {}
    for unit in units:
        if isinstance(unit, TurnUnit | MessageUnit):
            key = unit.agent
        else:
            key = union_of.get(str(unit), f"alone {unit}") if given else team[str(unit)].policy
        unions.setdefault(key, []).append(str(unit))
    return list(unions.values())


METHOD = Method(
    name="owen",
    run=owen,
    settings=OwenSettings,
    grain="agent",
    needs=frozenset({"group", "replay"}),
    estimand="Owen value of silence",
    paper="Owen 1977, Values of games with a priori unions",
    evaluations=lambda players: 2**players,
    axioms=frozenset({"efficiency", "dummy", "linearity", "centred"}),
    labels={"setting": "multi-agent", "granularity": "multi-agent", "methodology": "Shapley"},
)
