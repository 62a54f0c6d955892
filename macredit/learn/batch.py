"""Training rows: what a learner gets, blind to the method that made the advantages. Ids in, ids out.

A row is one turn: its whole prompt and exactly the ids its own policy sampled, which the mask covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from macredit.episode import Episode
from macredit.errors import UserError
from macredit.learn.loss import Aggregate, BoolK, FloatK, IntK, coefficients
from macredit.rows import Rows, rows_of

if TYPE_CHECKING:
    from macredit.credit.method import Credits


@dataclass(frozen=True, slots=True)
class TrainRow:
    """One turn of length L = prompt + reply."""

    ids: IntK
    """int[L]: the prompt's ids, then the sampled ids."""
    mask: BoolK
    """bool[L]: True exactly on the ids this policy sampled."""
    logprob: FloatK
    """float[L]: log-probability at sampling time; 0 where the mask is False."""
    advantage: float
    weight: float
    sequence: int
    """Code of the unit of ratio and loss it belongs to."""
    reference: FloatK | None = None
    """float[L]: log-probability under the reference policy; None: no KL term."""
    correction: FloatK | None = None
    """float[L]: importance weight of learner against behaviour, a factor of the advantage; None: 1."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The trained tokens of some rows, flat: arrays of length K, rows one after another."""

    old: FloatK
    advantage: FloatK
    coefficient: FloatK
    """What a token's loss is multiplied with; fixed over the whole batch."""
    sequence: IntK
    reference: FloatK | None

    def part(self, start: int, stop: int) -> Tokens:
        """The tokens from ``start`` to before ``stop``."""
        part = slice(start, stop)
        reference = None if self.reference is None else self.reference[part]
        return Tokens(self.old[part], self.advantage[part], self.coefficient[part], self.sequence[part], reference)


def tokens_of(rows: Sequence[TrainRow], aggregate: Aggregate = "token-mean", length: float | None = None) -> Tokens:
    """The trained tokens of a whole batch, with the coefficients of its aggregate."""
    count = np.array([int(row.mask.sum()) for row in rows], dtype=np.int64)
    sequence = np.repeat(np.array([row.sequence for row in rows], dtype=np.int64), count)
    weight = np.repeat(np.array([row.weight for row in rows], dtype=np.float64), count)
    return Tokens(
        old=np.concatenate([row.logprob[row.mask] for row in rows]),
        advantage=np.concatenate([_advantages(row) for row in rows]),
        coefficient=coefficients(weight, sequence, aggregate, length),
        sequence=sequence,
        reference=_references(rows),
    )


def _advantages(row: TrainRow) -> FloatK:
    """float[K]: the advantage of each trained token."""
    advantage = np.full(int(row.mask.sum()), row.advantage, dtype=np.float64)
    return advantage if row.correction is None else advantage * row.correction[row.mask]


def _references(rows: Sequence[TrainRow]) -> FloatK | None:
    found = [row.reference[row.mask] for row in rows if row.reference is not None]
    return np.concatenate(found) if found else None


def by_sequence(rows: Iterable[TrainRow]) -> list[list[TrainRow]]:
    """Rows of one sequence together, in order of appearance."""
    groups: dict[int, list[TrainRow]] = {}
    for row in rows:
        groups.setdefault(row.sequence, []).append(row)
    return list(groups.values())


def by_gradient(rows: Iterable[TrainRow]) -> tuple[list[TrainRow], list[TrainRow]]:
    """Rows that move a policy, and rows that do not: of sequences with all advantages 0 and no KL term."""
    moving: list[TrainRow] = []
    idle: list[TrainRow] = []
    for unit in by_sequence(rows):
        moves = any(row.advantage != 0 or row.reference is not None for row in unit)
        (moving if moves else idle).extend(unit)
    return moving, idle


def train_rows(credit: Credits, policy: str) -> list[TrainRow]:
    """The rows of one policy: every turn once, of its trainable agents, with a weight above 0.

    Raises:
        UserError: a turn to train on has no token ids or no log-probabilities.
    """
    chosen = []
    for n in _spoken_by(credit.rows, policy):
        if credit.weight[n] > 0 and credit.rows.first[n]:
            sequence = n if credit.sequence is None else int(credit.sequence[n])
            chosen.append(
                _row(credit.rows, n, float(credit.advantage[n]), float(credit.weight[n]), sequence, sampled=True)
            )
    return chosen


def imitation_rows(episodes: Sequence[Episode], policy: str) -> list[TrainRow]:
    """Rows for :func:`macredit.learn.loss.imitate`: every turn of the policy's agents that counts, weight 1.

    Raises:
        UserError: a turn has no token ids.
    """
    rows = rows_of(episodes)
    keep = [n for n in _spoken_by(rows, policy) if rows.counts[n] and rows.first[n]]
    return [_row(rows, n, 1.0, 1.0, n, sampled=False) for n in keep]


def _spoken_by(rows: Rows, policy: str) -> Iterator[int]:
    """Rows whose agent this policy speaks for and may train."""
    for n, (e, a) in enumerate(zip(rows.episode, rows.agent, strict=True)):
        agent = rows.teams[e][rows.agents[a]]
        if agent.policy == policy and agent.trainable:
            yield n


def _row(rows: Rows, n: int, advantage: float, weight: float, sequence: int, sampled: bool) -> TrainRow:
    episode, t, turn = rows.episodes[rows.episode[n]], int(rows.turn[n]), rows.at(n)
    prompt = episode.prompt(t)
    if prompt is None or not turn.token_ids or (sampled and turn.logprobs is None):
        raise UserError(
            f"agent {turn.agent!r} (turn {turn.id!r}) is to be trained but its policy recorded no token ids with "
            "log-probabilities; give it an hf or table policy, or freeze it (trainable = false)"
        )
    return row_of(prompt, turn.token_ids, turn.logprobs if sampled else None, advantage, weight, sequence)


def row_of(
    prompt: Sequence[int], reply: Sequence[int], logprobs: Sequence[float] | None = None, advantage: float = 0.0,
    weight: float = 1.0, sequence: int = 0,
) -> TrainRow:  # fmt: skip
    """The row of one reply to a prompt; without log-probabilities, those of a reply that nobody sampled."""
    ids = np.array((*prompt, *reply), dtype=np.int64)
    mask = np.arange(len(ids)) >= len(prompt)
    logprob = np.zeros(len(ids))
    if logprobs is not None:
        logprob[mask] = logprobs
    return TrainRow(ids, mask, logprob, advantage, weight, sequence)
