"""What a measurement, comparison or training run found: as text, as JSON, and as one page that opens offline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType

from macredit.credit import METHODS
from macredit.credit.method import Credits, Method
from macredit.episode import write_atomically
from macredit.errors import UserError
from macredit.report.explain import disagreements, interplay
from macredit.report.figure import figure
from macredit.report.page import page
from macredit.report.share import Share, learning_share, long_failures
from macredit.report.summary import Summary, served_by, summary
from macredit.report.table import AgentRow, agent_table, exact_index
from macredit.report.text import console_text, plain_text
from macredit.report.wording import exactly
from macredit.rows import Rows

PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class MethodResult:
    """One method's answer on the report's episodes, or why it has none."""

    name: str
    preset: str
    settings: Mapping[str, Any]
    credits: Credits | None
    """None where the method could not run."""
    cost: Mapping[str, float]
    """The ledger's counters."""
    error: str | None = None
    """Why it could not run."""

    @cached_property
    def method(self) -> Method | None:
        """What the method promises; None for one that macredit does not list."""
        return METHODS.get(self.name)

    @cached_property
    def table(self) -> tuple[AgentRow, ...]:
        """Credit per agent over the episodes."""
        return agent_table(self.credits) if self.credits else ()

    @cached_property
    def by_agent(self) -> Mapping[str, AgentRow]:
        """The same by name."""
        return {row.agent: row for row in self.table}

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """Who drives the update, by length of trajectory."""
        return learning_share(self.credits) if self.credits else ()

    @property
    def broadcast(self) -> bool:
        """Whether every agent was handed the same reward."""
        return any(row.broadcast for row in self.table)

    @property
    def index(self) -> str | None:
        """The exact index its credit estimates."""
        return exact_index(self.name, self.settings)


