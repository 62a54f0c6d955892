"""Weighted Shapley values against weighted orders, unanimity games and hand-worked numbers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macredit.errors import UserError
from macredit.values import shapley
from macredit.values.weighted import weighted_shapley

AND3 = [0.0] * 7 + [1.0]


@st.composite
def games(draw: st.DrawFn) -> tuple[Any, Any]:
    n = draw(st.integers(1, 6))
    weights = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0]), min_size=n, max_size=n))
    return np.random.default_rng(draw(st.integers(0, 10**6))).normal(size=2**n), np.array(weights)


def test_by_hand() -> None:
    # what only all three can earn is shared in proportion to 1 : 2 : 3
    np.testing.assert_allclose(weighted_shapley(AND3, [1, 2, 3]), [1 / 6, 1 / 3, 1 / 2], atol=1e-15)
    # or of two, weights 1 : 3 = {0} + {1} − {0, 1}: 1 − 1/4 and 1 − 3/4
    np.testing.assert_allclose(weighted_shapley([0, 1, 1, 1], [1, 3]), [3 / 4, 1 / 4], atol=1e-15)
    np.testing.assert_allclose(weighted_shapley([2, 5], [4]), [3], atol=1e-15)


def test_weight_zero_comes_first() -> None:
    # {0, 1} weightless: nothing of what needs player 2; what they can earn on their own, half each
    np.testing.assert_allclose(weighted_shapley(AND3, [0, 0, 3]), [0, 0, 1], atol=1e-15)
    np.testing.assert_allclose(weighted_shapley([0, 0, 0, 1, 0, 0, 0, 1], [0, 0, 3]), [1 / 2, 1 / 2, 0], atol=1e-15)
    table = np.random.default_rng(5).normal(size=2**5)
    small = weighted_shapley(table, [1e-9, 2, 1e-9, 3, 1e-9])
    np.testing.assert_allclose(weighted_shapley(table, [0, 2, 0, 3, 0]), small, atol=1e-7)


@given(games())
@settings(deadline=None, max_examples=30)
def test_mean_marginal_over_orders_drawn_from_the_back(game: Any) -> None:
    table, weights = game
    n = len(table).bit_length() - 1
    values, total = np.zeros(n), 0.0
    for order in itertools.permutations(range(n)):
        chance, mask = 1.0, 0
        for k in range(n, 0, -1):
            before = weights[list(order[:k])].sum()
            chance *= weights[order[k - 1]] / before if before else 1 / k
        for i in order:
            values[i] += chance * (table[mask | 1 << i] - table[mask])
            mask |= 1 << i
        total += chance
    assert total == pytest.approx(1)
    np.testing.assert_allclose(weighted_shapley(table, weights), values, atol=1e-12)


@given(games(), st.floats(0.1, 10))
@settings(deadline=None, max_examples=20)
def test_equal_weights_change_nothing_and_scale_does_not_matter(game: Any, scale: float) -> None:
    table, weights = game
    values = weighted_shapley(table, weights)
    assert values.sum() == pytest.approx(table[-1] - table[0], abs=1e-12)
    np.testing.assert_allclose(weighted_shapley(table, scale * weights), values, atol=1e-12)
    np.testing.assert_allclose(weighted_shapley(table, np.full(len(weights), scale)), shapley(table), atol=1e-12)


def test_names_and_other_tables() -> None:
    named = {"": 0, "a": 0, "b": 0, "a,b": 1}
    np.testing.assert_allclose(weighted_shapley(named, {"b": 3, "a": 1}), [1 / 4, 3 / 4], atol=1e-15)
    torch = pytest.importorskip("torch")
    table = torch.tensor([0.0, 0, 0, 1], dtype=torch.float64, requires_grad=True)
    values = weighted_shapley(table, [1, 3])
    values[0].backward()
    # φ_0 = ¾ (v(0) − v(∅)) + ¼ (v(01) − v(1)): 0 comes last, after 1, with chance ¼
    assert table.grad is not None
    np.testing.assert_allclose(table.grad.tolist(), [-3 / 4, 3 / 4, -1 / 4, 1 / 4], atol=1e-15)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2], r"weights of shape \(2,\) were given; expected one for each of 3 players"),
        ([1, 2, -1], "the weight of player 2 is -1.0; expected a finite number, 0 or more"),
        ([1, 2, math.inf], "the weight of player 2 is inf"),
        ([1, 2, "much"], "the weights hold something that is no number"),
        ({0: 1, 1: 2}, "the weight of player 2 is nan"),
        ({0: 1, 1: 2, 3: 1}, "unknown player '3'"),
    ],
)
def test_weights_that_do_not_fit(weights: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        weighted_shapley(AND3, weights)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_worth_that_is_no_number(wrong: float) -> None:
    with pytest.raises(UserError, match=r"coalition \{0, 1\} is not finite"):
        weighted_shapley([0.0, 1, 1, wrong], [1, 2])
