"""What silencing agents would have done to the reward, and the credit that makes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from macredit.credit.games import PlayersOf, Solved
from macredit.credit.members import Totals, advantages, agent_groups, agent_totals, assemble, counts_of, pairs, spoke
from macredit.credit.method import Credits
from macredit.rows import FloatN, Rows
from macredit.values import loo

if TYPE_CHECKING:
    from macredit.whatif import Outcome, WhatIf

ALWAYS = "always present"
"""Why an agent that is no player has no credit."""
FAILED = "failed:replay"
"""Why a player has none: every replay without it failed or had no reward."""


@dataclass(frozen=True, slots=True)
class Value:
    """One player's value in one episode."""

    value: float
    stderr: float
    """0 is exact, NaN is not estimated."""


Values = Mapping[tuple[int, str], Value]
"""By (episode, agent)."""


def replays(rows: Rows, whatif: WhatIf | None) -> WhatIf:
    """The replays that were given, or what the record itself knows."""
    if whatif is not None:
        return whatif
    from macredit.whatif import WhatIf as Recorded  # imports PettingZoo, which a formula does not need

    return Recorded(rows.episodes)


def scored(rows: Rows) -> list[int]:
    """The episodes that count."""
    return [int(e) for e in np.flatnonzero(~np.isnan(rows.team_reward))]


def leave_one_out(whatif: WhatIf, who: Sequence[tuple[int, str]]) -> Values:
    """R − v(N∖i) for each (episode, agent): the reward minus the reward with that agent silenced, over replicates."""
    outcomes = whatif.ask([(e, gone) for e, agent in who for gone in (frozenset[str](), frozenset({agent}))])
    lost = [whole.less(without) for whole, without in zip(outcomes[::2], outcomes[1::2], strict=True)]
    return {pair: Value(outcome.mean, _stderr(outcome)) for pair, outcome in zip(who, lost, strict=True)}


def masked(rows: Rows, whatif: WhatIf, who: Sequence[tuple[int, str]]) -> Values:
    """R less the score of the same messages without the agent's, which nobody hears and nobody answers anew."""
    return {(e, agent): Value(float(rows.team_reward[e]) - whatif.masked(e, {agent}), 0.0) for e, agent in who}


def values_by_agent(players: PlayersOf, solved: Mapping[int, Solved]) -> Values:
    """Values of games whose players are agents."""
    units = ((e, i, unit) for e, names in players.items() for i, unit in enumerate(names))
    return {(e, str(unit)): Value(*solved[e].total([i])) for e, i, unit in units}


def marginals_by_agent(players: PlayersOf, solved: Mapping[int, Solved]) -> Values:
    """Leave-one-out of the same games, where every coalition was asked."""
    found: dict[tuple[int, str], Value] = {}
    for e, names in players.items():
        worths = solved[e].worths
        if worths is not None and len(worths) == 2 ** len(names) > 1:
            found |= {(e, str(unit)): Value(float(v), np.nan) for unit, v in zip(names, loo(worths), strict=True)}
    return found


def _stderr(outcome: Outcome) -> float:
    return np.nan if outcome.stderr is None else outcome.stderr


def valued(rows: Rows, values: Values, notes: Mapping[str, Any], warnings: Sequence[str]) -> Credits:
    """Credits of a value method: the value on each of the agent's turns, z-scored per (task, agent) over episodes.

    An episode in which an agent has no turn to train on gives it no advantage and stays out of its statistics; its
    value still stands in ``agents``. Agents that are no players were always present.
    """
    member = pairs(rows)
    score, stderr = by_pair(rows, values)
    advantage, result = advantages(rows, member, score, agent_groups(rows, "agent"))
    lost = {pair for pair, value in values.items() if np.isnan(value.value)}
    reasons = [
        FAILED if (int(e), rows.agents[a]) in lost else None if (int(e), rows.agents[a]) in values else ALWAYS
        for e, a in zip(rows.episode, rows.agent, strict=True)
    ]
    return assemble(
        rows,
        credit=score[member],
        stderr=stderr[member],
        advantage=advantage,
        weight=np.ones(len(rows)),
        reasons=reasons,
        agents=agent_totals(rows, totals_of(rows, values), missing=(np.nan, ALWAYS)),
        notes={**counts_of(result), **notes},
        warnings=warnings,
    )


def by_pair(rows: Rows, values: Values) -> tuple[FloatN, FloatN]:
    """Values and standard errors by (episode, agent) code, NaN where there are none."""
    score = np.full(len(rows.episodes) * len(rows.agents), np.nan)
    stderr = score.copy()
    code = {name: a for a, name in enumerate(rows.agents)}
    for (e, agent), value in values.items():
        if agent in code:
            score[e * len(rows.agents) + code[agent]] = value.value
            stderr[e * len(rows.agents) + code[agent]] = value.stderr
    return score, stderr


def totals_of(rows: Rows, values: Values) -> Totals:
    """The ``agents`` list of a value method."""
    speakers = spoke(rows)
    return {
        (e, agent): (
            value.value,
            value.stderr,
            FAILED if np.isnan(value.value) else None if agent in speakers[e] else "never spoke here",
        )
        for (e, agent), value in values.items()
    }


def asked_with(whatif: WhatIf, players: PlayersOf) -> dict[str, Any]:
    """Notes: what absence meant, and who the players were."""
    names = dict.fromkeys(str(unit) for group in players.values() for unit in group)
    return {"absence": whatif.absence, "players": list(names)}


def redundant(rows: Rows, marginals: Values, shares: Values | None = None) -> list[str]:
    """Why leave-one-out may be 0 for agents that matter: one warning, where it happens.

    With Shapley values at hand redundancy is certain; without them it is a possibility worth a second look.
    """
    silent: dict[int, list[str]] = {}
    for (e, agent), value in marginals.items():
        if abs(value.value) <= _ZERO and (shares is None or abs(shares[e, agent].value) > _ZERO):
            silent.setdefault(e, []).append(agent)
    if shares is None:
        players = Counter(e for e, _ in marginals)
        silent = {e: names for e, names in silent.items() if len(names) == players[e] > 1 and rows.team_reward[e] != 0}
    if not silent:
        return []
    e, names = next(iter(silent.items()))
    where = f"in {len(silent)} of {len(scored(rows))} episodes (first {rows.episodes[e].id!r}) "
    if shares is None:
        return [
            where + f"silencing any one of {', '.join(names)} leaves the reward as it is, so leave-one-out gives each "
            "0: either none matters, or they are redundant (another stands in); `shapley` tells which"
        ]
    values = ", ".join(f"{shares[e, name].value:.3g}" for name in names)
    return [
        where + f"leave-one-out is 0 for {', '.join(names)} while their Shapley values are {values}: they are "
        "redundant, so silencing one alone changes nothing and only coalitions without the others show its worth"
    ]


_ZERO = 1e-12
