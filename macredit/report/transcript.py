"""Which episodes are worth reading, and each as readable turns with the credits beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from macredit.credit.method import Credits
from macredit.report.table import BROADCAST
from macredit.rows import FloatN, Rows

FOLD = 600
"""A text with more characters than this is folded behind its beginning."""
LONGEST = 20_000
"""And cut here: the whole text stands in the episodes file."""
MOST_TURNS = 500
"""So many turns of an episode are shown."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What one method gives one turn."""

    method: str
    credit: float | None
    advantage: float
    reason: str | None


@dataclass(frozen=True, slots=True)
class Line:
    """One turn."""

    number: int
    speaker: str
    to: tuple[str, ...] | None
    text: str
    folded: bool
    badges: tuple[str, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Transcript:
    """One episode, and why it was chosen."""

    id: str
    why: str
    reward: float | None
    end: str
    error: str | None
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """One method's answers on the rows of the report; NaN and None where it was given other episodes."""

    credit: FloatN
    advantage: FloatN
    reasons: tuple[str | None, ...]


def transcripts(rows: Rows, answers: Mapping[str, Credits]) -> tuple[Transcript, ...]:
    """The episode in which credit is spread widest, then the best, the worst and the odd ones."""
    columns = {label: _column(rows, given) for label, given in answers.items()}
    return tuple(_transcript(rows, columns, e, why) for e, why in _chosen(rows, columns).items())


def _column(rows: Rows, given: Credits) -> Column:
    """Rows of the same episode, by id and equal turns."""
    home = {episode.id: e for e, episode in enumerate(given.rows.episodes)}
    first = np.searchsorted(given.rows.episode, np.arange(len(home)))
    at = np.full(len(rows), -1)
    start = np.searchsorted(rows.episode, np.arange(len(rows.episodes)))
    for e, episode in enumerate(rows.episodes):
        other = home.get(episode.id)
        if other is not None and given.rows.episodes[other].turns == episode.turns:
            at[start[e] : start[e] + len(episode.turns)] = first[other] + np.arange(len(episode.turns))
    there = at >= 0
    return Column(
        np.where(there, given.credit[at], np.nan), np.where(there, given.advantage[at], np.nan),
        tuple(given.reasons[n] if n >= 0 else None for n in at),
    )  # fmt: skip


def _chosen(rows: Rows, columns: Mapping[str, Column]) -> dict[int, str]:
    """Episode → why it is shown, at most six."""
    reward, spread = rows.team_reward, _spread(rows, columns)
    speaking = np.bincount(rows.episode, minlength=len(reward)) > 0
    invalid = np.bincount(rows.episode, ~rows.valid, len(reward))
    cut = np.array([episode.end == "truncated" for episode in rows.episodes])
    failed = np.array([episode.failed for episode in rows.episodes])
    chosen: dict[int, str] = {}
    for why, score, wanted in (
        ("credit differs most between its turns", spread, np.isfinite(reward)),
        ("highest reward", reward, np.isfinite(reward)),
        ("lowest reward", -reward, np.isfinite(reward)),
        ("most invalid turns", invalid, invalid > 0),
        ("cut off at the turn limit", -reward, cut),
        ("failed", invalid, failed),
    ):
        open_ = wanted & speaking
        open_[list(chosen)] = False
        if open_.any():
            chosen[int(np.argmax(np.where(open_, score, -np.inf)))] = why
    return chosen


def _spread(rows: Rows, columns: Mapping[str, Column]) -> FloatN:
    """float[E]: largest minus smallest credit of an episode's turns, each method scaled to its widest, summed."""
    total = np.zeros(len(rows.episodes))
    for given in columns.values():
        top, bottom = np.full_like(total, -np.inf), np.full_like(total, np.inf)
        known = np.isfinite(given.credit)
        np.maximum.at(top, rows.episode[known], given.credit[known])
        np.minimum.at(bottom, rows.episode[known], given.credit[known])
        width = np.where(top >= bottom, top - bottom, 0.0)
        total += width / max(float(width.max(initial=0.0)), 1e-12)
    return total


def _transcript(rows: Rows, columns: Mapping[str, Column], e: int, why: str) -> Transcript:
    episode = rows.episodes[e]
    told = np.flatnonzero(rows.episode == e)
    lines = tuple(_line(rows, columns, int(n)) for n in told[:MOST_TURNS])
    if len(told) > MOST_TURNS:
        why += f"; the first {MOST_TURNS} of {len(told)} turns"
    reward = episode.reward if episode.scored else None
    return Transcript(episode.id, why, reward, episode.end, episode.error, lines)


def _line(rows: Rows, columns: Mapping[str, Column], n: int) -> Line:
    turn = rows.at(n)
    named = (
        ("invalid", turn.valid is False),
        ("silenced", turn.null),
        (f"stopped: {turn.finish}", turn.finish not in (None, "stop")),
        (rows.reasons[n] or "", rows.reasons[n] not in (None, "silenced")),
    )
    text = turn.text if len(turn.text) <= LONGEST else f"{turn.text[:LONGEST]}… ({len(turn.text) - LONGEST} more)"
    return Line(
        number=int(rows.turn[n]), speaker=turn.agent, to=turn.to, text=text, folded=len(text) > FOLD,
        badges=tuple(name for name, holds in named if holds),
        marks=tuple(_mark(label, given, n) for label, given in columns.items() if np.isfinite(given.advantage[n])),
    )  # fmt: skip


def _mark(label: str, given: Column, n: int) -> Mark:
    credit = float(given.credit[n])
    reason = given.reasons[n]
    return Mark(
        label, credit if np.isfinite(credit) else None, float(given.advantage[n]),
        None if reason == BROADCAST else reason,
    )  # fmt: skip
