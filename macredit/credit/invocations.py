"""Trajectories of the main agent and invocations of its sub-agents, read off who addressed whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from macredit.episode import Episode
from macredit.rows import BoolN, IntN, Rows

USER = "user"


@dataclass(frozen=True, slots=True)
class Invocations:
    """M parts: the orchestrator's turns of each of E episodes (codes 0…E−1), then one part per invocation."""

    of: IntN
    """int[N]: the part of each row."""
    main: BoolN
    """bool[M]: whether a part is the orchestrator's."""
    valid: BoolN
    """bool[M]: whether no turn of it is known to be invalid."""
    last: IntN
    """int[M]: the row of its last turn; −1 for an orchestrator that never spoke."""


def invocations_of(rows: Rows) -> Invocations:
    """Divides every episode into the orchestrator's own turns and the invocations of everyone else."""
    of = np.zeros(len(rows), dtype=np.int64)
    parts, row = len(rows.episodes), 0
    for e, episode in enumerate(rows.episodes):
        names: dict[object, int] = {}
        for part in _parts(episode, rows.teams[e].orchestrator):
            if part is None:
                of[row] = e
            else:
                if part not in names:
                    names[part] = parts
                    parts += 1
                of[row] = names[part]
            row += 1
    main = np.arange(parts) < len(rows.episodes)
    last = np.full(parts, -1)
    last[of] = np.arange(len(rows))
    broken = np.bincount(of[~rows.valid & ~rows.null], minlength=parts) > 0
    return Invocations(of, main, ~broken, last)


def _parts(episode: Episode, orchestrator: str) -> Iterator[int | None]:
    """For each turn None (the orchestrator's), or a number that turns of one invocation share."""
    if any(turn.to is None for turn in episode.turns):
        return _runs(episode, orchestrator)
    return _addressed(episode, orchestrator)


def _runs(episode: Episode, orchestrator: str) -> Iterator[int | None]:
    """Recipients are unknown: each unbroken run of an agent's turns is one invocation."""
    run, before = -1, None
    for turn in episode.turns:
        run, before = run + (turn.agent != before), turn.agent
        yield None if turn.agent == orchestrator else run


def _addressed(episode: Episode, orchestrator: str) -> Iterator[int | None]:
    """An invocation opens when an agent without one is addressed, and closes when it addresses its opener or the user.

    Whoever speaks without having been addressed was opened by the orchestrator.
    """
    opened: dict[str, tuple[int, str]] = {}
    number = 0
    for turn in episode.turns:
        speaker, to = turn.agent, turn.to or ()
        if speaker == orchestrator:
            yield None
        else:
            if speaker not in opened:
                opened[speaker], number = (number, orchestrator), number + 1
            part, opener = opened[speaker]
            yield part
            if opener in to or USER in to:
                del opened[speaker]
        for name in to:
            if name not in (USER, orchestrator, speaker) and name not in opened:
                opened[name], number = (number, speaker), number + 1
