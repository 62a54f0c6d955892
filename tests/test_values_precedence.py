"""Precedence-restricted Shapley values against feasible orders and hand-worked numbers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macredit.errors import UserError
from macredit.values import shapley
from macredit.values.precedence import precedence, precedence_weights
from macredit.values.structure import Precedence, required_coalitions

MAJORITY = [0.0, 0, 0, 1, 0, 1, 1, 1]


@st.composite
def games(draw: st.DrawFn) -> tuple[Any, list[tuple[int, int]]]:
    n = draw(st.integers(1, 6))
    rank = draw(st.permutations(range(n)))
    pairs = [(a, b) for a, b in itertools.permutations(range(n), 2) if rank[a] < rank[b]]
    order = draw(st.lists(st.sampled_from(pairs), max_size=6, unique=True)) if pairs else []
    return np.random.default_rng(draw(st.integers(0, 10**6))).normal(size=2**n), order


def test_a_boss_by_hand() -> None:
    # 0 before 1 and 2: orders 012 and 021. Of a majority of three the second player wins: 1/2 each, 0 for the boss
    np.testing.assert_allclose(precedence(MAJORITY, [(0, 1), (0, 2)]), [0, 1 / 2, 1 / 2], atol=1e-15)
    # 0 before 1: orders 012, 021, 201: players 1, 2 and 0 win
    np.testing.assert_allclose(precedence(MAJORITY, [(0, 1)]), [1 / 3, 1 / 3, 1 / 3], atol=1e-15)
    # a full order leaves marginals: v(2) − v(∅), v(21) − v(2), v(210) − v(21)
    table = [1.0, 0, 0, 0, 5, 0, 7, 10]
    np.testing.assert_allclose(precedence(table, nx.DiGraph([(2, 1), (1, 0)])), [3, 2, 4], atol=1e-15)


@given(games())
@settings(deadline=None, max_examples=40)
def test_mean_marginal_over_feasible_orders(game: Any) -> None:
    table, order = game
    n = len(table).bit_length() - 1
    values, count = np.zeros(n), 0
    for players in itertools.permutations(range(n)):
        if all(players.index(a) < players.index(b) for a, b in order):
            mask, count = 0, count + 1
            for i in players:
                values[i] += table[mask | 1 << i] - table[mask]
                mask |= 1 << i
    found = precedence(table, order)
    np.testing.assert_allclose(found, values / count, atol=1e-12)
    assert found.sum() == pytest.approx(table[-1] - table[0], abs=1e-12)


def test_no_precedence_is_the_shapley_value() -> None:
    table = np.random.default_rng(3).normal(size=2**9)
    np.testing.assert_allclose(precedence(table, []), shapley(table), atol=1e-12)


def test_teams_too_large_for_a_table() -> None:
    # five lines of eight: 9^5 feasible coalitions of 40 players, 40!/(8!)^5 orders
    lines = Precedence.of([(8 * k + j, 8 * k + j + 1) for k in range(5) for j in range(7)], 40)
    coalitions = required_coalitions(lines)
    assert len(coalitions) == 9**5 - 1
    weight = np.arange(1.0, 41.0)
    np.testing.assert_allclose(precedence_weights(lines).of(coalitions, coalitions @ weight), weight, rtol=1e-12)


def test_infeasible_coalitions_are_never_read() -> None:
    table = [0.0, 0, math.nan, 1, math.nan, 1, math.nan, 1]
    np.testing.assert_allclose(precedence(table, [(0, 1), (0, 2)]), [0, 1 / 2, 1 / 2], atol=1e-15)
    table[3] = math.inf
    with pytest.raises(UserError, match=r"coalition \{0, 1\} .*not finite"):
        precedence(table, [(0, 1), (0, 2)])


def test_torch_tensors_keep_their_gradient() -> None:
    torch = pytest.importorskip("torch")
    table = torch.tensor(MAJORITY, dtype=torch.float32, requires_grad=True)
    values = precedence(table, [(0, 1), (0, 2)])
    values[1].backward()
    assert values.tolist() == [0.0, 0.5, 0.5]
    # φ_1 = ½ (v(01) − v(0)) + ½ (v(012) − v(02))
    assert table.grad is not None
    assert table.grad.tolist() == [0, -0.5, 0, 0.5, 0, -0.5, 0, 0.5]


def test_orders_that_do_not_fit() -> None:
    with pytest.raises(UserError, match="each of 0 → 1 → 0 must come before the next, which is a cycle"):
        precedence(MAJORITY, [(0, 1), (1, 0)])
    with pytest.raises(UserError, match="without directions"):
        precedence(MAJORITY, nx.path_graph(3))
    with pytest.raises(UserError, match="unknown player 'boss'"):
        precedence(MAJORITY, [("boss", 1)])
