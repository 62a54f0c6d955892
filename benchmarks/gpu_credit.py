"""What credit costs: a million rows through whole methods, as a share of the step that learns from as many rows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import numpy as np
from gpu_bench import Bench, Line
from values_rows import at_most

from macredit.advantage import normalise
from macredit.credit import METHODS
from macredit.credit import credit as credit_of
from macredit.episode import Episode, Turn
from macredit.rows import rows_of

AGENTS = ("planner", "solver", "verifier")
SHARE = 0.01
"""Credit may take at most this part of a step."""


def credit(bench: Bench) -> Iterator[Line]:
    """The normaliser alone, columns from records, then every method that a plain record feeds."""
    rows = 30_000 if bench.tiny else 1_000_000
    rng = np.random.default_rng(0)
    score, group = rng.normal(size=rows), rng.integers(0, rows // 8, rows)
    alone = statistics.median(bench.seconds(lambda: normalise(score, group)) for _ in range(3))
    yield {"what": "normalise", "rows": rows, "seconds": alone}
    episodes = record(rng, rows // len(AGENTS))
    start = time.perf_counter()
    columns = rows_of(episodes)
    reading = time.perf_counter() - start
    yield {"what": "columns from episodes", "rows": len(columns), "seconds": reading}
    for name in ("grpo", "dr_mas", "m_grpo"):
        start = time.perf_counter()
        found = credit_of(columns, name)
        seconds = time.perf_counter() - start + reading
        bench.check(
            bool(np.isfinite(found.advantage).all() and found.advantage.any()),
            f"credit: advantages of {name} are not finite, or all 0",
        )
        yield shown(bench, name, len(columns), seconds)


def shown(bench: Bench, name: str, rows: int, seconds: float) -> Line:
    """A method's line: the step is the learner's alone, so that rollouts would only make the share smaller."""
    line: Line = {"what": METHODS[name].name, "rows": rows, "seconds": seconds}
    if bench.seconds_per_row is not None:
        learning = rows * bench.seconds_per_row
        line |= {"learner_seconds": learning, "share": seconds / (seconds + learning)}
    return bench.judged(f"credit, {name}", line, "share", at_most(SHARE))


def record(rng: np.random.Generator, episodes: int) -> list[Episode]:
    """Episodes of one turn an agent, in groups of eight."""
    reward = rng.integers(0, 2, episodes).astype(float)
    return [
        Episode(
            f"{e // 8}-{e % 8}", str(e // 8), reward=float(reward[e]), group=e % 8,
            turns=tuple(Turn(agent, "said", id=f"{e}/{t}") for t, agent in enumerate(AGENTS)),
        )
        for e in range(episodes)
    ]  # fmt: skip
