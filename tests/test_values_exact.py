"""Exact values: the definitions by brute force, rounding, threads, memory, and the twin in plain array operations."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macredit.errors import UserError
from macredit.rows import FloatN
from macredit.values.exact import (
    banzhaf,
    beta_shapley,
    loi,
    loo,
    semivalue,
    shapley,
    shapley_batch,
    sums_by_folding,
    weighted_sums,
)
from macredit.values.table import Table

VALUES: list[Callable[[Any], Any]] = [shapley, banzhaf, loo, loi]


def games(most: int) -> st.SearchStrategy[FloatN]:
    seeds = st.tuples(st.integers(1, most), st.integers(0, 2**32 - 1))
    return seeds.map(lambda drawn: np.random.default_rng(drawn[1]).normal(size=2 ** drawn[0]))


def by_definition(table: FloatN, weights: Sequence[float]) -> list[float]:
    """Σ_{S∌i} p(|S|) (v(S∪i) − v(S)), coalition by coalition."""
    n = len(weights)
    return [
        math.fsum(
            weights[mask.bit_count()] * (table[mask | 1 << i] - table[mask])
            for mask in range(2**n)
            if not mask >> i & 1
        )
        for i in range(n)
    ]


def of_shapley(n: int) -> list[float]:
    return [math.factorial(s) * math.factorial(n - 1 - s) / math.factorial(n) for s in range(n)]


def test_small_games_by_hand() -> None:
    assert shapley([2, 5]).tolist() == [3.0]
    assert banzhaf([2, 5]).tolist() == loo([2, 5]).tolist() == loi([2, 5]).tolist() == [3.0]
    # v = 1, 2, 3, 7: player 0 adds 2−1 = 1 first and 7−3 = 4 last, player 1 adds 3−1 = 2 first and 7−2 = 5 last
    np.testing.assert_array_equal(shapley([1, 2, 3, 7]), [2.5, 3.5])
    np.testing.assert_array_equal(loo([1, 2, 3, 7]), [4, 5])
    np.testing.assert_array_equal(loi([1, 2, 3, 7]), [1, 2])
    # beta (2, 1) with one other player: p(0) = 2/3, p(1) = 1/3
    np.testing.assert_allclose(beta_shapley([1, 2, 3, 7], 2, 1), [2, 3], atol=1e-15)
    # the or of two players, weights 0.9 alone and 0.1 after the other
    np.testing.assert_allclose(semivalue([0, 1, 1, 1], [0.9, 0.1]), [0.9, 0.9], atol=1e-15)


@settings(deadline=None, max_examples=25)
@given(games(8))
def test_values_follow_their_definitions(table: FloatN) -> None:
    n = len(table).bit_length() - 1
    np.testing.assert_allclose(shapley(table), by_definition(table, of_shapley(n)), atol=1e-13)
    np.testing.assert_allclose(banzhaf(table), by_definition(table, [0.5 ** (n - 1)] * n), atol=1e-13)
    np.testing.assert_allclose(loo(table), by_definition(table, [0.0] * (n - 1) + [1.0]), atol=1e-13)
    np.testing.assert_allclose(loi(table), by_definition(table, [1.0] + [0.0] * (n - 1)), atol=1e-13)
    weights = np.random.default_rng(n).normal(size=n).tolist()
    np.testing.assert_allclose(semivalue(table, weights), by_definition(table, weights), atol=1e-12)


@settings(deadline=None, max_examples=10)
@given(games(6))
def test_shapley_is_the_mean_over_all_orders(table: FloatN) -> None:
    n = len(table).bit_length() - 1
    phi = np.zeros(n)
    for order in itertools.permutations(range(n)):
        mask = 0
        for i in order:
            phi[i] += table[mask | 1 << i] - table[mask]
            mask |= 1 << i
    np.testing.assert_allclose(shapley(table), phi / math.factorial(n), atol=1e-12)


@settings(deadline=None, max_examples=20)
@given(games(6), st.sampled_from([(1.0, 1.0), (4.0, 1.0), (1.0, 16.0), (0.5, 2.5)]))
def test_beta_weights_are_those_of_the_beta_function(table: FloatN, shape: tuple[float, float]) -> None:
    n, (a, b) = len(table).bit_length() - 1, shape

    def log_beta(x: float, y: float) -> float:
        return math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y)

    weights = [math.exp(log_beta(s + b, n - 1 - s + a) - log_beta(a, b)) for s in range(n)]
    np.testing.assert_allclose(beta_shapley(table, a, b), by_definition(table, weights), atol=1e-12)


def test_beta_of_one_and_one_is_shapley() -> None:
    table = np.random.default_rng(0).normal(size=2**9)
    np.testing.assert_allclose(beta_shapley(table, 1, 1), shapley(table), atol=1e-14)


@settings(deadline=None, max_examples=20)
@given(games(7), st.sampled_from(VALUES))
def test_axioms(table: FloatN, value: Callable[[Any], Any]) -> None:
    n = len(table).bit_length() - 1
    other = np.sin(np.arange(len(table)))
    np.testing.assert_allclose(value(3 * table + other), 3 * value(table) + value(other), atol=1e-11)
    null = value(np.concatenate([table, table + 0.5]))  # one more player, who adds 0.5 to every coalition
    np.testing.assert_allclose(null, [*value(table), 0.5], atol=1e-11)
    swapped = [int(f"{mask:0{n}b}"[::-1], 2) for mask in range(2**n)]  # player i becomes player n − 1 − i
    np.testing.assert_allclose(value(table[swapped]), value(table)[::-1], atol=1e-11)
    assert shapley(table).sum() == pytest.approx(table[-1] - table[0], abs=1e-12)


@pytest.mark.parametrize(
    ("n", "kind"), [(n, np.float64) for n in (3, 4, 9, 10, 12, 13, 14, 19)] + [(n, np.float32) for n in (3, 9, 14)]
)
def test_the_kernel_equals_plain_array_operations(n: int, kind: type[np.floating[Any]]) -> None:
    rng = np.random.default_rng(n)
    worths, weights = rng.normal(size=2**n).astype(kind), rng.random(n + 1) / 2**n
    twin = sums_by_folding(Table(worths.astype(np.float64), n), tuple(weights))
    np.testing.assert_allclose(weighted_sums(Table(worths, n), tuple(weights)), twin, atol=1e-15)


def run_with_four_threads(code: str) -> None:
    """A fresh interpreter, as numba's threads are counted once, and a worker of these tests has one."""
    env = {**os.environ, "NUMBA_NUM_THREADS": "4"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120, env=env)


