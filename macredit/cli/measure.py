"""``macredit measure``: every method that a record supports."""

from __future__ import annotations

import json
from pathlib import Path

from macredit.cli.options import Json, Output
from macredit.cli.replays import AS_RECORDED, Replays, replaying, truth_of
from macredit.cli.screen import say, show
from macredit.report import Report


def measure(
    episodes: Path,
    *,
    replays: Replays = AS_RECORDED,
    out: Output = Path("report.html"),
    json_: Json = False,
) -> None:
    """Every method that the record supports, cheapest first, and the report.

    Args:
        episodes: An episodes file.
        out: The report: .html, .json, .txt, or a picture with the extra `report`.
        json_: Print the report as one JSON object and nothing else.
    """
    from macredit.measure import measure as measure_all
    from macredit.rows import rows_of

    with replaying(episodes, replays) as whatif:
        results = measure_all(whatif)
    report = Report(
        f"Credit in {episodes.name}", tuple(results), rows_of(whatif.episodes), **truth_of(whatif)._asdict()
    )
    report.save(out)
    if json_:
        print(json.dumps(report.to_json()))
    else:
        show(report.text())
    say(f"report: {out}")
