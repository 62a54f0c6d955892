"""``macredit report``: the report of what is recorded."""

from __future__ import annotations

from pathlib import Path

from macredit.cli.options import Output
from macredit.cli.replays import truth_of
from macredit.cli.screen import say
from macredit.episode import read_episodes
from macredit.report import Report
from macredit.whatif import WhatIf


def report(source: Path, *, out: Output = Path("report.html")) -> None:
    """The report of an episodes file or of a training run, from what is recorded.

    Args:
        source: An episodes file, or a run's folder.
        out: .html, .json, .txt, or a picture with the extra `report`.
    """
    report_of(source).save(out)
    say(f"report: {out}")


def report_of(source: Path) -> Report:
    """The report of an episodes file or a run's folder."""
    from macredit.measure import measure as measure_all
    from macredit.rows import rows_of
    from macredit.run_folder import read_metrics

    episodes = read_episodes(source / "episodes.jsonl" if source.is_dir() else source)
    metrics = read_metrics(source) if (source / "metrics.jsonl").exists() else []
    whatif = WhatIf(episodes)
    results = tuple(measure_all(whatif))
    return Report(str(source), results, rows_of(episodes), metrics=tuple(metrics), **truth_of(whatif)._asdict())
