"""The rivals' exact values, each as (seconds, values); nothing but the rival's own call is timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

Timed = tuple[float, Any]
"""Seconds and values."""


def timed(run: Callable[[], Any]) -> Timed:
    """One call."""
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def shapiq_exact(table: Any, index: str, order: int) -> Timed:
    """An index of shapiq's ``ExactComputer``; looking the worths up is not timed."""
    computer = _computer(table, evaluate_game=True)
    seconds, result = timed(lambda: computer(index, order))
    return seconds, result.get_n_order_values(order)


def shapiq_moebius(table: Any) -> Timed:
    """The Möbius transform; its largest entry in size is returned as a check."""
    computer = _computer(table, evaluate_game=True)
    seconds, result = timed(lambda: computer.moebius_transform)
    return seconds, float(np.abs(result.values).max())


def shapiq_batch(tables: Any) -> Timed:
    """float[G, 2**n] one after the other, as one game a rollout asks for: a computer, its table, its values."""
    return timed(lambda: [_computer(table)("SV", 1).get_n_order_values(1) for table in tables])


def shapley_numba(table: Any) -> Timed:
    """shapley-numba on a compiled game that looks its worths up in an array."""
    shapley = import_module("shapley_numba.shapley").shapley
    game = _compiled_game()
    shapley(game(np.zeros(4)), 2)
    return timed(lambda: shapley(game(table), players(table)))


def coopgame(table: Any) -> Timed:
    """The Shapley value of coopgame."""
    package = import_module("coopgame")
    game = package.Game(_zeroed(table)[1:].tolist())
    return timed(lambda: package.shapley(game))


def coopgame_myerson(table: Any, edges: list[tuple[int, int]]) -> Timed:
    """The Myerson value of coopgame."""
    package = import_module("coopgame")
    game = package.Game(_zeroed(table)[1:].tolist())
    return timed(lambda: package.myerson(game, edges))


def myerson_package(table: Any, edges: list[tuple[int, int]]) -> Timed:
    """The package ``myerson``."""
    calculator = import_module("myerson.myerson").MyersonCalculator
    graph = import_module("networkx").Graph()
    graph.add_nodes_from(range(players(table)))
    graph.add_edges_from(edges)
    worths: list[float] = _zeroed(table).tolist()

    def worth(coalition: Any, _graph: Any) -> float:
        return worths[sum(1 << int(player) for player in coalition)]

    return timed(lambda: calculator(graph, worth).calculate_all_myerson_values())


def players(table: Any) -> int:
    """N of a table of 2**n worths."""
    return len(table).bit_length() - 1


def _zeroed(table: Any) -> Any:
    """The same game with the empty coalition worth 0, as some rivals demand."""
    return np.asarray(table) - table[0]


def _computer(table: Any, *, evaluate_game: bool = False) -> Any:
    n = players(table)
    power = 1 << np.arange(n)
    return import_module("shapiq.game_theory.exact").ExactComputer(
        lambda rows: table[rows @ power], n, evaluate_game=evaluate_game
    )


@cache
def _compiled_game() -> Any:
    numba, numba_game = import_module("numba"), import_module("shapley_numba.core").numba_game

    @numba_game([("worths", numba.float64[:])])
    class TableGame:
        def __init__(self, worths: Any) -> None:
            self.worths = worths

        def value(self, subset: Any) -> Any:
            index = 0
            for i in range(subset.size):
                index += subset[i] << i
            return self.worths[index]

    return TableGame
