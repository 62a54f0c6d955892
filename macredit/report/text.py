"""The report in a terminal: headline, credit beside the exact values, cost, warnings."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from macredit.report.wording import COSTS, credit, exactly, footnotes, headline, number

if TYPE_CHECKING:
    from macredit.report.report import MethodResult, Report


def console_text(report: Report) -> RenderableType:
    """Everything but the episodes, as rich tables."""
    parts: list[RenderableType] = [Text(safe(report.title), style="bold"), _facts(report)]
    parts += [safe_text(note) for note in report.notes]
    if report.measured or report.exact:
        parts += [
            Text(),
            _credit(report),
            *(safe_text(note, "dim") for note in footnotes(report.measured, report.exact_of)),
        ]
    parts += [safe_text(sentence) for sentence in report.explanations]
    if report.measured:
        parts += [Text(), _cost(report.measured)]
    parts += [safe_text(f"warning · {source}: {text}", "yellow") for source, text in report.warnings]
    return Group(*parts)


def plain_text(report: Report, width: int = 120) -> str:
    """The same without colours."""
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(console_text(report))
    written: io.StringIO = console.file  # type: ignore[assignment]  # the one handed in above
    return written.getvalue()


def _facts(report: Report) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    for name, sentence in headline(report).items():
        grid.add_row(name, safe_text(sentence))
    return grid


def _credit(report: Report) -> Table:
    table = Table(title="credit per agent (± standard error)", title_justify="left", box=None, header_style="bold")
    table.add_column("")
    agents = report.agents
    for name in agents:
        table.add_column(safe_text(name), justify="right")
    for label, result in report.measured.items():
        table.add_row(safe_text(label), *(Text(credit(result.by_agent.get(name))) for name in agents))
    for index, values in (report.exact or {}).items():
        table.add_row(
            safe_text(exactly(index), "dim"),
            *(Text(number(values.get(name)), "dim") for name in agents),
        )
    return table


def _cost(measured: Mapping[str, MethodResult]) -> RenderableType:
    spent = [name for name in COSTS if any(result.cost.get(name) for result in measured.values())]
    if not spent:
        return Text("no replay and no model call was needed", style="dim")
    table = Table(title="cost", title_justify="left", box=None, header_style="bold")
    table.add_column("")
    for name in spent:
        table.add_column(COSTS[name].heading, justify="right")
    for label, result in measured.items():
        cost = result.cost
        table.add_row(safe_text(label), *(COSTS[name].written(cost.get(name), cost) for name in spent))
    return table


def safe_text(text: str, style: str = "") -> Text:
    """Never read as markup."""
    return Text(safe(text), style=style)


def safe(text: str) -> str:
    """Control characters, which could drive the terminal, and lone surrogates shown as what they are."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)
