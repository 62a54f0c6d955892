"""From rows to the members of a group and back: what all credit methods share.

A member is whatever a group compares: a turn, an agent's part of a trajectory, a trajectory. A turn that several
episodes share is one fact: members average over it, its copies get the mean advantage, and one copy is trained on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from macredit.advantage import Normalised, normalise
from macredit.credit.method import AgentCredit, Credits
from macredit.rows import BoolN, FloatN, IntN, Rows

Total = tuple[float, float, str | None]
"""Credit, standard error (NaN is null) and reason of one agent in one episode."""
Totals = Mapping[tuple[int, str], Total]
"""Totals by (episode, agent)."""


def mean_by(code: IntN, values: FloatN, where: BoolN) -> FloatN:
    """float[largest code + 1]: mean of the values with that code; NaN where none counts, exact where all are equal."""
    size = int(code.max(initial=-1)) + 1
    code, values = code[where], values[where]
    base = np.full(size, np.nan)
    base[code] = values
    with np.errstate(over="ignore", invalid="ignore"):
        rest = np.bincount(code, values - base[code], size)
    return base + rest / np.maximum(np.bincount(code, minlength=size), 1)


def stderr_by(code: IntN, values: FloatN, where: BoolN) -> FloatN:
    """float[largest code + 1]: standard error of :func:`mean_by`; NaN with fewer than two values."""
    mean = mean_by(code, values, where)
    code, values = code[where], values[where]
    n = np.bincount(code, minlength=len(mean)).astype(np.float64)
    squares = np.bincount(code, (values - mean[code]) ** 2, len(mean))
    return np.sqrt(np.where(n > 1, squares, np.nan) / np.where(n > 1, n * (n - 1), 1.0))


def first_copies(fact: IntN, where: BoolN) -> BoolN:
    """Which rows are the first copy of their turn among those that count: the one copy that is trained on."""
    index = np.flatnonzero(where)
    first = np.zeros(len(fact), dtype=np.bool_)
    first[index[np.unique(fact[index], return_index=True)[1]]] = True
    return first


def agent_groups(rows: Rows, by: Literal["agent", "task"]) -> IntN:
    """int[N]: code of the row's group, its task or its (task, agent)."""
    return rows.task * len(rows.agents) + rows.agent if by == "agent" else rows.task


def pairs(rows: Rows) -> IntN:
    """int[N]: code of (episode, agent)."""
    return rows.episode * len(rows.agents) + rows.agent


def advantages(
    rows: Rows,
    member: IntN,
    score: FloatN,
    group: IntN,
    *,
    scale_group: IntN | None = None,
    weight: FloatN | None = None,
    **switches: Any,
) -> tuple[FloatN, Normalised]:
    """Row advantages from member scores: normalise members in their groups, give each row its member's.

    Args:
        rows: N rows.
        member: int[N] member code of each row.
        score: float[M] per member; NaN leaves it out, and so does a member none of whose rows counts.
        group: int[N] group of each row; rows of one member agree.
        scale_group: int[N], as ``group``, for the scale.
        weight: float[M] copies a member stands for.
        switches: of :func:`macredit.advantage.normalise`.

    Returns:
        float[N], on every copy of a turn the mean over the episodes through it, and the normaliser's counts.
    """
    alive = np.zeros(len(score), dtype=np.bool_)
    alive[member[rows.counts]] = True
    result = normalise(
        np.where(alive, score, np.nan),
        _of_members(group, member, len(score)),
        scale_group=None if scale_group is None else _of_members(scale_group, member, len(score)),
        weight=weight,
        name=lambda code: group_name(rows, group == code),
        **switches,
    )
    counted = rows.counts & ~np.isnan(score[member])
    mean = mean_by(rows.fact, result.advantage[member], counted)[rows.fact]
    return np.where(counted, mean, 0.0), result