THREADS = """
import numba, numpy as np
from macredit.values.exact import shapley
table, results = np.random.default_rng(1).random(2**20), set()
for threads in (1, 2, 4):
    numba.set_num_threads(threads)
    results.add(shapley(table).tobytes())
assert len(results) == 1
"""


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    run_with_four_threads(THREADS)


FORKED = """
import os, sys, numpy as np
from macredit.values.exact import shapley
table = np.random.default_rng(1).random(2**19)
expected = shapley(table)
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(shapley(table), expected) else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_forked_child_of_a_process_that_used_threads_gets_the_same_values() -> None:
    run_with_four_threads(FORKED)


@pytest.mark.parametrize("offset", [0, 10**6, -(10**6)])
@pytest.mark.parametrize("kind", ["uniform", "votes", "flat", "tenths"])
def test_rounding_stays_below_the_last_digit_of_the_range(kind: str, offset: int) -> None:
    n, unit = 12, 2**30
    mask = np.arange(2**n)
    ints = {
        "uniform": np.random.default_rng(2).integers(0, unit, 2**n),
        "votes": (np.bitwise_count(mask) > n // 2).astype(np.int64) * unit,
        "flat": np.where((mask == 0) | (mask == mask[-1]), 0, unit),
        "tenths": mask % 10 * (unit // 10),
    }[kind]
    table = ints / unit + offset  # exact: 30 bits behind the point and 20 before it
    known: list[tuple[Callable[[Any], Any], list[Fraction]]] = [
        (shapley, [Fraction(1, n * math.comb(n - 1, s)) for s in range(n)]),
        (banzhaf, [Fraction(1, 2 ** (n - 1))] * n),
    ]
    for value, weights in known:
        for i, phi in enumerate(value(table)):
            pairs = ints.reshape(-1, 2, 1 << i)
            marginals = (pairs[:, 1] - pairs[:, 0]).reshape(-1)
            sizes = np.bitwise_count(mask[: 2 ** (n - 1)])
            parts = [weights[s] * int(marginals[sizes == s].sum()) for s in range(n)]
            exact = sum(parts, Fraction()) / unit
            assert abs(Fraction(float(phi)) - exact) <= Fraction(1, 10**15)


def test_semivalues_need_little_memory() -> None:
    table = np.zeros(2**21)
    shapley(table)
    tracemalloc.start()
    shapley(table)
    banzhaf(table)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


def test_memory_maps_are_read_in_place(tmp_path: Path) -> None:
    table = np.random.default_rng(3).random(2**10)
    table.tofile(tmp_path / "worths")
    mapped = np.memmap(tmp_path / "worths", np.float64, "r")
    np.testing.assert_array_equal(shapley(mapped), shapley(table))


@pytest.mark.slow
def test_thirty_players_from_a_file_of_holes(tmp_path: Path) -> None:
    n, path = 30, tmp_path / "worths.npy"
    table = np.lib.format.open_memmap(path, "w+", np.float32, (2**n,))
    some = (1 << 29 | 1 << 17 | 1, 2.0), (2**n - 2, 3.0), (2**n - 1, 1.0)
    for mask, worth in some:
        table[mask] = worth
    table.flush()
    del table
    if path.stat().st_blocks * 512 > 2**26:
        pytest.skip("the file system writes holes out: this needs 4 GiB of disk there")
    values = shapley(np.load(path, mmap_mode="r"))
    expected = np.zeros(n)
    for mask, worth in some:  # (s − 1)! (n − s)! / n! for members, −s! (n − s − 1)! / n! for the others
        inside, s = (mask >> np.arange(n) & 1).astype(bool), mask.bit_count()
        expected[inside] += worth / (s * math.comb(n, s))
        expected[~inside] -= worth / ((n - s) * math.comb(n, s)) if s < n else 0
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-7)


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 9), st.integers(1, 700), st.integers(0, 99))
def test_a_batch_is_its_games_side_by_side(n: int, count: int, seed: int) -> None:
    tables = np.random.default_rng(seed).normal(size=(2**n, count)) + 1e6
    one = np.stack([shapley(tables[:, j]) for j in (0, count - 1)], 1)
    np.testing.assert_allclose(shapley_batch(tables)[:, [0, count - 1]], one, atol=1e-13)


def test_a_large_batch_in_both_precisions() -> None:
    tables = np.random.default_rng(4).random((32, 20_000))
    values = shapley_batch(tables)
    assert values.shape == (5, 20_000)
    np.testing.assert_allclose(values.sum(0), tables[-1] - tables[0], atol=1e-14)
    np.testing.assert_allclose(values[:, 12_345], shapley(tables[:, 12_345]), atol=1e-15)
    single = shapley_batch(tables[:, :1000].astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, values[:, :1000], atol=1e-6)


@pytest.mark.parametrize("value", VALUES)
def test_precision_and_library_are_kept(value: Callable[[Any], Any]) -> None:
    torch = pytest.importorskip("torch")
    table = np.random.default_rng(5).random(2**6)
    assert value(table.astype(np.float32)).dtype == np.float32
    tensor = torch.tensor(table, requires_grad=True)
    values = value(tensor)
    np.testing.assert_allclose(values.detach().numpy(), value(table), atol=1e-14)
    values[3].backward()
    # the values are linear: the gradient of player 3 at coalition S is her value in the game that only pays S
    np.testing.assert_allclose(tensor.grad, [value(row)[3] for row in np.eye(2**6)], atol=1e-14)


def test_a_batch_of_tensors() -> None:
    torch = pytest.importorskip("torch")
    tables = np.random.default_rng(6).random((16, 3))
    np.testing.assert_allclose(shapley_batch(torch.tensor(tables)).numpy(), shapley_batch(tables), atol=1e-14)


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("worth", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("value", [shapley, banzhaf, loo, loi])
def test_a_worth_that_is_not_finite_is_named(value: Callable[[Any], Any], worth: float, n: int) -> None:
    mask = 2**n - 1 if value is loo else 0 if value is loi else 2
    table = np.ones(2**n)
    table[mask] = worth
    name = ", ".join(str(i) for i in range(n) if mask >> i & 1)
    with pytest.raises(UserError, match=rf"coalition \{{{name}\}} is not finite"):
        value(table)


def test_what_a_value_refuses() -> None:
    table = np.zeros((8, 2))
    with pytest.raises(UserError, match=r"shape \(8, 2\)"):
        shapley(table)
    with pytest.raises(UserError, match=r"expected \(2\*\*n, games\)"):
        shapley_batch(table[:, 0])
    table[5, 1] = math.nan
    with pytest.raises(UserError, match=r"coalition \{0, 2\} is not finite"):
        shapley_batch(table)
    with pytest.raises(UserError, match="expected 3 finite numbers"):
        semivalue(np.zeros(8), [1, 2])
    with pytest.raises(UserError, match="expected two positive numbers"):
        beta_shapley(np.zeros(8), 0, 1)
    with pytest.raises(UserError, match="divide the table by its largest worth"):
        semivalue(np.arange(8) * 1e300, [1e10] * 3)
