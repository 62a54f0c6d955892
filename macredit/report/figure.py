"""The credit picture as an image file, drawn by matplotlib (extra ``report``)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from macredit.errors import UserError, missing_extra
from macredit.report.table import AgentRow

if TYPE_CHECKING:
    from macredit.report.report import Report


def figure(report: Report, form: str) -> bytes:
    """One panel a method: bars with 95 % whiskers, exact values as diamonds.

    Raises:
        UserError: matplotlib is missing, or no method ran.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "report") from None
    if not report.measured:
        raise UserError("a picture of a report in which no method ran was asked for; run at least one method")
    names = report.agents
    many = len(report.measured)
    drawing = Figure(figsize=(2.4 * many + 1.2, 0.45 * len(names) + 1.4), layout="constrained")
    panels = drawing.subplots(1, many, sharey=True, sharex=True, squeeze=False)[0]
    for panel, (label, result) in zip(panels, report.measured.items(), strict=True):
        exact = (report.exact or {}).get(result.index or "", {})
        _draw(panel, [result.by_agent.get(name) for name in names])
        known = [(a, exact[name]) for a, name in enumerate(names) if name in exact]
        places, marks = [value for _, value in known], [a for a, _ in known]
        panel.scatter(places, marks, marker="D", s=26, facecolor="white", edgecolor="black", zorder=3)
        panel.axvline(0, color="black", linewidth=0.8)
        panel.set_title(inert(label), fontsize=9)
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.tick_params(axis="y", length=0)
    panels[0].set_yticks(range(len(names)), [inert(name) for name in names])
    panels[0].invert_yaxis()
    drawing.supxlabel("credit (95 % interval; diamonds: the environment's own)", fontsize=9)
    out = io.BytesIO()
    drawing.savefig(out, format=form, dpi=150)
    return out.getvalue()


def _draw(panel: Any, table: Sequence[AgentRow | None]) -> None:
    values = [np.nan if row is None or row.credit is None else row.credit for row in table]
    margins = [0.0 if row is None else row.margin or 0.0 for row in table]
    colours = ["#b3532b" if value < 0 else "#2f6690" for value in values]
    panel.barh(range(len(table)), values, xerr=margins, color=colours, height=0.6, capsize=3)


def inert(text: str) -> str:
    """A dollar sign would begin a formula."""
    return text.replace("$", r"\$")
