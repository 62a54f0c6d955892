"""Moves: the messages of episodes, each in its context, and what predicts the returns of episodes that hold them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from macredit.episode import Episode
from macredit.rows import FloatN, Rows


@dataclass(frozen=True, slots=True)
class Move:
    """One message in its context."""

    task: str
    agent: str
    policy: str
    """Name of the policy that speaks for the agent."""
    before: str
    """Digest of everything said before it, and by whom."""
    text: str
    prompt_ids: tuple[int, ...] | None
    """The whole prompt; None: not on record."""
    token_ids: tuple[int, ...] | None
    """The reply; None: not on record, or not given yet."""


class Values(Protocol):
    """Whatever predicts returns."""

    def predict(self, moves: Sequence[Move]) -> FloatN:
        """float[M]: the expected return of the episodes that go through each move; NaN where nothing is known."""
        ...


def moves_of(rows: Rows, which: Iterable[int]) -> list[Move]:
    """The moves behind some rows."""
    befores: dict[int, list[str]] = {}
    moves = []
    for n in which:
        e, t = int(rows.episode[n]), int(rows.turn[n])
        episode, turn = rows.episodes[e], rows.at(n)
        before = (befores.get(e) or befores.setdefault(e, _transcripts(episode)))[t]
        policy = rows.teams[e][turn.agent].policy
        moves.append(Move(episode.task, turn.agent, policy, before, turn.text, episode.prompt(t), turn.token_ids))
    return moves


def _transcripts(episode: Episode) -> list[str]:
    """The digest of what was said before each turn."""
    digests = [""]
    for turn in episode.turns:
        digests.append(hashlib.blake2b(json.dumps([digests[-1], turn.agent, turn.text]).encode()).hexdigest())
    return digests
