"""What silencing agents would have done to the reward: leave-one-out and exact Shapley values of each episode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from macredit.credit.members import Totals, advantages, agent_groups, agent_totals, assemble, counts_of, pairs, spoke
from macredit.credit.method import Credits
from macredit.errors import UserError
from macredit.rows import FloatN, Rows
from macredit.values import loo, shapley, shapley_batch

if TYPE_CHECKING:
    from macredit.whatif import Outcome, WhatIf

MOST_PLAYERS = 12
"""Exact Shapley values ask about 2**12 = 4096 coalitions of one episode."""
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
    from macredit.whatif import WhatIf as Recorded

    return Recorded(rows.episodes)


def scored(rows: Rows) -> list[int]:
    """The episodes that count."""
    return [int(e) for e in np.flatnonzero(~np.isnan(rows.team_reward))]


def leave_one_out(rows: Rows, whatif: WhatIf, who: Sequence[tuple[int, str]]) -> Values:
    """R − v(N∖i) for each (episode, agent): the realised reward minus the mean reward with that agent silenced."""
    outcomes = whatif.ask([(e, frozenset({agent})) for e, agent in who])
    return {
        (e, agent): Value(float(rows.team_reward[e]) - outcome.mean, _stderr(outcome))
        for (e, agent), outcome in zip(who, outcomes, strict=True)
    }


def shapley_of_silence(rows: Rows, whatif: WhatIf, players: Mapping[int, Sequence[str]]) -> tuple[Values, Values]:
    """Exact Shapley values over all coalitions of an episode's players, and leave-one-out from the same table.

    The worth of a coalition is the team's reward with all other players silenced. With r replicates of every sampled
    coalition, values are computed replicate by replicate, so that shared random numbers count in the standard error.

    Raises:
        UserError: more than 12 players, or an outcome that neither the record nor a replay knows.
    """
    for e, names in players.items():
        if len(names) > MOST_PLAYERS:
            raise UserError(
                f"episode {rows.episodes[e].id!r} has {len(names)} players, which is {2 ** len(names)} coalitions; "
                f"expected at most {MOST_PLAYERS} for exact Shapley values; use `difference` "
                "(leave-one-out) for larger teams"
            )
    questions = [
        (e, frozenset(name for i, name in enumerate(names) if not mask >> i & 1))
        for e, names in players.items()
        for mask in range(2 ** len(names))
    ]
    outcomes = iter(whatif.ask(questions))
    values: dict[tuple[int, str], Value] = {}
    marginals: dict[tuple[int, str], Value] = {}
    for e, names in players.items():
        answers = [next(outcomes) for _ in range(2 ** len(names))]
        if names:
            shares = _shapley(answers)
            values |= {(e, name): share for name, share in zip(names, shares, strict=True)}
            last = loo([answer.mean for answer in answers]) if _known(answers) else np.full(len(names), np.nan)
            marginals |= {(e, name): Value(float(v), np.nan) for name, v in zip(names, last, strict=True)}
    return values, marginals


def _shapley(answers: Sequence[Outcome]) -> list[Value]:
    n = len(answers).bit_length() - 1
    if not _known(answers):
        return [Value(np.nan, np.nan)] * n
    phi = shapley([answer.mean for answer in answers])
    sampled = {len(answer.rewards) for answer in answers if not answer.exact}
    if not sampled:
        stderr = np.zeros(n)
    elif len(sampled) == 1 and (r := sampled.pop()) > 1:
        tables = np.array([[answer.mean] * r if answer.exact else answer.rewards for answer in answers])
        stderr = shapley_batch(tables).std(axis=1, ddof=1) / np.sqrt(r)
    else:
        stderr = np.full(n, np.nan)
    return [Value(float(v), float(s)) for v, s in zip(phi, stderr, strict=True)]


def _known(answers: Sequence[Outcome]) -> bool:
    return all(not np.isnan(answer.mean) for answer in answers)


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


def asked_with(whatif: WhatIf, players: Mapping[int, Sequence[str]]) -> dict[str, Any]:
    """Notes: what absence meant, and who the players were."""
    names = dict.fromkeys(name for group in players.values() for name in group)
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
