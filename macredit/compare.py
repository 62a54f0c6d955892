"""Decomposition schemes on the same rollouts, at one budget of terminal evaluations, beside the exact credit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from macredit.collect import collect
from macredit.credit import METHODS, resolve
from macredit.errors import UserError
from macredit.ledger import Ledger
from macredit.measure import run_method
from macredit.progress import progress
from macredit.report import MethodResult, agent_table
from macredit.rollout import World, tasks_of
from macredit.truth import Truth, truth
from macredit.whatif import WhatIf

GROUP = 8
"""Members of a task's group, where the budget allows so many."""


@dataclass(frozen=True)
class Compared:
    """One method over all seeds."""

    method: str
    agents: Mapping[str, float | None]
    """Agent → mean credit over seeds."""
    stderr: Mapping[str, float | None]
    """Its standard error over seeds."""
    exact: Mapping[str, float]
    """Exact values of the index that the method estimates; empty where there are none."""
    exact_of: str
    """Whose values these are."""
    error: float | None
    """Root mean squared error of the credit against ``exact``, over agents and seeds."""
    fidelity: float | None
    """Spearman correlation of credit and exact Shapley value over agents, mean over seeds; None where undefined."""
    episodes: int
    """Original episodes a seed."""
    cost: Mapping[str, float]
    """The ledger, summed over seeds."""
    curve: Sequence[float] = ()
    """Mean reward by training step, mean over seeds."""
    warnings: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """All fields by name."""
        return asdict(self)


def compare(
    world: World,
    methods: Sequence[str],
    seeds: int = 5,
    budget: int = 64,
    curves: Callable[[str, int], Sequence[float]] | None = None,
) -> tuple[list[Compared], list[MethodResult]]:
    """Give every method the same pool of rollouts and as many terminal evaluations.

    A method that replays pays for its replays with originals: with n players, leave-one-out takes 1 + n evaluations an
    episode. Methods that need a tree spend the budget on one tree a task, from the same seeds.

    Args:
        world: environment and policies.
        methods: names of credit methods.
        seeds: independent repetitions.
        budget: terminal evaluations each method may use in one seed.
        curves: (method, seed) → mean reward by training step.

    Returns:
        The comparison, and the methods' results on the first seed's episodes.

    Raises:
        UserError: an unknown method, or a budget too small for one.
    """
    if seeds < 1:
        raise UserError(f"seeds is {seeds}; expected at least 1")
    methods = list(dict.fromkeys(methods))
    plans = {name: _afford(name, len(world.env.team.specialists), budget) for name in methods}
    found: dict[str, list[MethodResult]] = {name: [] for name in methods}
    lines: dict[str, list[Sequence[float]]] = {name: [] for name in methods}
    with progress("comparing", len(methods) * seeds) as tick:
        for seed in range(seeds):
            for name in methods:
                price, settings = plans[name]
                found[name].append(_one(world, name, seed, budget // price, settings))
                lines[name] += [curves(name, seed)] if curves else []
                tick(note=name)
    known = truth(world)
    return [_compared(name, found[name], lines[name], known) for name in methods], [found[name][0] for name in methods]


def _afford(name: str, players: int, budget: int) -> tuple[int, dict[str, int]]:
    """Terminal evaluations of one episode, and settings: a method that needs too many estimates from fewer, if it can.

    Raises:
        UserError: the budget does not reach two episodes.
    """
    method = resolve(name)[0]
    price, least = method.evaluations(players), 2 * players + 2
    if 2 * least <= budget < 2 * price and method.estimates:
        price = max(budget // GROUP, least)
        return price, {"budget": price}
    if budget < 2 * price:
        raise UserError(
            f"a budget of {budget} terminal evaluations is too small for {name} with {players} players; "
            f"expected at least {2 * min(price, least) if method.estimates else 2 * price}"
        )
    return price, {}


def _one(world: World, name: str, seed: int, affordable: int, settings: Mapping[str, Any]) -> MethodResult:
    """One method on the first originals it can afford of the seed's pool."""
    group = min(GROUP, affordable)
    needs, ledger = METHODS[name].needs, Ledger()
    episodes = collect(world, needs, partial(tasks_of, seed, affordable // group), group, ledger=ledger)
    whatif = WhatIf(episodes, None if "tree" in needs else world, ledger=ledger)
    result = run_method(name, whatif, settings=settings)
    return MethodResult(name, result.preset, result.settings, result.credits, ledger.json())


def _compared(
    name: str,
    results: Sequence[MethodResult],
    curves: Sequence[Sequence[float]],
    known: Truth,
) -> Compared:
    tables = [{row.agent: row.credit for row in agent_table(r.credits)} for r in results if r.credits is not None]
    agents = list(tables[0])
    credit_SA = np.array([[np.nan if t[a] is None else t[a] for a in agents] for t in tables], dtype=np.float64)
    exact = known.exact.get(results[0].index or "", {})
    columns = [i for i, a in enumerate(agents) if a in exact]
    off = credit_SA[:, columns] - np.array([exact[agents[i]] for i in columns])
    return Compared(
        method=name,
        agents={a: _known(m) for a, m in zip(agents, _mean(credit_SA), strict=True)},
        stderr={a: _known(s) for a, s in zip(agents, _sem(credit_SA), strict=True)},
        exact=dict(exact),
        exact_of=known.exact_of,
        error=float(np.sqrt(np.mean(off**2))) if columns and np.isfinite(off).all() else None,
        fidelity=_fidelity(credit_SA, agents, known.exact.get("shapley", {})),
        episodes=len(results[0].credits.rows.episodes) if results[0].credits is not None else 0,
        cost={key: sum(r.cost[key] for r in results) for key in results[0].cost},
        curve=[float(x) for x in np.mean(curves, axis=0)] if curves else (),
        warnings=results[0].credits.warnings if results[0].credits is not None else (),
        settings=results[0].settings,
    )


def _fidelity(credit_SA: np.ndarray[Any, Any], agents: Sequence[str], exact: Mapping[str, float]) -> float | None:
    columns = [i for i, a in enumerate(agents) if a in exact]
    want = [exact[agents[i]] for i in columns]
    if len(set(want)) < 2:
        return None
    each = [stats.spearmanr(row, want).statistic for row in credit_SA[:, columns] if len(set(row.tolist())) > 1]
    return float(np.mean(each)) if each and np.isfinite(each).all() else None


def _mean(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    known = np.isfinite(x)
    return np.where(known.any(0), np.where(known, x, 0.0).sum(0) / np.maximum(known.sum(0), 1), np.nan)


def _sem(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return x.std(0, ddof=1) / np.sqrt(len(x)) if len(x) > 1 else np.full(x.shape[1], np.nan)


def _known(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None
