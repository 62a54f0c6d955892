"""From a trainer's batch, one row a model call, to the advantages of a method: columns in, columns out."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
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
    """int[N]: how many tokens of the row are trained, at least 0; a row of none is left out."""
    episode: Sequence[Any] | None = None
    """The rollout of that task; None: every row is one."""
    agent: Sequence[Any] | None = None
    """Who spoke; None: one agent."""
    turn: Sequence[Any] | None = None
    """Order within the episode; None: as the rows stand."""
    context: Sequence[Any] | None = None
    """What the speaker had before it: equal contexts are siblings (``c3``); a row's None is not known."""
    counterfactuals: Sequence[Any] | None = None
    """On any row of an episode, ``{"solver": 0.0, "solver,critic": 0.0}``: the reward without these agents; or None.

    Beside them no agent's name holds a comma.
    """
    valid: Sequence[Any] | None = None
    """bool[N], or 0 and 1: False where the turn was malformed."""


def label(task: object, episode: object, agent: object, turn: int) -> str:
    """A group index that says where its row stands, for trainers that hand on nothing else (see :func:`labelled`).

    Raises:
        UserError: a name holds ASCII's unit separator, which parts them here, or the turn is no whole number.
    """
    names = [str(task), str(episode), str(agent)]
    for name in names:
        if _SEPARATOR in name:
            raise UserError(f"{name!r} holds {_SEPARATOR!r}, which parts the names of a label; give a name without it")
    try:
        return _SEPARATOR.join([*names, str(operator.index(turn))])
    except TypeError:
        raise UserError(f"the turn of a label is {turn!r}; expected a whole number, its place in the episode") from None


def labelled(index: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """The columns in a group index: ``task`` alone, or all four of :func:`label`.

    Raises:
        UserError: some rows are labelled and others are not, or one is what :func:`label` does not write.
    """
    parts = [str(one).split(_SEPARATOR) for one in index]
    sizes = {len(part) for part in parts}
    if sizes <= {1}:
        return {"task": index}
    for n, part in enumerate(parts):
        if len(part) != 1 and (len(part) != 4 or not re.fullmatch(r"-?\d+", part[-1])):
            raise UserError(
                f"the group index of row {n} is {str(index[n])!r}; expected a task's name, or what `label` makes of "
                "task, episode, agent and turn, a whole number"
            )
    if sizes != {4}:
        raise UserError("some of the batch's group indices are labels and others are not; label all rows or none")
    task, episode, agent, turn = zip(*parts, strict=True)
    return {"task": task, "episode": episode, "agent": agent, "turn": [int(t) for t in turn]}


def credit_columns(
    columns: Columns, method: str, preset: str = "paper", settings: Mapping[str, Any] | None = None
) -> tuple[FloatN, FloatN, Credits]:
    """(float[N] advantages, float[N] loss weights, the credits behind them) of a batch, in the order of its rows.

    Raises:
        UserError: columns of unequal length or of other values than :class:`Columns` says, or what the method needs is
            not there.
    """
    columns = _checked(columns)
    episodes, order = _episodes(columns)
    rows = replace(rows_of(episodes), reward=columns.reward[order])
    credits = credit(rows, method, preset, settings, WhatIf(episodes))
    back = np.argsort(order)
    return credits.advantage[back], credits.weight[back], credits


def _checked(columns: Columns) -> Columns:
    """The columns as lists, read by place, since a data frame's column goes by an index of its own."""
    lists: dict[str, Any] = {name: _listed(name, column) for name, column in vars(columns).items()}
    listed = Columns(**lists)
    for name, column in lists.items():
        if column is not None and len(column) != len(listed.task):
            raise UserError(
                f"column {name!r} has {len(column)} rows and 'task' has {len(listed.task)}; expected as many"
            )
    tokens = _numbers(listed.tokens, "tokens")
    if (tokens % 1).any() or (tokens < 0).any():
        raise UserError(f"column 'tokens' is {list(listed.tokens)[:5]}; expected whole numbers of at least 0")
    if listed.turn is not None and (_numbers(listed.turn, "turn") % 1).any():
        raise UserError(f"column 'turn' is {list(listed.turn)[:5]}; expected whole numbers")
    for n, flag in enumerate(listed.valid or ()):
        if (found := _scalar(flag, "biu")) is None or found not in (0, 1):  # `bool` takes any text for true
            raise UserError(f"'valid' of row {n} is {flag!r}; expected True or False")
    parted = next((str(name) for name in listed.agent or () if "," in str(name)), None)
    if parted and listed.counterfactuals is not None:
        raise UserError(
            f"agent {parted!r} has a comma in its name, which parts names in column 'counterfactuals'; rename it"
        )
    return replace(listed, reward=_numbers(listed.reward, "reward"))


def _listed(name: str, column: Any) -> list[Any] | None:
    """A column by place; None where it is not known."""
    if column is None and name not in ("task", "reward", "tokens"):
        return None
    try:
        if not isinstance(column, str | bytes | Mapping):
            return list(column)
    except TypeError:
        pass
    raise UserError(f"column {name!r} is {column!r:.60}; expected a list or an array, one entry a row") from None


def _scalar(value: Any, kinds: str) -> float | None:
    """A value of one of NumPy's kinds as a number; None where it is another, or several."""
    try:
        found = np.asarray(value)
    except ValueError:  # rows of several lengths
        return None
    return None if found.ndim or found.dtype.kind not in kinds else float(found)


def _numbers(column: Iterable[Any], name: str) -> FloatN:
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
        counterfactuals=tuple(Counterfactual(silenced, reward) for silenced, reward in _known(columns, rows).items()),
    )


def _known(columns: Columns, rows: Sequence[int]) -> dict[tuple[str, ...], float]:
    """The recorded counterfactuals of an episode's rows: who was silenced → the team's reward."""
    known: dict[tuple[str, ...], float] = {}
    for n in rows:
        here = None if columns.counterfactuals is None else columns.counterfactuals[n]
        if not isinstance(here, Mapping | None):
            raise UserError(f"the counterfactuals of row {n} are {here!r}; expected names → reward, or None")
        for names, value in (here or {}).items():
            silenced = _silenced(names, n)
            reward = _reward(value, names, n)
            if known.setdefault(silenced, reward) != reward:
                raise UserError(
                    f"row {n} says {reward} without {names!r}, and its episode said {known[silenced]} before; expected "
                    "one reward"
                )
    return known


def _silenced(names: Any, n: int) -> tuple[str, ...]:
    """Who was silenced, in one order whatever the order of the names."""
    if not isinstance(names, str) or not all(names.split(",")):
        raise UserError(
            f"the counterfactuals of row {n} name {names!r}; expected agents as text, 'solver' or 'solver,critic'"
        )
    return tuple(sorted(set(names.split(","))))


def _reward(value: Any, names: str, n: int) -> float:
    found = _scalar(value, "iuf")
    if found is None or not np.isfinite(found):
        raise UserError(f"the counterfactuals of row {n} say {value!r} without {names!r}; expected a finite number")
    return found


def _turn(columns: Columns, id: str, n: int) -> Turn:
    """A turn with as much text as says whether there is anything to train."""
    return Turn(
        agent="agent" if columns.agent is None else str(columns.agent[n]),
        text=f"{columns.tokens[n]} tokens" if columns.tokens[n] else "",
        id=id,
        context=None if columns.context is None or columns.context[n] is None else str(columns.context[n]),
        valid=None if columns.valid is None else bool(columns.valid[n]),
    )
