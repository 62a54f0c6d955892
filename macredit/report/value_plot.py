"""Values of a game as a picture: bars with 95 % intervals, and a network of who works with or against whom."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from macredit.episode import write_atomically
from macredit.errors import missing_extra, unknown
from macredit.report.figure import inert
from macredit.rows import FloatN

if TYPE_CHECKING:
    from macredit.values.indices import Index
    from macredit.values.session import Estimate

FORMS = (".html", ".pdf", ".png", ".svg")
HELPS, HARMS = "#2f6690", "#b3532b"


def check_plot(path: Path) -> str:
    """The form of a picture, such as ``.svg``; to be asked before anything is spent on its numbers.

    Raises:
        UserError: an unknown form, or matplotlib is missing.
    """
    form = path.suffix.lower()
    if form not in FORMS:
        raise unknown("form of a picture", form or path.name, FORMS)
    try:
        import matplotlib.figure  # noqa: F401  # is it there?
    except ImportError:
        raise missing_extra("matplotlib", "report") from None
    return form


def save_value_plot(path: Path, indices: Sequence[Index], found: Mapping[str, Estimate]) -> None:
    """One panel an index: bars for players and links, a network for pairs.

    Raises:
        UserError: an unknown form of picture, or matplotlib is missing.
        OutsideError: the file cannot be written.
    """
    form = check_plot(path)
    if form != ".html":
        write_atomically(path, _drawn(indices, found, form[1:]))
        return
    picture = base64.b64encode(_drawn(indices, found, "svg")).decode()
    names = html.escape(", ".join(index.name for index in indices))
    page = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{names}</title>
<body style="font-family: sans-serif"><h1>{names}</h1>
<img style="max-width: 100%" alt="{html.escape(_in_words(indices, found))}" src="data:image/svg+xml;base64,{picture}">
</body></html>
"""
    write_atomically(path, page.encode())


def _in_words(indices: Sequence[Index], found: Mapping[str, Estimate]) -> str:
    """The same for those who cannot see it."""
    lines = []
    for index in indices:
        values = zip(index.labels, found[index.name].values, strict=True)
        lines.append(f"{index.name}: " + ", ".join(f"{label} {number:.3g}" for label, number in values))
    return ". ".join(lines)


def _drawn(indices: Sequence[Index], found: Mapping[str, Estimate], form: str) -> bytes:
    from matplotlib.figure import Figure

    from macredit.values.indices import PAIRS

    rows = max(len(index.labels) if index.name not in PAIRS else 8 for index in indices)
    drawing = Figure(figsize=(4.2 * len(indices), 0.45 * min(rows, 60) + 1.4), layout="constrained")
    panels = drawing.subplots(1, len(indices), squeeze=False)[0]
    for panel, index in zip(panels, indices, strict=True):
        panel.set_title(index.name, fontsize=10)
        panel.spines[["top", "right", "left"]].set_visible(False)
        if index.name in PAIRS:
            _network(panel, index, found[index.name].values)
        else:
            _bars(panel, index, found[index.name])
    out = io.BytesIO()
    drawing.savefig(out, format=form, dpi=150)
    return out.getvalue()


def _bars(panel: Any, index: Index, estimate: Estimate) -> None:
    radius = np.nan_to_num(estimate.interval()[:, 1] - estimate.values)
    colours = [HARMS if number < 0 else HELPS for number in estimate.values]
    whiskers = radius if radius.any() else None
    panel.barh(range(len(radius)), estimate.values, xerr=whiskers, color=colours, height=0.6, capsize=3)
    panel.axvline(0, color="black", linewidth=0.8)
    panel.set_yticks(range(len(radius)), [inert(label) for label in index.labels])
    panel.tick_params(axis="y", length=0)
    panel.invert_yaxis()
    panel.set_xlabel("value (95 % interval)" if radius.any() else "value", fontsize=9)


def _network(panel: Any, index: Index, values: FloatN) -> None:
    """Players on a circle; a line's width is the size of an interaction, its colour whether they help or replace."""
    n = len(index.players)
    pairs = values.reshape(n, n)
    angle = np.pi / 2 - 2 * np.pi * np.arange(n) / n
    x, y = np.cos(angle), np.sin(angle)
    largest = np.abs(pairs[~np.eye(n, dtype=bool)]).max(initial=0.0) or 1.0
    for i in range(n):
        for j in range(i + 1, n):
            if pairs[i, j]:
                width = 6 * math.sqrt(abs(pairs[i, j]) / largest)
                panel.plot(x[[i, j]], y[[i, j]], color=HARMS if pairs[i, j] < 0 else HELPS, linewidth=width, zorder=1)
    panel.scatter(x, y, s=500, color="white", edgecolor="black", zorder=2)
    for i, name in enumerate(index.players):
        panel.text(1.25 * x[i], 1.2 * y[i], inert(name), ha="center", va="center", fontsize=9)
        panel.text(x[i], y[i], f"{pairs[i, i]:.2g}", ha="center", va="center", fontsize=8, zorder=3)
    panel.set(xlim=(-1.6, 1.6), ylim=(-1.5, 1.5), aspect="equal", xticks=[], yticks=[])
    panel.spines[:].set_visible(False)
    panel.set_xlabel("blue: more together than apart; red: they replace each other", fontsize=8)
