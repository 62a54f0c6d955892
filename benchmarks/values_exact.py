"""Rows about exact values: speed against the rivals and against one bare read of the table, memory, rounding."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt
from numba import njit, prange
from values_precision import largest_error, peak_memory
from values_rows import Row, at_least, at_most, megabytes, seconds, small, times
from values_sides import Bench, in_turn, row, seconds_of

from macredit.values.exact import banzhaf, shapley, shapley_batch
from macredit.values.graph import myerson
from macredit.values.interactions import interactions
from macredit.values.moebius import moebius

FloatN = npt.NDArray[np.float64]


def exact(bench: Bench) -> Iterator[Row]:
    """Shapley values from a table."""
    if not bench.quick:
        for n, must, stretch in ((12, 5_000, 8_000), (16, 30_000, 60_000), (20, 60_000, 100_000)):
            measure = partial(_against, bench, n, "shapiq_exact", ("SV", 1), 1 if n == 20 else 5)
            yield row(f"Shapley, n={n}, against shapiq", times, at_least(must), at_least(stretch), measure)
        for name in ("shapley_numba", "coopgame"):
            measure = partial(_against, bench, 20, name, (), 5)
            yield row(f"Shapley, n=20, against {name}", times, at_least(100), at_least(200), measure)
    for n in (20, 22) if bench.quick else (20, 24, 26, 28):
        ratio, how = _by_read(n, bench.quick)
        yield Row(f"Shapley, n={n}, by one bare parallel read", times, at_most(2.5), at_most(1.5), ratio, how)
    for value in (shapley, banzhaf):
        n = 22 if bench.quick else 28
        peak, how = peak_memory(value, _table(n))
        yield Row(f"memory besides the table, n={n}, {value.__name__}", megabytes, at_most(1e6), None, peak, how)
        worst = max(largest_error(value, n) for n in ((8, 12) if bench.quick else (8, 12, 16, 20)))
        what = f"largest error by the range of worths, {value.__name__}"
        yield Row(what, small, at_most(1e-15), None, worst, "against fractions")


def order_two(bench: Bench) -> Iterator[Row]:
    """Interaction indices and the Möbius transform."""
    if not bench.quick:
        for index in ("SII", "STII"):
            what = f"{index} of order 2, n=16, against shapiq"
            yield row(what, times, at_least(100_000), None, partial(_pairs, bench, index))
        yield row("Möbius, n=14, against shapiq", times, at_least(20_000), None, partial(_moebius, bench))
    table = _table(20)
    each = seconds_of(lambda: interactions(table, "fsii", 2), bench.quick)
    yield Row("FSII of order 2, n=20", seconds, at_most(0.01), None, each, "singles and pairs")
    n = 20 if bench.quick else 24
    larger = _table(n)
    each = seconds_of(lambda: moebius(larger), bench.quick)
    yield Row(f"Möbius, n={n}", seconds, at_most(0.1 * 2.0 ** (n - 24)), None, each, "")


def batches(bench: Bench) -> Iterator[Row]:
    """Many small games in one call."""
    if not bench.quick:
        for kind in ("float64", "float32"):
            what = f"games of 5 players a second, {kind}, against shapiq"
            yield row(what, times, at_least(40_000), at_least(80_000), partial(_batch, bench, kind))


def graphs(bench: Bench) -> Iterator[Row]:
    """Myerson values on a random connected graph."""
    if not bench.quick:
        measure = partial(_myerson, bench, 16, "coopgame_myerson")
        yield row("Myerson, n=16, against coopgame", times, at_least(1.8), at_least(5), measure)
        measure = partial(_myerson, bench, 12, "myerson_package")
        yield row("Myerson, n=12, against the package myerson", times, None, None, measure)


def _against(bench: Bench, n: int, call: str, arguments: tuple[Any, ...], rounds: int) -> tuple[float, str]:
    table = _table(n)
    pair = in_turn(lambda: shapley(table), lambda: bench.theirs(call, table, *arguments), rounds)
    np.testing.assert_allclose(pair.our_values, pair.their_values, atol=1e-9)
    return pair.ratio, pair.how


def _by_read(n: int, least: bool) -> tuple[float, str]:
    """Seconds of the values by those of the read, each the median, or the least, of seven times taken in turn."""
    table = _table(n)
    taken = [(seconds_of(lambda: shapley(table), least), seconds_of(lambda: read(table), least)) for _ in range(7)]
    pick = min if least else statistics.median
    ours, bare = (pick(side) for side in zip(*taken, strict=True))
    return ours / bare, f"{seconds(ours)} against {seconds(bare)}"


@njit(parallel=True, fastmath=True, cache=True)
def read(table: FloatN) -> float:
    """The sum of a table: what touching every worth once costs on all threads."""
    total = 0.0
    for k in prange(table.size):
        total += table[k]
    return total


def _pairs(bench: Bench, index: str) -> tuple[float, str]:
    table = _table(16)
    pair = in_turn(
        lambda: interactions(table, index.lower(), 2), lambda: bench.theirs("shapiq_exact", table, index, 2), 1
    )
    upper = np.triu_indices(16, 1)
    np.testing.assert_allclose(np.asarray(pair.our_values)[upper], pair.their_values[upper], atol=1e-9)
    return pair.ratio, pair.how


def _moebius(bench: Bench) -> tuple[float, str]:
    table = _table(14)
    pair = in_turn(lambda: moebius(table), lambda: bench.theirs("shapiq_moebius", table), 3)
    np.testing.assert_allclose(np.abs(pair.our_values[1:]).max(), pair.their_values, rtol=1e-6)
    return pair.ratio, pair.how


def _batch(bench: Bench, kind: str) -> tuple[float, str]:
    games, few = 100_000, 300
    tables = np.random.default_rng(5).random((32, games)).astype(kind)
    first = np.ascontiguousarray(tables[:, :few].T, np.float64)
    pair = in_turn(lambda: shapley_batch(tables), lambda: bench.theirs("shapiq_batch", first), 5)
    np.testing.assert_allclose(np.asarray(pair.our_values)[:, :few].T, pair.their_values, atol=1e-5)
    ours, theirs = games / pair.ours, few / pair.theirs
    return ours / theirs, f"{ours / 1e6:.3g} M/s against {theirs:,.0f}/s"


def _myerson(bench: Bench, n: int, name: str) -> tuple[float, str]:
    table = _table(n)
    graph = connected(n, seed=7)
    pair = in_turn(lambda: myerson(table, graph), lambda: bench.theirs(name, table, list(graph.edges)), 3)
    np.testing.assert_allclose(pair.our_values, pair.their_values, atol=1e-9)
    return pair.ratio, f"{pair.how}; {graph.number_of_edges()} links"


def connected(n: int, seed: int) -> Any:
    """A random tree and half as many links again."""
    graph = nx.random_labeled_tree(n, seed=seed)
    rng = np.random.default_rng(seed)
    while graph.number_of_edges() < 3 * (n - 1) // 2:
        graph.add_edge(*(int(player) for player in rng.choice(n, 2, replace=False)))
    ordered: Any = nx.Graph()
    ordered.add_nodes_from(range(n))
    ordered.add_edges_from(graph.edges)
    return ordered


def _table(n: int) -> FloatN:
    return np.asarray(np.random.default_rng(n).random(2**n))
