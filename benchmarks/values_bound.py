"""How low an error can be on the noisy games of values_noisy, each score on a task of its own.

    python benchmarks/values_bound.py [5,8,12]

The best linear estimator that is told what no estimator knows: the mean and the covariance of the game's family, the
variance of each coalition's score, and with these the best split of the budget. Printed is the mean over games of its
expected squared error, Σ_i Var(φ_i | scores), beside that of the best unbiased estimator, which knows the variances.
Of 12 players a game takes a minute.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from values_games import make, table_of
from values_noisy import CHANCES

from macredit.values.noisy import shapley_design

FloatN = npt.NDArray[np.float64]
SETTINGS = {5: (64, 2_000, 60, 4), 8: (2_560, 1_000, 40, 4), 12: (12_288, 400, 12, 2)}
"""Players → budget, games that tell a family's covariance, improvements of the split, games a family."""
FIRST = 50_000
"""Seed of the games that tell a family's covariance; others than the measured ones."""
LEAST = 1e-3
"""Variance of a score there is at least."""


def covariance(family: str, n: int, games: int) -> FloatN:
    """float[2**n, 2**n]: covariance of worths in a family, equal for coalitions that are alike but for names."""
    masks = np.arange(2**n)
    size = np.bitwise_count(masks).astype(np.int64)
    worths = np.stack([table_of(make(family, n, FIRST + seed)) for seed in range(games)])
    mean = np.bincount(size, worths.mean(axis=0)) / np.bincount(size)
    away = worths - mean[size]
    alike = (np.bitwise_count(masks[:, None] & masks).astype(np.int64) * (n + 1) + size[:, None]) * (n + 1) + size
    total = np.bincount(alike.ravel(), (away.T @ away / games).ravel())
    return np.asarray((total / np.maximum(np.bincount(alike.ravel()), 1))[alike])


def bound(matrix: FloatN, prior: FloatN, variance: FloatN, budget: int, steps: int) -> float:
    """The least Σ_i Var(φ_i | scores) over splits of a budget, improved ``steps`` times from the best unbiased one."""
    readout = prior @ matrix.T
    count = np.sqrt((matrix**2).sum(axis=0) * variance) + 1e-12
    least = np.inf
    for _ in range(steps):
        count *= budget / count.sum()
        used = count > 1e-9
        told = prior[np.ix_(used, used)] + np.diag(variance[used] / count[used] + 1e-10)
        solved = cho_solve(cho_factor(told, lower=True, overwrite_a=True), readout[used])
        least = min(least, float(np.trace(matrix @ readout - readout[used].T @ solved)))
        left = readout - prior[:, used] @ solved
        count = count * np.sqrt((left**2).sum(axis=1) / variance)
    return least


def main(players: Sequence[int]) -> None:
    """Print a line a number of players."""
    for n in players:
        budget, draws, steps, games = SETTINGS[n]
        matrix = shapley_design(n).matrix
        best, unbiased = [], []
        for family in CHANCES:
            prior = covariance(family, n, draws)
            for seed in range(games):
                chance = table_of(make(family, n, seed))
                variance = np.maximum(chance * (1 - chance), LEAST)
                best.append(bound(matrix, prior, variance, budget, steps))
                unbiased.append(float(np.sqrt((matrix**2).sum(axis=0) * variance).sum() ** 2 / budget))
        told = f"told family and noise {np.mean(best):.2e}, unbiased and told noise {np.mean(unbiased):.2e}"
        print(f"n={n}, {budget:,} rollouts, a fresh task each: {told}; {len(best)} games", flush=True)


if __name__ == "__main__":
    main([int(n) for n in sys.argv[1].split(",")] if len(sys.argv) > 1 else list(SETTINGS))
