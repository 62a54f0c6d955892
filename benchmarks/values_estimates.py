"""Rows about estimates from a budget: error against the rivals' in 24 cells, twice, and what an estimate costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from values_games import CELLS, MAIN, OTHERS, make
from values_rows import Row, at_least, at_most, part, seconds, times
from values_sides import Bench, RivalError, geometric_mean, row, seconds_of

from macredit.values import gaussian, odd
from macredit.values.answers import Plan, answers_of, nothing
from macredit.values.designs import paired
from macredit.values.estimation import estimate

RIVALS = (
    "KernelSHAP", "LeverageSHAP", "OddSHAP", "Owen", "Permutation", "PolySHAP", "ProxySHAP", "RegressionMSR", "SVARM",
    "Stratified", "pyDVL",
)  # fmt: skip
OWN = ("leverage", "permutation", "stratified")
TARGETS = {"RegressionMSR": (1 / 2.5, 1 / 4), "LeverageSHAP": (1 / 10, 1 / 15), "Permutation": (1 / 30, 1 / 60)}
CHOSEN = ((16, 100), (30, 100), (16, 300))
"""(players, budget) at which chosen pairs are compared with drawn ones."""
EXACT = 1e-8
"""A smaller relative squared error counts as this one: values right to 0.01 % are right."""


@dataclass
class Cell:
    """Mean relative squared errors of ours and of the others for one family, number of players and budget."""

    family: str
    n: int
    budget: int
    ours: float
    others: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """The other one with the smallest error."""
        return min(self.others, key=lambda name: self.others[name])

    @property
    def ratio(self) -> float:
        """Ours by the best other one."""
        return self.ours / self.others[self.best]

    def __str__(self) -> str:
        return f"{self.family}, n={self.n}, budget {self.budget:,}"


def estimates(bench: Bench) -> Iterator[Row]:
    """Errors in the cells of the three families."""
    if bench.quick:
        cells = [_own(bench, family, n, budget) for family in MAIN for n, budget in CELLS if budget <= 100]
        yield _worst(cells, "error: worst cell against the best of our named methods")
        return
    yield from _compared(bench, MAIN, "24 cells")


def others(bench: Bench) -> Iterator[Row]:
    """The same in three further families."""
    if not bench.quick:
        yield from _compared(bench, OTHERS, "24 cells of other families")


def _compared(bench: Bench, families: Sequence[str], name: str) -> Iterator[Row]:
    cells = list(_cells(bench, families))
    for rival, (must, stretch) in TARGETS.items():
        measure = partial(_mean, bench, cells, rival)
        yield row(f"error, {name}: against {rival}", part, at_most(must), at_most(stretch), measure)
    if cells:
        yield _worst(cells, f"error, {name}: worst against the best of the cell")


def _cells(bench: Bench, families: Sequence[str]) -> Iterator[Cell]:
    """None without rivals; with ``--cells`` each is printed as soon as it is measured."""
    for family in families if bench.python else ():
        for n, budget in CELLS:
            cell = _cell(bench, family, n, budget)
            if bench.verbose:
                _print(cell)
            yield cell


def costs(bench: Bench) -> Iterator[Row]:
    """Seconds for drawing coalitions and for a regression."""
    for n, pairs in ((16, 5_000), (30, 50_000)):
        each = seconds_of(partial(paired, n, pairs, 0), bench.quick) / (2 * pairs)
        yield Row(f"sampler: seconds a coalition, n={n}", seconds, at_most(1e-7), None, each, "pairs of different ones")
    if not bench.quick:
        for n, budget in ((16, 10_000), (30, 1_000)):
            measure = partial(_leverage, bench, n, budget)
            what = f"leverage regression, n={n}, budget {budget:,}, at equal error"
            yield row(what, times, at_least(10), None, measure)


def choosing(bench: Bench) -> Iterator[Row]:
    """Error of ours, which chooses most pairs by the drop of total variance, by that of pairs drawn equally by size."""
    if bench.quick:
        return
    for n, budget in CHOSEN:
        games = [(family, n, seed) for family in (*MAIN, *OTHERS) for seed in _seeds(bench)]
        ratios = [_error(*spec, budget) / _drawn_error(*spec, budget) for spec in games]
        lower = sum(ratio < 1 for ratio in ratios)
        how = f"median {part(statistics.median(ratios))}; {len(games)} games of 6 families, {lower} of them lower"
        what = f"error of chosen pairs by that of drawn ones, n={n}, budget {budget}"
        yield Row(what, part, None, None, geometric_mean(ratios), how)


def _seeds(bench: Bench) -> range:
    return range(bench.seed, bench.seed + bench.repeats)


def _drawn_error(family: str, n: int, seed: int, budget: int) -> float:
    game, plan = make(family, n, seed), Plan(n, budget, seed)
    rows = odd.design(plan, answers_of(nothing(n), np.zeros(0)))
    return max(game.error(gaussian.fit(plan, answers_of(rows, game(rows))).values), EXACT)


def shapleig(bench: Bench) -> Iterator[Row]:
    """Budget 100 against ShaplEIG, which takes seconds for every evaluation: one game a cell, the smallest first."""
    if bench.quick:
        return
    results: list[tuple[float, float]] = []
    for n in (10, 16, 30):
        for family in MAIN:
            what = f"{family}, n={n}, budget 100: error against ShaplEIG's"
            yield row(what, part, None, None, partial(_against_shapleig, bench, family, n, results))
    if results:
        error, least = geometric_mean(errors for errors, _ in results), min(ratio for _, ratio in results)
        how = f"{len(results)} games"
        yield Row("budget 100: error against ShaplEIG's", part, at_most(1), None, error, how)
        yield Row("budget 100: time against ShaplEIG's", times, at_least(500), None, least, "the smallest ratio")


def _against_shapleig(bench: Bench, family: str, n: int, results: list[tuple[float, float]]) -> tuple[float, str]:
    """Error of ours by theirs; adds it, with seconds of theirs by ours, to the results."""
    spec = (family, n, bench.seed)
    spent, values, _ = bench.theirs("estimate", "ShaplEIG", spec, 100, bench.seed)
    game = make(*spec)
    ours = estimate(game, n, 100, bench.seed)
    taken = statistics.median(_seconds_without_game(family, n, 100, bench.seed, "auto") for _ in range(3))
    results.append((max(game.error(ours.values), EXACT) / max(game.error(values), EXACT), spent / taken))
    return results[-1][0], f"{seconds(taken)} against {seconds(spent)}: {times(results[-1][1])}"


def _seconds_without_game(family: str, n: int, budget: int, seed: int, method: str) -> float:
    game = make(family, n, seed)
    start = time.perf_counter()
    estimate(game, n, budget, seed, method=method)
    return time.perf_counter() - start - game.seconds


def _leverage(bench: Bench, n: int, budget: int) -> tuple[float, str]:
    """Their seconds by ours, times their error by ours: error falls as one over the budget, so over time as well."""
    ours, theirs, errors = [], [], []
    for seed in range(bench.seed, bench.seed + 5):
        spec = ("team", n, seed)
        game = make(*spec)
        values = estimate(game, n, budget, seed, method="leverage").values
        ours.append(_seconds_without_game(*spec[:2], budget, seed, "leverage"))
        spent, other, _ = bench.theirs("estimate", "LeverageSHAP", spec, budget, seed)
        theirs.append(spent)
        errors.append(max(game.error(other), EXACT) / max(game.error(values), EXACT))
    error, mine, other = geometric_mean(errors), statistics.median(ours), statistics.median(theirs)
    return other / mine * error, f"{seconds(mine)} against {seconds(other)}, their error {times(error)} ours"


def _own(bench: Bench, family: str, n: int, budget: int) -> Cell:
    def mean(method: str) -> float:
        return statistics.fmean(_error(family, n, seed, budget, method) for seed in range(bench.seed, bench.seed + 3))

    return Cell(family, n, budget, mean("auto"), {method: mean(method) for method in OWN})


def _error(family: str, n: int, seed: int, budget: int, method: str = "auto") -> float:
    game = make(family, n, seed)
    result = estimate(game, n, budget, seed, method=method)
    if game.evaluations > budget or result.evaluations != game.evaluations:
        raise RuntimeError(f"{method} used {game.evaluations} evaluations and tells {result.evaluations} of {budget}")
    return max(game.error(result.values), EXACT)


def _cell(bench: Bench, family: str, n: int, budget: int) -> Cell:
    """Ours and every rival on the same games, in turn."""
    ours: list[float] = []
    others: dict[str, list[float]] = {name: [] for name in RIVALS}
    failed: dict[str, str] = {}
    for seed in _seeds(bench):
        game = make(family, n, seed)
        np.testing.assert_allclose(bench.theirs("true_values", (family, n, seed)), game.shapley, atol=1e-12)
        ours.append(_error(family, n, seed, budget))
        for name in [name for name in RIVALS if name not in failed]:
            try:
                values = bench.theirs("estimate", name, (family, n, seed), budget, seed)[1]
                others[name].append(max(game.error(values), EXACT))
            except RivalError as error:
                failed[name] = str(error)
    means = {name: statistics.fmean(errors) for name, errors in others.items() if name not in failed}
    return Cell(family, n, budget, statistics.fmean(ours), means, failed)


def _mean(bench: Bench, cells: list[Cell], rival: str) -> tuple[float, str]:
    """Geometric mean over the cells of our error by the rival's."""
    bench.theirs("versions")
    ratios = [cell.ours / cell.others[rival] for cell in cells if rival in cell.others]
    if len(ratios) < len(cells):
        reason = next(cell.failed[rival] for cell in cells if rival in cell.failed)
        raise RivalError(f"failed in {len(cells) - len(ratios)} cells: {reason}")
    middle = f"median {part(statistics.median(ratios))}, from {part(min(ratios))} to {part(max(ratios))}"
    return geometric_mean(ratios), f"{middle}; {bench.repeats} games a cell"


def _worst(cells: list[Cell], what: str) -> Row:
    worst = max(cells, key=lambda cell: cell.ratio)
    how = f"{worst}: {worst.best}; {sum(cell.ratio > 1 for cell in cells)} of {len(cells)} cells above 1×"
    return Row(what, times, at_most(1.5), at_most(1.1), worst.ratio, how)


def _print(cell: Cell) -> None:
    """Our error, and how many times larger each other one's is."""
    others = ", ".join(f"{name} {times(error / cell.ours)}" for name, error in sorted(cell.others.items()))
    failed = "".join(f"; {name} failed: {why}" for name, why in cell.failed.items())
    print(f"    {cell!s:<36} {cell.ours:.1e}: {others}{failed}", flush=True)
