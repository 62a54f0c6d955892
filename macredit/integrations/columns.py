"""From a trainer's batch, one row a model call, to the advantages of a method: columns in, columns out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from macredit.credit import Credits, credit
from macredit.episode import Counterfactual, Episode, Turn
from macredit.errors import UserError
from macredit.rows import FloatN, IntN, rows_of
from macredit.whatif import WhatIf

_SEPARATOR = "\x1f"
"""ASCII's unit separator: no name holds it."""


@dataclass(frozen=True)
class Columns:
    """N rows of a batch, in any order. A column that is None is not known."""

    task: Sequence[Any]
    """The task, or the group: rows of one task are compared."""
    reward: FloatN
    """float[N]: the row's reward. Every row of an episode carries the episode's; its last row's is the team's."""
    tokens: IntN
    """int[N]: how many tokens of the row are trained; a row of none is left out."""
    episode: Sequence[Any] | None = None
    """The rollout of that task; None: every row is one."""
    agent: Sequence[Any] | None = None
    """Who spoke; None: one agent."""
    turn: Sequence[Any] | None = None
    """Order within the episode; None: as the rows stand."""
    context: Sequence[Any] | None = None
    """What the speaker had before it: equal contexts are siblings (``c3``)."""
    counterfactuals: Sequence[Any] | None = None
    """On any row of an episode, ``{"solver": 0.0, "solver,critic": 0.0}``: the reward without these agents."""
    valid: Sequence[Any] | None = None
    """False where the turn was malformed."""


def label(task: object, episode: object, agent: object, turn: int) -> str:
    """A group index that says where its row stands, for trainers that hand on nothing else (see :func:`labelled`)."""
    return _SEPARATOR.join(map(str, (task, episode, agent, turn)))


def labelled(index: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """The columns in a group index: ``task`` alone, or all four of :func:`label`.

    Raises:
        UserError: some rows are labelled and others are not.
    """
    parts = [str(one).split(_SEPARATOR) for one in index]
    sizes = {len(part) for part in parts}
    if sizes == {1}:
        return {"task": index}
    if sizes != {4}:
        raise UserError("some of the batch's group indices are labels and others are not; label all rows or none")
    task, episode, agent, turn = zip(*parts, strict=True)
    return {"task": task, "episode": episode, "agent": agent, "turn": [int(t) for t in turn]}


def credit_columns(
    columns: Columns, method: str, preset: str = "paper", settings: Mapping[str, Any] | None = None
) -> tuple[FloatN, FloatN, Credits]:
    """(float[N] advantages, float[N] loss weights, the credits behind them) of a batch, in the order of its rows.

    Raises:
        UserError: columns of unequal length, a reward that is no number, or what the method needs is not there.
    """
    _check(columns)
    episodes, order = _episodes(columns)
    rows = replace(rows_of(episodes), reward=np.asarray(columns.reward, np.float64)[order])
    credits = credit(rows, method, preset, settings, WhatIf(episodes))
    back = np.argsort(order)
    return credits.advantage[back], credits.weight[back], credits


def _check(columns: Columns) -> None:
    for name, column in vars(columns).items():
        if column is not None and len(column) != len(columns.task):
            raise UserError(
                f"column {name!r} has {len(column)} rows and 'task' has {len(columns.task)}; expected as many"
            )
    _numbers(columns.reward, "reward")
    if columns.turn is not None and (_numbers(columns.turn, "turn") % 1).any():
        raise UserError(f"column 'turn' is {list(columns.turn)[:5]}; expected whole numbers")


def _numbers(column: Sequence[Any] | FloatN, name: str) -> FloatN:
    """float[N]: a column that holds a finite number a row."""
    try:
        found = np.array(list(column))
    except ValueError:
        found = np.empty(0, dtype=object)  # rows of several lengths
    if found.ndim != 1 or found.dtype.kind not in "iuf":
        raise UserError(f"column {name!r} is {list(column)[:5]}; expected a number a row")
    wrong = np.flatnonzero(~np.isfinite(found))
    if len(wrong):
        raise UserError(f"the {name} of row {wrong[0]} is {found[wrong[0]]}; expected finite numbers")
    return found.astype(np.float64)


def _episodes(columns: Columns) -> tuple[list[Episode], IntN]:
    """The batch as episodes, and which row each of their turns was."""
    N = len(columns.task)
    rollouts: dict[tuple[str, str], list[int]] = {}
    for n in range(N):
        rollout = n if columns.episode is None else columns.episode[n]
        rollouts.setdefault((str(columns.task[n]), str(rollout)), []).append(n)
    if columns.turn is not None:
        turn = columns.turn
        rollouts = {name: sorted(rows, key=lambda n: int(turn[n])) for name, rows in rollouts.items()}
    order = [n for rows in rollouts.values() for n in rows]
    episodes = [_episode(columns, f"{e}", task, rows) for e, ((task, _), rows) in enumerate(rollouts.items())]
    return episodes, np.array(order, dtype=np.int64)


def _episode(columns: Columns, id: str, task: str, rows: Sequence[int]) -> Episode:
    return Episode(
        id=id,
        task=task,
        turns=tuple(_turn(columns, f"{id}/{t}", n) for t, n in enumerate(rows)),
        reward=float(columns.reward[rows[-1]]),
        counterfactuals=tuple(
            Counterfactual(tuple(names.split(",")), reward) for names, reward in _known(columns, rows).items()
        ),
    )


def _known(columns: Columns, rows: Sequence[int]) -> dict[str, float]:
    """The recorded counterfactuals of an episode's rows: who was silenced → the team's reward."""
    known: dict[str, float] = {}
    for n in rows:
        here = None if columns.counterfactuals is None else columns.counterfactuals[n]
        if not isinstance(here, Mapping | None):
            raise UserError(f"the counterfactuals of row {n} are {here!r}; expected names → reward, or None")
        rewards = dict(here or {})
        for names, value in zip(rewards, _numbers(list(rewards.values()), "counterfactuals"), strict=True):
            if known.setdefault(names, float(value)) != value:
                raise UserError(f"row {n} says {value} without {names!r}, and another of its episode {known[names]}")
    return known


def _turn(columns: Columns, id: str, n: int) -> Turn:
    """A turn with as much text as says whether there is anything to train."""
    return Turn(
        agent="agent" if columns.agent is None else str(columns.agent[n]),
        text=f"{columns.tokens[n]} tokens" if columns.tokens[n] else "",
        id=id,
        context=None if columns.context is None else str(columns.context[n]),
        valid=None if columns.valid is None else bool(columns.valid[n]),
    )
