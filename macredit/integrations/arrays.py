"""Advantages of a method as plain NumPy arrays, from episodes as any framework can write them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from macredit.credit import Credits, credit
from macredit.episode import Episode, check_forest, episode_from_json, read_episodes
from macredit.errors import UserError
from macredit.rows import FloatN, IntN
from macredit.whatif import WhatIf

FloatNK = npt.NDArray[np.float64]
BoolNK = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Advantages:
    """Columns of length N, one entry a turn: episodes in the order given, turns in theirs."""

    advantage: FloatN
    """float[N]: what the tokens of a turn are trained with; 0 where a turn is left out."""
    weight: FloatN
    """float[N]: what a turn's loss is multiplied with; 0 for turns left out and for repeated copies."""
    credit: FloatN
    """float[N]: what a turn earned, in reward units; NaN where there is no answer."""
    stderr: FloatN
    """float[N]: standard error of the credit; 0 is exact, NaN not estimated."""
    sequence: IntN
    """int[N]: code of the unit of ratio and loss a turn belongs to (its own, or the agent's trajectory)."""
    turn: IntN
    """int[N]: index in its episode."""
    credits: Credits
    """The whole answer: totals per agent, links, notes, warnings."""

    @cached_property
    def episode(self) -> tuple[str, ...]:
        """Episode ids, N of them."""
        return tuple(self.credits.rows.episodes[e].id for e in self.credits.rows.episode)

    @cached_property
    def agent(self) -> tuple[str, ...]:
        """Names of the speakers, N of them."""
        return tuple(self.credits.rows.agents[a] for a in self.credits.rows.agent)

    def rows_of(self, agent: str) -> IntN:
        """int[·]: the rows of one agent, for a trainer of its own."""
        return np.flatnonzero(np.array(self.agent) == agent)

    def per_token(self) -> tuple[FloatNK, BoolNK]:
        """Advantages of the sampled tokens, and which entries are tokens: float[N, K] and bool[N, K].

        K is the longest reply; a row starts with its turn's ``token_ids`` and is 0 after them.

        Raises:
            UserError: the record holds no token ids of a turn that counts.
        """
        turns = [self.credits.rows.at(n) for n in range(len(self.credits.rows))]
        for turn, weight in zip(turns, self.weight, strict=True):
            if weight and turn.token_ids is None:
                raise UserError(
                    f"turn {turn.id!r} has no token_ids; record them, or use `advantage`, one number a turn"
                )
        length = np.array([len(turn.token_ids or ()) for turn in turns], dtype=np.int64)
        mask = np.arange(length.max(initial=0)) < length[:, None]
        return np.where(mask, self.advantage[:, None], 0.0), mask


def advantages(
    episodes: str | os.PathLike[str] | Iterable[Mapping[str, Any] | Episode],
    method: str,
    preset: str = "paper",
    settings: Mapping[str, Any] | None = None,
) -> Advantages:
    """Credit and advantages of recorded episodes.

    Args:
        episodes: a JSON Lines file, or its objects: ``id``, ``task``, ``turns[].agent`` and ``turns[].text`` are
            required, ``reward`` is what is shared out, ``counterfactuals`` are known outcomes without an agent.
        method: a name in :data:`macredit.credit.METHODS`.
        preset: ``paper``, or another that the method has.
        settings: changes to the preset, by name.

    Raises:
        UserError: a malformed episode, or the record does not hold what the method needs.
        OutsideError: every episode failed.
    """
    record = read_episodes(episodes) if isinstance(episodes, str | os.PathLike) else _episodes(episodes)
    found = credit(record, method, preset, settings, WhatIf(record))
    own = np.arange(len(found.rows)) if found.sequence is None else found.sequence
    return Advantages(found.advantage, found.weight, found.credit, found.stderr, own, found.rows.turn, found)


def _episodes(given: Any) -> list[Episode]:
    """The objects as episodes; an error says which is malformed."""
    if not isinstance(given, Iterable) or isinstance(given, Mapping | bytes):
        raise UserError(f"episodes is {given!r:.60}; expected a list of episode objects, or a JSON Lines file's path")
    record = []
    for i, one in enumerate(given):
        if isinstance(one, Episode):
            record.append(one)
            continue
        if not isinstance(one, Mapping):
            raise UserError(f"episodes[{i}] is {one!r:.60}; expected an object with 'id', 'task' and 'turns'")
        try:
            record.append(episode_from_json(_lists(one)))
        except UserError as error:
            raise UserError(f"episodes[{i}] (id {one.get('id')!r:.60}): {error}") from None
    check_forest(record)
    return record


def _lists(value: Any) -> Any:
    """Plain JSON of what Python offers beside it: arrays, tuples, NumPy's numbers."""
    if isinstance(value, Mapping):
        return {name: _lists(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_lists(part) for part in value] if isinstance(value, list | tuple) else value
