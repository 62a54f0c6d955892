"""Owen and Owen–Banzhaf values against orders, their axioms and hand-worked numbers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macredit.errors import UserError
from macredit.values import banzhaf, shapley
from macredit.values.structure import Unions, required_coalitions
from macredit.values.unions import owen, owen_banzhaf, owen_banzhaf_weights, owen_weights

GLOVE = [0.0, 0, 0, 1, 0, 1, 0, 1]  # v = 1 with player 0 (left) and one of 1, 2 (right)


@st.composite
def games(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], list[list[int]]]:
    n = draw(st.integers(1, 6))
    home = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    groups = [[i for i in range(n) if home[i] == k] for k in sorted(set(home))]
    return np.random.default_rng(draw(st.integers(0, 10**6))).normal(size=2**n), groups


def test_glove_by_hand() -> None:
    # {L, R1} against {R2}: orders of unions, each with L and R1 in either order.
    # AB first: L R1 → R1 earns 1; R1 L → L earns 1. R2 first: L R1 → L earns 1; R1 L → L earns 1. L = 3/4, R1 = 1/4.
    np.testing.assert_allclose(owen(GLOVE, [[0, 1], [2]]), [3 / 4, 1 / 4, 0], atol=1e-15)
    # the two right gloves together: {R} first, L earns 1; L first, whichever R comes first earns 1
    np.testing.assert_allclose(owen(GLOVE, [[0], [1, 2]]), [1 / 2, 1 / 4, 1 / 4], atol=1e-15)


def test_owen_banzhaf_by_hand() -> None:
    # L with {R1, R2}: union away, L adds 0; union there, 1: (0 + 1)/2. R1: L away 0; L there: 1 without R2, 0 with it.
    np.testing.assert_allclose(owen_banzhaf(GLOVE, [[0], [1, 2]]), [1 / 2, 1 / 4, 1 / 4], atol=1e-15)
    # majority of three, {0, 1} against {2}. Player 0: others {}, 1, 2, 12 → 0, 1, 1, 0. Player 2: {} or {0, 1} → 0
    np.testing.assert_allclose(owen_banzhaf([0, 0, 0, 1, 0, 1, 1, 1], [[0, 1], [2]]), [1 / 2, 1 / 2, 0], atol=1e-15)


@given(games())
@settings(deadline=None, max_examples=30)
def test_owen_is_the_mean_marginal_over_orders_that_keep_unions_together(game: Any) -> None:
    table, groups = game
    values, count = np.zeros(len(table).bit_length() - 1), 0
    for unions in itertools.permutations(groups):
        for parts in itertools.product(*(itertools.permutations(group) for group in unions)):
            mask, count = 0, count + 1
            for i in itertools.chain(*parts):
                values[i] += table[mask | 1 << i] - table[mask]
                mask |= 1 << i
    np.testing.assert_allclose(owen(table, groups), values / count, atol=1e-12)
    assert owen(table, groups).sum() == pytest.approx(table[-1] - table[0], abs=1e-12)


@given(games())
@settings(deadline=None, max_examples=30)
def test_owen_banzhaf_is_the_mean_marginal_over_whole_unions_and_any_partners(game: Any) -> None:
    table, groups = game
    for k, group in enumerate(groups):
        others = [sum(1 << i for i in union) for union in groups[:k] + groups[k + 1 :]]
        for i in group:
            around = [0]
            for mask in others + [1 << j for j in group if j != i]:
                around += [mask | before for before in around]
            marginals = [table[mask | 1 << i] - table[mask] for mask in around]
            assert owen_banzhaf(table, groups)[i] == pytest.approx(np.mean(marginals), abs=1e-12)


@given(games())
@settings(deadline=None, max_examples=20)
def test_unions_share_their_shapley_value_and_trivial_unions_change_nothing(game: Any) -> None:
    table, groups = game
    n = len(table).bit_length() - 1
    masks = [sum(1 << i for i in group) for group in groups]
    between = [table[sum(masks[k] for k in range(len(masks)) if h >> k & 1)] for h in range(2 ** len(masks))]
    np.testing.assert_allclose([owen(table, groups)[group].sum() for group in groups], shapley(between), atol=1e-12)
    for trivial in ([list(range(n))], [[i] for i in range(n)]):
        unions = Unions.of(trivial, n)
        everything = unions.coalitions()
        np.testing.assert_allclose(owen(table, unions), shapley(table), atol=1e-12)
        np.testing.assert_allclose(owen_banzhaf(table, unions), banzhaf(table), atol=1e-12)
        for weights, value in ((owen_weights, shapley), (owen_banzhaf_weights, banzhaf)):
            by_weights = weights(unions).of(everything, table[everything], empty=table[0])
            np.testing.assert_allclose(by_weights, value(table), atol=1e-12)


def test_only_the_required_coalitions_are_read() -> None:
    table = np.full(2**6, np.nan)
    unions = Unions.of([[0, 1, 2], [3, 4], [5]], 6)
    needed = unions.coalitions()
    table[needed] = np.random.default_rng(1).normal(size=len(needed))
    table[0] = 0.25
    assert np.isfinite(owen(table, unions)).all()
    members = required_coalitions(unions)
    np.testing.assert_allclose(owen_weights(unions).of(members, table[needed], empty=0.25), owen(table, unions))
    # 3 unions: 2² · 2³ + 2² · 2² + 2³ quotient coalitions at most, the empty one among them
    assert len(members) < 32 + 16 + 8
    with pytest.raises(UserError, match=r"coalition \{0\} has a worth that is not finite"):
        owen(np.where(np.arange(64) == 1, np.nan, table), unions)


def test_four_teams_of_ten_need_few_coalitions() -> None:
    unions = Unions.of([list(range(10 * k, 10 * k + 10)) for k in range(4)], 40)
    coalitions = required_coalitions(unions)
    assert coalitions.shape[0] <= 4 * 2**3 * 2**10
    # an additive game: everyone earns its own weight
    weight = np.arange(1.0, 41.0)
    np.testing.assert_allclose(owen_weights(unions).of(coalitions, coalitions @ weight), weight, atol=1e-9)


def test_torch_tensors_keep_their_gradient() -> None:
    torch = pytest.importorskip("torch")
    table = torch.tensor(GLOVE, dtype=torch.float64, requires_grad=True)
    values = owen(table, [[0, 1], [2]])
    values[1].backward()
    np.testing.assert_allclose(values.tolist(), [3 / 4, 1 / 4, 0], atol=1e-15)
    # φ_1 = ¼ [v(1)−v(∅) + v(01)−v(0) + v(12)−v(2) + v(012)−v(02)]
    assert table.grad is not None
    np.testing.assert_allclose(table.grad.tolist(), [-1 / 4, -1 / 4, 1 / 4, 1 / 4, -1 / 4, -1 / 4, 1 / 4, 1 / 4])


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([[0, 1], [1, 2]], "player 1 is listed 2 times in the unions; put every player in exactly one"),
        ([[0, 0, 1], [2]], "player 0 is listed 2 times"),
        ([[0, 1]], "player 2 is in no union"),
        ([[0, 1], [3]], "unknown player '3'; expected one of 0, 1, 2"),
        ([0, 1, 2], "a union is 0; expected a list"),
        ("012", "a set of unions is '012'; expected a list"),
    ],
)
def test_unions_that_do_not_fit(groups: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        owen(GLOVE, groups)
