"""``macredit demo``."""

from __future__ import annotations

from pathlib import Path

from macredit.cli.options import Output
from macredit.cli.screen import show
from macredit.cli.words import world_of


def demo(*, out: Output = Path("macredit-demo"), seed: int = 0) -> None:
    """Train and measure a small team whose true credit is known, with four methods; under a minute, no download.

    Args:
        out: The folder for the report and the episodes.
        seed: Draws tasks and replies.
    """
    from macredit.demo import run_demo

    show(run_demo(world_of, out, seed))
