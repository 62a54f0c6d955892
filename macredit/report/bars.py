"""Bars with whiskers on one scale: where they stand, in percent of a track; the page draws them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from macredit.report.table import AgentRow


@dataclass(frozen=True, slots=True)
class Bar:
    """One agent's bar, in percent of the track's width; whisker and exact mark where known."""

    row: AgentRow
    exact: float | None
    zero: float
    left: float
    width: float
    whisker: tuple[float, float] | None
    """Left end and width."""
    mark: float | None
    """Where the exact value stands."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Credits from ``low`` to ``high`` on a track of 100 percent; zero is always on it."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """The place of a value."""
        return 100 * (value - self.low) / (self.high - self.low)


def scale_of(tables: Iterable[Sequence[AgentRow]], exact: Iterable[float]) -> Scale:
    """One scale that holds every bar, whisker and exact value."""
    ends = [0.0, *exact]
    for row in (row for table in tables for row in table if row.credit is not None):
        value, margin = row.credit or 0.0, row.margin or 0.0
        ends += [value - margin, value + margin]
    low, high = min(ends), max(ends)
    return Scale(low, high) if high > low else Scale(0.0, 1.0)


def bar(row: AgentRow, exact: float | None, scale: Scale) -> Bar:
    """The bar of one agent."""
    zero, value = scale.at(0.0), scale.at(row.credit or 0.0)
    whisker = None
    if row.credit is not None and row.margin:
        low, high = scale.at(row.credit - row.margin), scale.at(row.credit + row.margin)
        whisker = (low, high - low)
    mark = None if exact is None else scale.at(exact)
    return Bar(row, exact, zero, min(zero, value), abs(value - zero), whisker, mark)
