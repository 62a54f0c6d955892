"""Curves of a training run: one small chart a quantity; the page draws them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Point = tuple[float, float]
CURVE_WIDTH, CURVE_HEIGHT = 320.0, 120.0
MAIN = ("reward", "credit", "dead_groups", "evaluation", "solo")
"""Beginnings of what is shown at once; the rest is folded away."""
WITH_ENGINE = ("learners mismatch_max", "staleness", "cache_hit_rate")
"""The same in a run where an engine speaks."""
HIDDEN = ("step", "cost")


@dataclass(frozen=True, slots=True)
class Trace:
    """One quantity over the steps; gaps where it is unknown."""

    label: str
    path: str
    last: float


@dataclass(frozen=True, slots=True)
class Curve:
    """One small chart: a quantity, with a trace for each agent where agents have their own."""

    title: str
    steps: tuple[float, float]
    low: float
    high: float
    traces: tuple[Trace, ...]
    main: bool
    """Whether it is shown at once."""

    @property
    def level(self) -> bool:
        """Whether nothing ever changed: a number, not a picture."""
        return self.low == self.high


def curves(metrics: Sequence[Mapping[str, Any]], names: Iterable[str]) -> tuple[Curve, ...]:
    """A chart for each number of the (nested) metrics; keys that name an agent or policy become traces of one chart."""
    names = frozenset(names)
    columns: dict[str, dict[str, list[Point]]] = {}
    for n, record in enumerate(metrics):
        for path, value in _numbers(record):
            if path[0] not in HIDDEN:
                label = next((part for part in path if part in names), "")
                title = " ".join(part for part in path if part != label)
                columns.setdefault(title, {}).setdefault(label, []).append((float(record.get("step", n)), value))
    known = {
        t: traces for t, traces in columns.items() if any(math.isfinite(v) for ps in traces.values() for _, v in ps)
    }
    steps = [step for traces in known.values() for points in traces.values() for step, _ in points]
    main = MAIN + WITH_ENGINE * any("hand_over" in record for record in metrics)
    return tuple(
        _curve(title, traces, (min(steps), max(steps)), main=title.startswith(main)) for title, traces in known.items()
    )


def _numbers(record: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, (*path, name))
        elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            yield (*path, name), math.nan if value is None else float(value)


def _curve(title: str, traces: Mapping[str, Sequence[Point]], steps: tuple[float, float], *, main: bool) -> Curve:
    values = [value for points in traces.values() for _, value in points if math.isfinite(value)]
    low, high = min(values), max(values)
    across, up = CURVE_WIDTH / ((steps[1] - steps[0]) or 1.0), CURVE_HEIGHT / ((high - low) or 1.0)
    drawn = []
    for label, points in traces.items():
        path, pen = "", "M{:.1f} {:.1f}h0"
        for step, value in points:
            known = math.isfinite(value)
            path += pen.format((step - steps[0]) * across, (high - value) * up) if known else ""
            pen = "L{:.1f} {:.1f}" if known else "M{:.1f} {:.1f}h0"
        drawn.append(Trace(label, path, points[-1][1]))
    return Curve(title, steps, low, high, tuple(drawn), main)
