"""What an accuracy costs, against hand-worked numbers and against what it buys."""

from __future__ import annotations

import math

import numpy as np
import pytest

from macredit.errors import UserError
from macredit.values.noisy import shapley_design
from macredit.values.price import price, price_of


def test_three_players_by_hand() -> None:
    # Σ_S sqrt(a_S) = 2 · 1/sqrt(3) + 6 · 1/sqrt(6) = 1.1547 + 2.4495 = 3.6042; squared / 3 = 4.3301; · 0.2 / 0.0004
    assert price(3, 0.02).evaluations == math.ceil(4.330127 * 500)
    # equal: 8 · Σ_S a_S / 3 = 8 · (2/3 + 6/6) / 3 = 4.4444; · 500
    assert price(3, 0.02).equal == pytest.approx(40 / 9 * 500)


@pytest.mark.parametrize("n", range(3, 21))
def test_an_accuracy_of_two_percent_costs_about_the_same_for_any_number_of_players(n: int) -> None:
    assert 2_100 <= price(n, 0.02).evaluations <= 3_400


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_by_size_and_by_matrix_agree(n: int) -> None:
    by_size, by_matrix = price(n, 0.03, spread=0.5), price_of(shapley_design(n).matrix, 0.03, spread=0.5)
    assert (by_size.evaluations, by_size.coalitions) == (by_matrix.evaluations, by_matrix.coalitions)
    assert by_size.equal == pytest.approx(by_matrix.equal)


@pytest.mark.parametrize(("n", "ratio"), [(8, 3.5), (12, 21), (16, 172)])
def test_what_equal_scores_waste(n: int, ratio: float) -> None:
    found = price(n, 0.001)
    assert found.equal / found.evaluations == pytest.approx(ratio, rel=0.02)


def test_other_semivalues() -> None:
    # leave-one-out of 4: sqrt(a_N) = 2, four with 1: (2 + 4)² / 4 = 9; · 0.25 / 0.01 = 225
    found = price(4, 0.1, spread=0.5, weights=[0, 0, 0, 1])
    assert (found.evaluations, found.coalitions) == (225, 5)


def test_many_players_do_not_overflow() -> None:
    # Σ_S sqrt(a_S) → π sqrt(n), so the price tends to π² · (spread / accuracy)² = 4,997
    assert 4_700 < price(2_000, 0.02, spread=0.45).evaluations < 4_997


@pytest.mark.parametrize(
    ("n", "accuracy", "options", "message"),
    [
        (0, 0.1, {}, "0 players"),
        (3, 0.0, {}, "an accuracy of 0.0"),
        (3, math.nan, {}, "an accuracy of nan"),
        (3, 1e-300, {}, "an accuracy of 1e-300 was given; no number of evaluations buys that"),
        (3, 5e-324, {}, "no number of evaluations buys that"),
        (3, 0.1, {"spread": -1.0}, "a spread of -1.0"),
        (3, 0.1, {"weights": [1.0]}, "1 weights were given; expected 3"),
    ],
)
def test_numbers_that_cannot_be_meant(n: int, accuracy: float, options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        price(n, accuracy, **options)  # type: ignore[arg-type]


def test_what_is_paid_for_is_what_comes() -> None:
    n, design, rng = 4, shapley_design(4), np.random.default_rng(0)
    budget = price(n, 0.1, spread=1.0).evaluations
    energy = np.sqrt((design.matrix**2).sum(axis=0))
    count = np.round(budget * energy / energy.sum())
    errors = design.matrix @ (rng.normal(size=(16, 4_000)) / np.sqrt(count)[:, None])
    assert math.sqrt((errors**2).mean()) == pytest.approx(0.1, rel=0.03)
