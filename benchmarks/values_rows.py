"""Rows of the table: what was measured, what was wanted, the verdict."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Show = Callable[[float], str]
Limits = tuple[float, float]
"""Lowest and highest number that will do."""


def at_least(low: float) -> Limits:
    """This or more."""
    return low, math.inf


def at_most(high: float) -> Limits:
    """This or less."""
    return -math.inf, high


def times(x: float) -> str:
    """``1,234×``."""
    return f"{x:,.0f}×" if x >= 100 else f"{x:.3g}×"


def part(x: float) -> str:
    """``1/2.5``."""
    if x >= 1:
        return f"{x:.3g}"
    return f"1/{1 / x:,.0f}" if x < 0.01 else f"1/{1 / x:.3g}"


def seconds(x: float) -> str:
    """``1.2 ms``."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if x >= scale:
            return f"{x / scale:.3g} {unit}"
    return f"{x * 1e9:.3g} ns"


def megabytes(x: float) -> str:
    """``0.12 MB``."""
    return f"{x / 1e6:.2f} MB"


def percent(x: float) -> str:
    """``95.0 %``."""
    return f"{100 * x:.1f} %"


def small(x: float) -> str:
    """``1e-16``."""
    return f"{x:.1e}"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    show: Show
    must: Limits | None
    """None: told for orientation."""
    stretch: Limits | None
    measured: float | None
    """None: not measured, ``how`` says why."""
    how: str

    @property
    def verdict(self) -> str:
        """``stretch``, ``must``, ``MISSED``, ``not measured``, or nothing where nothing was wanted."""
        if self.measured is None:
            return "not measured"
        if self.must is None:
            return ""
        if self.stretch and _within(self.measured, self.stretch):
            return "stretch"
        return "must" if _within(self.measured, self.must) else "MISSED"

    @property
    def failed(self) -> bool:
        """Whether a must is not met; one that was not measured is not met."""
        return self.must is not None and self.verdict in ("MISSED", "not measured")

    def line(self) -> str:
        """Aligned text."""
        measured = "–" if self.measured is None else self.show(self.measured)
        must, stretch = (_wanted(limits, self.show) for limits in (self.must, self.stretch))
        return f"{self.what:<58} {measured:>11} {must:>14} {stretch:>12}  {self.verdict:<12}  {self.how}"


HEADER = f"{'':<58} {'measured':>11} {'must':>14} {'stretch':>12}  {'verdict':<12}  how"


def told(rows: Iterable[tuple[Row, bool]]) -> int:
    """Print rows as they are measured, then those that failed and are judged, on standard error; the exit status."""
    print(HEADER)
    missed = []
    for row, judged in rows:
        print(row.line(), flush=True)
        missed += [row.line()] if judged and row.failed else []
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return int(bool(missed))


def _within(x: float, limits: Limits) -> bool:
    return limits[0] <= x <= limits[1]


def _wanted(limits: Limits | None, show: Show) -> str:
    if limits is None:
        return ""
    low, high = limits
    if math.isinf(low):
        return f"≤ {show(high)}"
    return f"≥ {show(low)}" if math.isinf(high) else f"{show(low)}–{show(high)}"