@dataclass(frozen=True)
class Report:
    """Several methods on the same episodes, beside the exact credit where it is known."""

    title: str
    results: tuple[MethodResult, ...]
    rows: Rows
    exact: Mapping[str, Mapping[str, float]] | None = None
    """Index → agent → value."""
    metrics: tuple[Mapping[str, Any], ...] = ()
    """Of a training run: one object a step."""
    notes: tuple[str, ...] = ()
    exact_of: str = ""
    """Whose value the exact one is."""

    @cached_property
    def summary(self) -> Summary:
        """The headline."""
        return summary(self.rows)

    @cached_property
    def labelled(self) -> dict[str, MethodResult]:
        """Label → result: the method's name, and what tells it apart where it stands there twice."""
        labels: dict[str, MethodResult] = {}
        for result in self.results:
            twins = [other for other in self.results if other.name == result.name]
            label = f"{result.name} ({_difference(result, twins)})" if len(twins) > 1 else result.name
            labels[label if label not in labels else f"{label} #{len(labels) + 1}"] = result
        return labels

    @cached_property
    def measured(self) -> dict[str, MethodResult]:
        """Those that ran."""
        return {label: result for label, result in self.labelled.items() if result.credits is not None}

    @cached_property
    def agents(self) -> tuple[str, ...]:
        """Everyone in the episodes, and in those of methods that collect their own."""
        names = [*self.summary.agents, *(row.agent for result in self.measured.values() for row in result.table)]
        return tuple(dict.fromkeys(names))

    @cached_property
    def explanations(self) -> tuple[str, ...]:
        """Why leave-one-out and Shapley disagree, where both are known, and who replaces or needs whom."""
        lost, shared = self._values("loo"), self._values("shapley")
        largest = max((abs(value) for value in shared[1].values()), default=0.0)
        return (
            *disagreements(lost[1], shared[1], (lost[0], shared[0])),
            *interplay(self.interactions, largest),
        )

    @cached_property
    def interactions(self) -> dict[tuple[str, str], float]:
        """Mean interaction of two agents over episodes, by the first method that knows every coalition."""
        known = (r.credits.interactions for r in self.measured.values() if r.credits and r.credits.interactions)
        found: dict[tuple[str, str], list[float]] = {}
        for pair in next(known, ()):
            one, other = sorted(pair["agents"], key=self.agents.index)
            found.setdefault((one, other), []).append(pair["value"])
        return {pair: float(np.mean(values)) for pair, values in found.items()}

    def _values(self, index: str) -> tuple[str, Mapping[str, float]]:
        """The first method that estimates an index and its credit by agent; else the exact values."""
        for label, result in self.measured.items():
            if result.index == index:
                return label, {row.agent: row.credit for row in result.table if row.credit is not None}
        return exactly(index), (self.exact or {}).get(index, {})

    @cached_property
    def warnings(self) -> tuple[tuple[str, str], ...]:
        """(where it comes from, what it says); what several methods say stands once."""
        said: dict[str, list[str]] = {}
        failures: dict[str, list[str]] = {}
        for name, error in self.summary.errors.items():
            failures.setdefault(error, []).append(name)
        for error, names in failures.items():
            said[f"failed and left out: {error} (in {len(names)}, first {names[0]})"] = ["episodes"]
        if served := served_by(self.rows):
            said[f"turns by {', '.join(served)} come from a server: recorded, not reproducible"] = ["episodes"]
        for label, result in self.labelled.items():
            own = result.credits.warnings if result.credits is not None else ()
            failed = [f"could not run: {result.error}"] if result.error is not None else []
            for text in (*failed, *own, *long_failures(result.shares)):
                said.setdefault(text, []).append(label)
        return tuple((", ".join(sources), text) for text, sources in said.items())

    # -- forms ------------------------------------------------------------------------------------------------------

    def text(self) -> RenderableType:
        """For the terminal: ``rich.print(report.text())``."""
        return console_text(self)

    def to_json(self) -> dict[str, Any]:
        """One JSON object; NaN is null."""
        methods = [
            {
                "name": result.name, "label": label, "preset": result.preset, "settings": result.settings,
                "error": result.error, "index": result.index, "broadcast": result.broadcast,
                "agents": [asdict(row) for row in result.table], "cost": result.cost,
                "interactions": [dict(pair) for pair in result.credits.interactions] if result.credits else [],
                "learning_share": [asdict(share) for share in result.shares],
                "notes": result.credits.notes if result.credits else {},
                "warnings": result.credits.warnings if result.credits else (),
            }
            for label, result in self.labelled.items()
        ]  # fmt: skip
        out: dict[str, Any] = _plain(
            {
                "title": self.title, "summary": asdict(self.summary), "methods": methods, "exact": self.exact,
                "exact_of": self.exact_of,
                "explanations": self.explanations, "metrics": self.metrics, "notes": self.notes,
                "warnings": [{"from": source, "text": text} for source, text in self.warnings],
            }
        )  # fmt: skip
        return out

    def html(self) -> str:
        """One self-contained page."""
        return page(self)

    def save(self, path: str | Path) -> Path:
        """Write the form that the file's ending names: .html, .json, .txt, or a picture (.png, .svg, .pdf).

        Raises:
            UserError: another ending, or a picture without the extra ``report``.
        """
        path = Path(path)
        if path.suffix == ".html":
            data = self.html().encode("utf-8", "backslashreplace")
        elif path.suffix == ".json":
            data = json.dumps(self.to_json(), indent=1, allow_nan=False).encode()
        elif path.suffix == ".txt":
            data = plain_text(self).encode("utf-8", "backslashreplace")
        elif path.suffix in PICTURES:
            data = figure(self, path.suffix[1:])
        else:
            raise UserError(
                f"the report was to be saved as {path.name!r}; expected a name that ends in .html, .json, .txt or "
                f"{', '.join(PICTURES)}"
            )
        write_atomically(path, data)
        return path


def _difference(result: MethodResult, twins: Sequence[MethodResult]) -> str:
    """The preset, and the settings that not all twins share."""
    parts = [result.preset] if len({twin.preset for twin in twins}) > 1 else []
    parts += [f"{k}={v}" for k, v in result.settings.items() if any(twin.settings.get(k) != v for twin in twins)]
    return ", ".join(parts) or result.preset


def _plain(value: Any) -> Any:
    """Only what JSON has."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
