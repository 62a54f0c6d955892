"""Rows about noisy games and about intervals: error for a number of 0/1 rollouts, and how often intervals hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from values_games import FAMILIES, Game, make, table_of
from values_rows import Limits, Row, at_least, at_most, part, percent
from values_sides import Bench, RivalError, row

from macredit.values.estimation import estimate
from macredit.values.indices import index_of
from macredit.values.log import Question
from macredit.values.scoring import Scoring
from macredit.values.session import Estimate

FloatN = npt.NDArray[np.float64]
CHANCES = ("curve", "team", "any_of", "coverage")
"""Families whose worths are chances of success."""
USES = ("KernelSHAP", "LeverageSHAP", "Permutation", "PolySHAP", "ProxySHAP", "RegressionMSR", "SVARM", "Stratified")
LEVEL = 0.95
SLOWER = 5
"""How many times fewer games a fitted process gets where it is fitted at every look."""


class Looked(Protocol):
    """An estimate with intervals."""

    def interval(self, level: float = LEVEL, *, anytime: bool = False) -> FloatN:
        """float[n, 2]."""


def noisy(bench: Bench) -> Iterator[Row]:
    """Mean squared errors from 0/1 rollouts against the best of all ways to use shapiq."""
    if bench.quick:
        return
    for n, budget, must in ((5, 64, 1 / 2), (8, 2_560, 1 / 2.8), (12, 12_288, 1 / 15)):
        for shared, tasks in ((False, "a fresh task each"), (True, "tasks in common")):
            measure = partial(_squared_error, bench, n, budget, shared)
            yield row(f"noisy: MSE, n={n}, {budget:,} rollouts, {tasks}", part, at_most(must), None, measure)


def coverage(bench: Bench) -> Iterator[Row]:
    """How often 95 % intervals hold, over games of all families; the anytime ones at every look together."""
    games = 100 if bench.quick else 2_000
    slack = 3 * (LEVEL * (1 - LEVEL) / games) ** 0.5 if bench.quick else 0.0
    band = (0.93 - slack, min(0.97 + slack, 1.0))
    for method in ("permutation", "stratified", "leverage", "gaussian"):
        yield _covered(f"95 % intervals, {method}", games, band, bench.seed, 8, 100, method=method)
    yield _covered("95 % intervals, 0/1 rollouts", games, band, bench.seed, 5, 320, noise=True)
    yield _covered("95 % intervals, 0/1 rollouts, tasks in common", games, band, bench.seed, 5, 320, shared=True)
    floor = at_least(LEVEL - slack)
    for method in ("permutation", "leverage") if bench.quick else ("permutation", "leverage", "gaussian"):
        some = games // SLOWER if method == "gaussian" else games
        yield _covered(f"anytime, {method}", some, floor, bench.seed, 8, 200, method=method, watched=True)
    yield _covered("anytime, 0/1 rollouts", games, floor, bench.seed, 5, 320, noise=True, watched=True)


@dataclass
class Watch:
    """A stopping rule that never stops and notes which anytime intervals held at every look where there were any."""

    truth: FloatN
    held: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.held = np.ones(len(self.truth), np.bool_)

    def settled(self, estimate: Looked) -> bool:
        """False."""
        interval = estimate.interval(LEVEL, anytime=True)
        self.held &= _inside(interval, self.truth) | np.isnan(interval).any(axis=1)
        return False


def _covered(
    what: str,
    games: int,
    band: Limits,
    first: int,
    n: int,
    budget: int,
    *,
    method: str = "auto",
    noise: bool = False,
    shared: bool = False,
    watched: bool = False,
) -> Row:
    held = []
    families = CHANCES if noise or shared else tuple(FAMILIES)
    for seed in range(first, first + games):
        game = make(families[seed % len(families)], n, seed)
        asked = rollouts(game, np.random.default_rng([seed, 1])) if noise else game
        watch = Watch(game.shapley) if watched else None
        if shared:
            found = on_shared_tasks(Tasks(table_of(game)), n, budget, seed)
        else:
            found = estimate(asked, n, budget, seed, method=method, noise=noise, stop=watch)
        interval = found.interval(LEVEL, anytime=watched)
        held.append(_inside(interval, game.shapley) & (watch.held if watch else True))
    how = f"n={n}, budget {budget}, {games:,} games of {len(families)} families"
    return Row(what, percent, band, None, float(np.mean(held)), how)


def _inside(interval: FloatN, truth: FloatN) -> npt.NDArray[np.bool_]:
    rounding = 1e-9
    return np.asarray((interval[:, 0] - rounding <= truth) & (truth <= interval[:, 1] + rounding))


def rollouts(game: Game, rng: np.random.Generator) -> Callable[[Any], FloatN]:
    """A game that succeeds, 1, or fails, 0, with the chance that ``game`` gives."""
    return lambda coalitions: (rng.random(len(coalitions)) < game(coalitions)).astype(float)


@dataclass
class Tasks:
    """Scores a coalition 1 on a task whose difficulty, even on [0, 1], is below its chance."""

    chance: FloatN

    def scores(self, questions: Sequence[Question], keep: Callable[[Question, float], Any]) -> None:
        """The seed of a question is its task."""
        for question in questions:
            difficulty = np.random.default_rng(question.seed).random()
            keep(question, float(difficulty < self.chance[mask_of(question)]))


def mask_of(question: Question) -> int:
    """The coalition; players are named by their numbers."""
    return sum(1 << int(player) for player in question.coalition)


def _ours(game: Game, budget: int, shared: bool, seed: int) -> FloatN:
    if not shared:
        return estimate(rollouts(game, np.random.default_rng([seed, 2])), game.n, budget, seed, noise=True).values
    return on_shared_tasks(Tasks(table_of(game)), game.n, budget, seed).values


def on_shared_tasks(tasks: Tasks, n: int, budget: int, seed: int) -> Estimate:
    """Ours, from rollouts of coalitions on tasks that they have in common."""
    players = tuple(map(str, range(n)))
    scoring = Scoring(players, tasks, seed)
    return scoring.estimates([index_of("shapley", players)], budget)["shapley"]


def _squared_error(bench: Bench, n: int, budget: int, shared: bool) -> tuple[float, str]:
    """Ours by the best use: every method of shapiq, on single rollouts and on means of as many as fill the budget.

    Where coalitions may play tasks in common, shapiq's best use is looked for among both.
    """
    bench.theirs("versions")
    most = budget // 2**n
    uses = [(name, times, False) for name in USES for times in sorted({1, most})] + [("ExactComputer", most, False)]
    uses += [(name, most, True) for name in (*USES, "ExactComputer") if shared]
    games = [make(family, n, seed) for family in CHANCES for seed in range(bench.seed, bench.seed + bench.repeats)]
    ours: list[float] = []
    theirs: dict[tuple[str, int, bool], list[float]] = {use: [] for use in uses}
    for seed, game in enumerate(games):
        ours.append(float(((_ours(game, budget, shared, seed) - game.shapley) ** 2).sum()))
        chance = table_of(game)
        for use, errors in theirs.items():
            try:
                values = bench.theirs("noisy", use[0], chance, budget, use[1], use[2], seed)
                errors.append(float(((values - game.shapley) ** 2).sum()))
            except RivalError:
                errors.append(np.inf)
    mean = {use: float(np.mean(errors)) for use, errors in theirs.items()}
    best = min(mean, key=lambda use: mean[use])
    if not np.isfinite(mean[best]):
        raise RivalError("every rival failed")
    mine, equal = float(np.mean(ours)), mean["ExactComputer", most, False]
    name = f"{best[0]} with {best[1]} rollouts a coalition{' in common' if best[2] else ''}"
    return mine / mean[
        best
    ], f"{mine:.2e} against {mean[best]:.2e}: {name}; {len(games)} games; equal rollouts {equal:.2e}"