def _of_members(group: IntN, member: IntN, size: int) -> IntN:
    of = np.zeros(size, dtype=np.int64)
    of[member] = group
    return of


def group_name(rows: Rows, within: BoolN) -> str:
    """How an error names the group of some rows."""
    tasks, agents = {rows.tasks[t] for t in rows.task[within]}, {rows.agents[a] for a in rows.agent[within]}
    agent = f", agent {agents.pop()!r}" if len(agents) == 1 else ""
    return f"group task {', '.join(map(repr, sorted(tasks)))}{agent}"


def counts_of(*results: Normalised) -> dict[str, int]:
    """The normaliser's counts as notes."""
    return {
        "groups": sum(r.groups for r in results),
        "singleton groups": sum(r.singletons for r in results),
        "groups without a signal": sum(r.degenerate for r in results),
    }


def assemble(
    rows: Rows,
    *,
    credit: FloatN,
    stderr: FloatN,
    advantage: FloatN,
    weight: FloatN,
    reasons: Sequence[str | None],
    agents: tuple[AgentCredit, ...],
    sequence: IntN | None = None,
    notes: Mapping[str, Any],
    warnings: Sequence[str] = (),
) -> Credits:
    """The result, with the rules that hold for every method.

    Rows that are left out, or whose credit is NaN, get credit null, advantage 0, weight 0 and a reason; of several
    copies of a turn the first that counts keeps its weight.
    """
    counted = rows.counts & ~np.isnan(credit)
    trained = first_copies(rows.fact, counted)
    left_out = Counter("failed" if reason.startswith("failed") else reason for reason in rows.reasons if reason)
    return Credits(
        rows,
        credit=np.where(counted, credit, np.nan),
        advantage=np.where(counted, advantage, 0.0),
        weight=np.where(trained, weight, 0.0),
        reasons=tuple(given or own for given, own in zip(rows.reasons, reasons, strict=True)),
        stderr=np.where(counted, stderr, np.nan),
        agents=agents,
        sequence=sequence,
        notes={**notes, "rows left out": dict(left_out)},
        warnings=tuple(warnings),
    )


def cast(rows: Rows, episode: int) -> tuple[str, ...]:
    """Everyone on the team of an episode, and whoever else speaks in it."""
    speakers = (turn.agent for turn in rows.episodes[episode].turns)
    return tuple(dict.fromkeys((*rows.teams[episode].names, *speakers)))


def spoke(rows: Rows) -> list[frozenset[str]]:
    """Who was asked and answered in each episode; a silenced agent's null message is nobody's."""
    return [frozenset(turn.agent for turn in episode.turns if not turn.null) for episode in rows.episodes]


def agent_totals(rows: Rows, totals: Totals, missing: tuple[float, str]) -> tuple[AgentCredit, ...]:
    """The ``agents`` list: everyone on the team of every episode.

    Args:
        rows: N rows.
        totals: what the method knows.
        missing: credit and reason of an agent without a total, in an episode that counts.
    """
    why = {
        (int(e), rows.agents[a]): reason for e, a, reason in zip(rows.episode, rows.agent, rows.reasons, strict=True)
    }
    return tuple(
        _total(rows, e, agent, totals.get((e, agent)), why.get((e, agent)), missing)
        for e in range(len(rows.episodes))
        for agent in cast(rows, e)
    )


def _total(
    rows: Rows, e: int, agent: str, total: Total | None, why: str | None, missing: tuple[float, str]
) -> AgentCredit:
    episode = rows.episodes[e]
    if not episode.scored:
        return AgentCredit(e, agent, None, None, episode.end if episode.failed else "no reward")
    if total is not None:
        credit, stderr, reason = total
        return AgentCredit(e, agent, _known(credit), _known(stderr), reason)
    if why is not None:
        return AgentCredit(e, agent, None, None, why)
    credit, reason = missing
    return AgentCredit(e, agent, _known(credit), _known(0.0 * credit), reason)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
