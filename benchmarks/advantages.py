"""The normaliser against the loop over a dictionary of groups that trainers usually carry.

    python benchmarks/advantages.py

One process, one thread, a million rows; medians of five runs. What it printed stands in README.md beside this file.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from macredit.advantage import FloatM, IntM, normalise

ROWS, RUNS = 1_000_000, 5


def with_a_dictionary(score: FloatM, group: IntM) -> FloatM:
    """The usual reference: collect scores by group, take mean and deviation of each, divide row by row."""
    scores: dict[int, list[float]] = defaultdict(list)
    for s, g in zip(score.tolist(), group.tolist(), strict=True):
        scores[g].append(s)
    mean = {g: float(np.mean(values)) for g, values in scores.items()}
    std = {g: float(np.std(values)) for g, values in scores.items()}
    return np.array([
        (s - mean[g]) / (std[g] + 1e-6) for s, g in zip(score.tolist(), group.tolist(), strict=True)
    ])  # fmt: skip


def median_seconds(run: Callable[[], object]) -> float:
    """Median wall time."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Time both on groups of 8, 64 and 8,000 rows."""
    rng = np.random.default_rng(0)
    print(f"{ROWS:,} rows\n{'rows a group':>12} {'normalise':>10} {'dictionary':>10} {'ratio':>7}")
    for size in (8, 64, 8_000):
        score, group = rng.normal(size=ROWS), rng.integers(0, ROWS // size, ROWS)
        np.testing.assert_allclose(normalise(score, group).advantage, with_a_dictionary(score, group), atol=1e-8)
        ours = median_seconds(lambda s=score, g=group: normalise(s, g))  # type: ignore[misc]
        usual = median_seconds(lambda s=score, g=group: with_a_dictionary(s, g))  # type: ignore[misc]
        print(f"{size:>12,} {ours:>8.3f} s {usual:>8.3f} s {usual / ours:>6.0f}×")


if __name__ == "__main__":
    main()
