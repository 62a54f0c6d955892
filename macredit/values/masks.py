"""Coalitions as bit masks: bit i says whether player i is in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from macredit.errors import UserError
from macredit.rows import BoolN, IntN

MOST_LISTED = 2**22
"""A structure that leaves more than this prunes too little to be of use."""
MOST_BITS = 62
"""Players of a game whose coalitions are masks."""


def sums(parts: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The sum of every subset: entry m of 2**len(parts) adds up parts[k] over the bits k of m."""
    total = np.zeros(1, np.asarray(parts).dtype if len(parts) else np.int64)
    for part in parts:
        total = np.concatenate([total, total + part])
    return total


def members_of(masks: IntN, n: int) -> BoolN:
    """bool[C, n] from int[C] masks."""
    members = np.empty((len(masks), n), np.bool_)
    for i in range(n):
        members[:, i] = masks >> i & 1
    return members


def masks_of(coalitions: Any, n: int) -> IntN:
    """int[C] masks from bool[C, n] members; masks stay as they are.

    Raises:
        UserError: neither, or more players than a mask has bits.
    """
    if n > MOST_BITS:
        raise UserError(
            f"{n} players were given; expected at most {MOST_BITS}, since coalitions are kept as masks here"
        )
    given = np.asarray(coalitions)
    if given.ndim == 2 and given.shape[1] == n and given.dtype == np.bool_:
        return np.asarray(given @ (1 << np.arange(n)), np.int64)
    if given.ndim == 1 and np.issubdtype(given.dtype, np.integer):
        return np.asarray(given, np.int64)
    raise UserError(
        f"coalitions of shape {given.shape} and type {given.dtype} were given; expected bool[C, {n}], or whole numbers "
        "with bit i for player i"
    )


def grow(start: IntN, barred: IntN, near: IntN, tag: IntN, what: str) -> tuple[IntN, IntN]:
    """Every connected coalition that holds a start and avoids what is barred there, each once, with its start's tag.

    All starts grow at once, one decision a round: the lowest undecided neighbour joins, or is barred for good.

    Args:
        start: int[K], masks of one player each.
        barred: int[K], masks of the players that may not join.
        near: int[n], the neighbours of each player.
        tag: int[K], anything to carry along.
        what: what too many of them are too many for; see :func:`check_size`.
    """
    around = near[np.bitwise_count(start - 1)]
    done = [(start[:0], tag[:0])]
    while len(start):
        undecided = around & ~start & ~barred
        done.append((start[undecided == 0], tag[undecided == 0]))
        start, barred, around, tag, undecided = (x[undecided != 0] for x in (start, barred, around, tag, undecided))
        one = undecided & -undecided
        check_size(2 * len(start) + sum(len(found) for found, _ in done), what)
        start, barred = np.concatenate([start | one, start]), np.concatenate([barred, barred | one])
        around = np.concatenate([around | near[np.bitwise_count(one - 1)], around])
        tag = np.concatenate([tag, tag])
    return np.concatenate([found for found, _ in done]), np.concatenate([found for _, found in done])


def check_size(count: int, what: str) -> None:
    """Refuses what needs more than anyone could evaluate."""
    if count > MOST_LISTED:
        raise UserError(
            f"{what} more than {MOST_LISTED:,} coalitions; use a structure that leaves fewer ways to act together, "
            "or `estimate`"
        )
