"""The rivals' estimators under one signature, on games without and with noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import values_games
from values_rival_exact import players, shapiq_exact, timed

Spec = tuple[str, int, int]
"""(family, players, seed) of a game."""


def estimate(method: str, spec: Spec, budget: int, seed: int) -> tuple[float, Any, int]:
    """Seconds without the game's, values, evaluations."""
    game = values_games.make(*spec)
    seconds, values = timed(lambda: ESTIMATORS[method](game, game.n, budget, seed))
    return seconds - game.seconds, values, game.evaluations


def true_values(spec: Spec) -> Any:
    """The exact values of a game as this interpreter's NumPy draws it."""
    return values_games.make(*spec).shapley


def noisy(method: str, chance: Any, budget: int, replicates: int, shared: bool, seed: int) -> Any:
    """Values from 0/1 rollouts: an evaluation is the mean of ``replicates``, on fresh tasks or always the same."""
    rng = np.random.default_rng([seed, replicates])
    n = players(chance)
    power, tasks = 1 << np.arange(n), rng.random(replicates)

    def game(coalitions: Any) -> Any:
        wins = chance[np.atleast_2d(np.asarray(coalitions)).astype(np.int64) @ power]
        return (tasks < wins[:, None]).mean(axis=1) if shared else rng.binomial(replicates, wins) / replicates

    if method == "ExactComputer":
        return shapiq_exact(game(values_games.coalitions_of(n)), "SV", 1)[1]
    return ESTIMATORS[method](game, n, budget // replicates, seed)


def _shapiq(name: str, **settings: Any) -> Callable[..., Any]:
    def values(game: Any, n: int, budget: int, seed: int) -> Any:
        result = getattr(import_module("shapiq.approximator"), name)(n, random_state=seed, **settings).approximate(
            budget, game
        )
        return result.get_n_order_values(1)

    return values


def _pydvl(game: Any, n: int, budget: int, seed: int) -> Any:
    """Antithetic permutations of pyDVL: n evaluations each, the worth of nobody must be 0."""
    pydvl, games = import_module("pydvl.valuation"), import_module("pydvl.valuation.games")
    nobody = float(game(np.zeros((1, n), bool))[0])

    def score(members: Any) -> float:
        row = np.zeros((1, n), bool)
        row[0, np.asarray(members, int).ravel()] = True
        return float(game(row)[0]) - nobody

    valuation = pydvl.ShapleyValuation(
        games.DummyGameUtility(score, (-math.inf, math.inf)),
        pydvl.AntitheticPermutationSampler(seed=seed),
        pydvl.MinUpdates(max(1, (budget - 1) // n)),
    )
    valuation.fit(games.DummyGameDataset(n))
    result = valuation.result
    return result.values[np.argsort(result.indices)]


ESTIMATORS: dict[str, Callable[..., Any]] = {
    "KernelSHAP": _shapiq("KernelSHAP", pairing_trick=True),
    "LeverageSHAP": _shapiq("LeverageSHAP"),
    "OddSHAP": _shapiq("OddSHAP"),
    "Owen": _shapiq("OwenSamplingSV"),
    "Permutation": _shapiq("PermutationSamplingSV"),
    "PolySHAP": _shapiq("PolySHAP", max_order=3, pairing_trick=True),
    "ProxySHAP": _shapiq("ProxySHAP", max_order=1, index="SV"),
    "RegressionMSR": _shapiq("RegressionMSR", index="SV"),
    "SVARM": _shapiq("SVARM", pairing_trick=True),
    "ShaplEIG": _shapiq("ShaplEIG", show_progress=False),
    "Stratified": _shapiq("StratifiedSamplingSV"),
    "pyDVL": _pydvl,
}
