"""From the values of episodes' games to credit: of agents, of single turns, of links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from macredit.credit.coalitions import (
    FAILED,
    Value,
    asked_with,
    replays,
    scored,
    totals_of,
    valued,
    values_by_agent,
)
from macredit.credit.games import Needs, PlayersOf, Solved, solve
from macredit.credit.members import advantages, agent_groups, agent_totals, assemble, counts_of
from macredit.credit.method import Credits
from macredit.rows import Rows
from macredit.units import Link, Over, Unit
from macredit.values.interactions import interactions

if TYPE_CHECKING:
    from macredit.whatif import WhatIf


def paid(
    rows: Rows,
    over: Over,
    players: PlayersOf,
    solved: Mapping[int, Solved],
    notes: Mapping[str, Any],
    warnings: Sequence[str] = (),
) -> Credits:
    """Credits of solved games, with notes and warnings about them."""
    estimated = sorted({found.why for found in solved.values() if found.why})
    notes = {**notes, "estimated": "; ".join(estimated)} if estimated else notes
    if over == "agents":
        credits = valued(rows, values_by_agent(players, solved), notes, warnings)
        return replace(credits, interactions=_pairs(rows, players, solved))
    values = {
        (e, agent): Value(*solved[e].total([i for i, owner in enumerate(map(_owner, units)) if owner == agent]))
        for e, units in players.items()
        for agent in dict.fromkeys(map(_owner, units))
    }
    if over == "links":
        return replace(valued(rows, values, notes, warnings), links=_links(rows, players, solved))
    return _by_turn(rows, solved, values, notes, warnings)


def _owner(unit: Unit) -> str:
    """Whom a unit's value belongs to: who speaks."""
    return unit.sender if isinstance(unit, Link) else unit if isinstance(unit, str) else unit.agent


def _by_turn(
    rows: Rows,
    solved: Mapping[int, Solved],
    values: Mapping[tuple[int, str], Value],
    notes: Mapping[str, Any],
    warnings: Sequence[str],
) -> Credits:
    """Each turn its own value, z-scored among the turns of one agent on one task."""
    score, stderr = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    spoken = ~rows.null
    for e, found in solved.items():
        mine = np.flatnonzero((rows.episode == e) & spoken)
        score[mine], stderr[mine] = found.values, found.stderr
    advantage, result = advantages(rows, np.arange(len(rows)), score, agent_groups(rows, "agent"))
    lost = np.isnan(score) & rows.counts
    return assemble(
        rows,
        credit=score,
        stderr=stderr,
        advantage=advantage,
        weight=np.ones(len(rows)),
        reasons=[FAILED if missing else None for missing in lost],
        agents=agent_totals(rows, totals_of(rows, values), missing=(0.0, "never spoke here")),
        notes={**counts_of(result), **notes},
        warnings=warnings,
    )


def _links(rows: Rows, players: PlayersOf, solved: Mapping[int, Solved]) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        link_credit(rows, e, (unit.sender, unit.receiver), *solved[e].total([i]))
        for e, units in players.items()
        for i, unit in enumerate(units)
        if isinstance(unit, Link)
    )


def link_credit(rows: Rows, e: int, ends: tuple[str, str], value: float, stderr: float) -> dict[str, Any]:
    """One entry of the ``links`` list; NaN is null."""
    return {
        "episode": rows.episodes[e].id, "from": ends[0], "to": ends[1],
        "credit": None if np.isnan(value) else value, "stderr": None if np.isnan(stderr) else stderr,
    }  # fmt: skip


def _pairs(rows: Rows, players: PlayersOf, solved: Mapping[int, Solved]) -> tuple[Mapping[str, Any], ...]:
    """Shapley interactions of every two agents, where all coalitions are known: below 0 they replace each other."""
    found = []
    for e, names in players.items():
        worths = solved[e].worths
        if worths is not None and len(names) > 1 and len(worths) == 2 ** len(names):
            pair = interactions(worths, "sii", 2)
            found += [
                {"episode": rows.episodes[e].id, "agents": [str(names[i]), str(names[j])], "value": float(pair[i, j])}
                for i in range(len(names))
                for j in range(i)
            ]
    return tuple(found)


def credit_by(
    rows: Rows, over: Over, whatif: WhatIf | None, needs_of: Callable[[int, Sequence[Unit]], Needs]
) -> Credits:
    """Credit of an index that is read from the worths of known coalitions.

    Args:
        rows: N rows.
        over: what the players are.
        whatif: replays, where there are any.
        needs_of: (episode, its players) → what the index needs.
    """
    whatif = replays(rows, whatif)
    players = {e: whatif.units_of(e, over) for e in scored(rows)}
    solved = solve(whatif, players, {e: needs_of(e, units) for e, units in players.items()})
    return paid(rows, over, players, solved, asked_with(whatif, players))
