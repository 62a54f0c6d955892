"""The report as one HTML page: no script, no request, everything escaped; it opens offline in any browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jinja2

from macredit.report import wording
from macredit.report.bars import Bar, bar, scale_of
from macredit.report.curves import curves
from macredit.report.graph import Graph, team_graph
from macredit.report.share import Share
from macredit.report.summary import messages
from macredit.report.transcript import transcripts

if TYPE_CHECKING:
    from macredit.report.report import MethodResult, Report


def page(report: Report) -> str:
    """The whole page."""
    source = jinja2.Environment(
        loader=jinja2.PackageLoader("macredit", "report"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    names = ("number", "short", "count", "percent", "plus_minus", "why", "note", "exactly")
    source.filters.update({name: getattr(wording, name) for name in names})
    return source.get_template("page.html").render(_content(report))


def _content(report: Report) -> dict[str, Any]:
    """What the template shows."""
    measured = report.measured
    splitting = [label for label, result in measured.items() if not result.broadcast]
    leading = next((label for label in splitting if measured[label].index == "shapley"), next(iter(splitting), None))
    return {
        "report": report,
        "facts": wording.headline(report),
        "bars": _bars(report),
        "measured": measured,
        "errors": {label: wording.estimate_error(result.table) for label, result in measured.items()},
        "footnotes": wording.footnotes(measured, report.exact_of),
        "markdown": _markdown(report),
        "costs": {
            name: heading
            for name, heading in wording.COSTS.items()
            if any(result.cost.get(name) for result in measured.values())
        },
        "leading": leading,
        "graph": _graph(report, measured[leading] if leading else None),
        "messages": sorted(messages(report.rows).items(), key=lambda item: -item[1]),
        "episodes": transcripts(report.rows, {k: r.credits for k, r in measured.items() if r.credits is not None}),
        "curves": curves(report.metrics, (*report.agents, *_policies(report))),
        "shares": _shares(report),
        "DASH": wording.DASH,
    }


def _policies(report: Report) -> set[str]:
    return {agent.policy for team in dict.fromkeys(report.rows.teams) for agent in team.agents}


def _bars(report: Report) -> dict[str, list[Bar]]:
    """Label → one bar an agent, all on one scale."""
    exact = report.exact or {}
    scale = scale_of(
        [result.table for result in report.measured.values()], [v for values in exact.values() for v in values.values()]
    )
    return {
        label: [bar(row, exact.get(result.index or "", {}).get(row.agent), scale) for row in result.table]
        for label, result in report.measured.items()
    }


def _graph(report: Report, result: MethodResult | None) -> Graph:
    facts = report.summary
    allowed = dict.fromkeys(edge for team in dict.fromkeys(report.rows.teams) for edge in team.edges)
    credit = {row.agent: row.credit for row in result.table} if result else {}
    return team_graph(facts.agents, facts.orchestrators, allowed, messages(report.rows), credit)


def _shares(report: Report) -> dict[tuple[str, str], dict[str, Share]]:
    """(agent, length) → label → its trajectories and their share of what the agent learns."""
    table: dict[tuple[str, str], dict[str, Share]] = {}
    for label, result in report.measured.items():
        for share in result.shares:
            table.setdefault((share.agent, share.length), {})[label] = share
    return table


def _markdown(report: Report) -> str:
    """The credit table as Markdown."""
    agents = report.agents
    lines = [["method", *agents], ["---", *("---:" for _ in agents)]]
    for label, result in report.measured.items():
        lines.append([label, *(wording.credit(result.by_agent.get(name)) for name in agents)])
    for index, values in (report.exact or {}).items():
        lines.append([wording.exactly(index), *(wording.number(values.get(name)) for name in agents)])
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)
