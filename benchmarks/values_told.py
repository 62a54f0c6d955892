"""How low any estimator's error can be on the noisy games of five players in values_noisy: the one that is told all.

    python benchmarks/values_told.py

It knows the four families and how they draw their games, and how a task decides who solves it. Of all estimates from
the scores that ours are made from, the mean of the games by their likelihood given these scores has the least expected
squared error; 80,000 games drawn beforehand stand for all, so that the error printed is a little above that. Ours is
told nothing but the scores. A minute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from values_bound import FIRST
from values_games import Game, make, table_of
from values_noisy import CHANCES, Tasks, mask_of, on_shared_tasks, rollouts

from macredit.values.estimation import estimate
from macredit.values.log import Question
from macredit.values.masks import masks_of

FloatN = npt.NDArray[np.float64]
N, BUDGET = 5, 64
GAMES, DRAWN = 12, 20_000
"""Games a family that are estimated (from seed 0), and that are drawn beforehand (from seed ``FIRST``)."""
LEAST = 1e-6
"""Chance that a game gives any scores at least."""


@dataclass
class Scores:
    """Which coalitions, as masks, failed and solved each task."""

    of: dict[int, tuple[list[int], list[int]]] = field(default_factory=lambda: defaultdict(lambda: ([], [])))

    def add(self, task: int, mask: int, score: float) -> None:
        """One more."""
        self.of[task][int(score)].append(mask)

    def log_chance(self, tables: FloatN) -> FloatN:
        """float[G]: of these scores in each game, float[G, 2**n]: difficulties lie evenly on [0, 1]."""
        total: FloatN = np.zeros(len(tables))
        for failed, solved in self.of.values():
            above = tables[:, failed].max(axis=1, initial=0.0)
            total += np.log(np.maximum(tables[:, solved].min(axis=1, initial=1.0) - above, LEAST))
        return total


@dataclass
class Noted(Tasks):
    """Notes every score on shared tasks."""

    noted: Scores = field(default_factory=Scores)

    def scores(self, questions: Sequence[Question], keep: Callable[[Question, float], Any]) -> None:
        """As those of any tasks."""

        def note(question: Question, score: float) -> None:
            self.noted.add(question.seed, mask_of(question), score)
            keep(question, score)

        super().scores(questions, note)


def fresh(game: Game, seed: int) -> tuple[FloatN, Scores]:
    """Our values and what they are made from, a fresh task each."""
    noted, play = Scores(), rollouts(game, np.random.default_rng([seed, 2]))

    def ask(coalitions: Any) -> FloatN:
        scores = play(coalitions)
        for mask, score in zip(masks_of(coalitions, N), scores, strict=True):
            noted.add(len(noted.of), int(mask), score)
        return scores

    return estimate(ask, N, BUDGET, seed, noise=True).values, noted


def in_common(game: Game, seed: int) -> tuple[FloatN, Scores]:
    """Our values and what they are made from, tasks in common."""
    tasks = Noted(table_of(game))
    return on_shared_tasks(tasks, N, BUDGET, seed).values, tasks.noted


def main() -> None:
    """Print a line each for fresh tasks and for tasks in common."""
    drawn = [make(family, N, FIRST + seed) for family in CHANCES for seed in range(DRAWN)]
    tables, values = np.stack([table_of(game) for game in drawn]), np.stack([game.shapley for game in drawn])
    games = [make(family, N, seed) for family in CHANCES for seed in range(GAMES)]
    for played, tasks in ((fresh, "a fresh task each"), (in_common, "tasks in common")):
        ours, told = [], []
        for seed, game in enumerate(games):
            mine, scores = played(game, seed)
            weight = scores.log_chance(tables)
            weight = np.exp(weight - weight.max())
            ours.append(float(((mine - game.shapley) ** 2).sum()))
            told.append(float(((weight @ values / weight.sum() - game.shapley) ** 2).sum()))
        error = f"told all {np.mean(told):.2e}, ours {np.mean(ours):.2e}"
        print(f"n={N}, {BUDGET} rollouts, {tasks}: {error}; {len(games)} games", flush=True)


if __name__ == "__main__":
    main()
