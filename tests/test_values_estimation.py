"""Estimates: exact where they can be, within budget always, and every bad input named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macredit.errors import UserError
from macredit.values.answers import BoolCN
from macredit.values.estimation import estimate
from macredit.values.exact import shapley
from macredit.values.ladder import METHODS

FAST = ["leverage", "permutation", "stratified"]


def waves(coalitions: BoolCN) -> Any:
    """A game with interactions of every order and v(∅) = 2."""
    return np.cos(coalitions @ (1.0 + np.arange(coalitions.shape[1]))) + coalitions[:, 0] + 1


def table_of(n: int) -> Any:
    return waves(np.arange(2**n)[:, None] >> np.arange(n) & 1 == 1)


def test_small_games_by_hand() -> None:
    assert estimate(lambda c: np.where(c[:, 0], 5, 2), 1, 2).values.tolist() == [3.0]
    found = estimate(lambda c: [[1, 2, 3, 7][i] for i in c @ [1, 2]], 2, 4)
    assert found.values.tolist() == [2.5, 3.5]
    assert found.stderr.tolist() == [0, 0]
    assert found.method == "exact"
    assert "all 2**2 coalitions" in found.why


@pytest.mark.parametrize("method", ["auto", "gaussian", *FAST])
@pytest.mark.parametrize("n", [1, 3, 6])
def test_a_budget_of_every_coalition_is_exact(method: str, n: int) -> None:
    found = estimate(waves, n, 2**n + 5, method=method)
    np.testing.assert_allclose(found.values, shapley(table_of(n)), atol=1e-12)
    assert found.evaluations == 2**n


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 7), st.integers(-5, 140), st.sampled_from(FAST), st.booleans(), st.integers(0, 3))
def test_any_budget_is_kept_or_refused(n: int, budget: int, method: str, noise: bool, seed: int) -> None:
    asked = 0

    def counted(coalitions: BoolCN) -> Any:
        nonlocal asked
        asked += len(coalitions)
        return waves(coalitions)

    least = METHODS[method].smallest(n)
    if budget < min(least, 2**n if not noise else least):
        with pytest.raises(UserError, match=f"the budget is {budget} evaluations; .* needs at least"):
            estimate(counted, n, budget, seed, method=method, noise=noise)
        return
    found = estimate(counted, n, budget, seed, method=method, noise=noise)
    assert asked == found.evaluations <= budget
    assert np.isfinite(found.values).all()
    assert found.values.sum() == pytest.approx(table_of(n)[-1] - table_of(n)[0])


@pytest.mark.parametrize("budget", [-5, 0, 1, 3])
def test_budgets_too_small_name_the_smallest(budget: int) -> None:
    with pytest.raises(UserError, match=f"the budget is {budget} evaluations; gaussian needs at least 4 for 8 players"):
        estimate(waves, 8, budget)


@pytest.mark.parametrize("budget", [4, 5, 8, 17])
def test_the_smallest_budgets_of_auto_answer(budget: int) -> None:
    found = estimate(waves, 8, budget)
    assert found.values.sum() == pytest.approx(table_of(8)[-1] - table_of(8)[0])
    assert found.evaluations <= budget


@pytest.mark.parametrize("method", ["gaussian", *FAST])
def test_the_same_call_twice_gives_the_same(method: str) -> None:
    first, second = (estimate(waves, 8, 60, 5, method=method) for _ in range(2))
    np.testing.assert_array_equal(first.values, second.values)
    np.testing.assert_array_equal(first.stderr, second.stderr)
    assert np.abs(first.values - estimate(waves, 8, 60, 6, method=method).values).max() > 0


@pytest.mark.parametrize(
    ("n", "budget", "method"),
    [(30, 300, "gaussian"), (65, 1000, "leverage"), (200, 500, "permutation"), (2000, 4100, "permutation")],
)
def test_the_ladder_for_many_players(n: int, budget: int, method: str) -> None:
    found = estimate(lambda c: 2.0 * c.sum(axis=1) + 3, n, budget)
    assert found.method == method
    assert str(n) in found.why
    np.testing.assert_allclose(found.values, 2, atol=1e-8)


def test_a_noisy_game_uses_the_whole_budget() -> None:
    rng = np.random.default_rng(0)
    found = estimate(lambda c: c.sum(axis=1) + rng.normal(0, 1, len(c)), 5, 1000, noise=True)
    assert found.method == "allocated"
    assert found.evaluations == 1000
    assert found.distinct == 32
    assert (np.abs(found.values - 1) < 5 * found.stderr).all()


def test_a_noisy_game_with_few_scores_is_smoothed() -> None:
    truth, errors = np.array([0.4, 0.2, 0.2, 0.1, 0.1]), {"auto": 0.0, "allocated": 0.0}
    inside = []
    for method in errors:
        for seed in range(30):
            rng = np.random.default_rng(seed)
            found = estimate(lambda c: rng.random(len(c)) < c @ truth, 5, 64, seed, noise=True, method=method)  # noqa: B023
            assert found.method == ("smoothed" if method == "auto" else method)
            assert found.evaluations == 64
            errors[method] += float(((found.values - truth) ** 2).sum())
            inside.append(np.abs(found.values - truth) <= np.diff(found.interval(), axis=1)[:, 0] / 2)
    assert errors["auto"] < 0.9 * errors["allocated"]
    assert 0.9 < np.mean(inside) <= 1


def one_bad(coalitions: BoolCN) -> Any:
    """NaN for {0, 2} alone."""
    return np.where((coalitions == [True, False, True, False]).all(axis=1), np.nan, waves(coalitions))


def test_a_worth_that_is_no_number_is_named() -> None:
    with pytest.raises(
        UserError, match=r"the worth of coalition \{0, 2\} is nan; expected a finite number, or on_nan="
    ):
        estimate(one_bad, 4, 16)
    with pytest.raises(UserError, match=r"coalition \{0, 1, 2, 3\} is inf"):
        estimate(lambda c: np.where(c.all(axis=1), np.inf, 0), 4, 16)


def test_a_dropped_worth_is_filled_in() -> None:
    found = estimate(one_bad, 4, 16, on_nan="drop")
    assert found.evaluations == 16
    assert found.distinct == 15
    np.testing.assert_allclose(found.values, shapley(table_of(4)), atol=0.3)
    assert (found.stderr > 0).all()


def test_a_worth_that_fails_once_is_asked_again() -> None:
    failed = False

    def moody(coalitions: BoolCN) -> Any:
        nonlocal failed
        worths = waves(coalitions) if failed else one_bad(coalitions)
        failed = True
        return worths

    found = estimate(moody, 4, 17, on_nan="retry")
    np.testing.assert_allclose(found.values, shapley(table_of(4)), atol=1e-12)
    assert found.evaluations == 17


def test_retries_stay_within_the_budget() -> None:
    found = estimate(one_bad, 4, 20, on_nan="retry")
    assert found.evaluations == 20
    assert found.distinct == 15


@pytest.mark.parametrize(
    ("game", "message"),
    [
        (lambda c: np.zeros((len(c), 1)), r"the game answered an array of shape \(16, 1\); expected \(16,\)"),
        (lambda _: 1.0, r"the game answered an array of shape \(\); expected \(16,\)"),
        (lambda c: ["high"] * len(c), "expected 16 numbers, one a coalition"),
    ],
)
def test_a_wrong_answer_of_the_game_is_named(game: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        estimate(game, 4, 16)


def test_a_game_may_scribble_on_its_coalitions() -> None:
    def scribbling(coalitions: BoolCN) -> Any:
        worths = waves(coalitions)
        coalitions[:] = False
        return worths

    np.testing.assert_allclose(estimate(scribbling, 4, 16).values, shapley(table_of(4)), atol=1e-12)
