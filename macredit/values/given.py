"""What users hand in, checked: one sentence for each thing that cannot be meant."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from macredit.errors import UserError
from macredit.rows import BoolN, FloatN
from macredit.values.answers import BoolCN


def whole(name: str, given: Any, least: int | None = None) -> int:
    """A whole number, not below ``least``."""
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or (least is not None and given < least):
        expected = "a whole number" if least is None else f"a whole number from {least}"
        raise UserError(f"{name} is {given!r}; expected {expected}")
    return int(given)


def span(worth_range: Any) -> float | None:
    """Highest minus lowest possible worth."""
    if worth_range is None:
        return None
    try:
        low, high = (float(end) for end in worth_range)
    except (TypeError, ValueError):
        low = high = math.nan
    if not 0 < high - low < math.inf:
        raise UserError(f"worth_range is {worth_range!r}; expected the lowest and the highest possible worth")
    return high - low


def groups_of(groups: Any, n: int) -> tuple[tuple[int, ...], ...]:
    """Groups that hold every player once; none for None."""
    if groups is None:
        return ()
    try:
        split = tuple(tuple(int(player) for player in group) for group in groups)
    except (TypeError, ValueError):
        split = ()
    if sorted(player for group in split for player in group) != list(range(n)) or not all(split):
        raise UserError(f"groups are {repr(groups)[:60]}; expected lists that hold every player 0 to {n - 1} once")
    return split


def coalitions_of(given: Any, n: int) -> BoolCN:
    """bool[C, n] from anything that holds truth values or zeros and ones."""
    rows = np.asarray(given)
    if rows.ndim != 2 or rows.shape[1] != n or (rows.dtype != np.bool_ and not np.isin(rows, (0, 1)).all()):
        raise UserError(f"coalitions of shape {rows.shape} and type {rows.dtype} were told; expected bool[C, {n}]")
    return rows.astype(np.bool_)


def worths_of(given: Any, count: int) -> FloatN:
    """float[C] from an array or a list of numbers, one a coalition."""
    try:
        numbers = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"the game answered {repr(given)[:60]}; expected {count} numbers, one a coalition") from None
    if numbers.shape != (count,):
        raise UserError(f"the game answered an array of shape {numbers.shape}; expected ({count},), one a coalition")
    return numbers


def named(coalition: BoolN) -> str:
    """A coalition as readable text: ``{0, 3}``."""
    members = np.flatnonzero(coalition)
    shown = ", ".join(str(i) for i in members[:12])
    return "{" + shown + (f", … ({len(members)} players)" if len(members) > 12 else "") + "}"
