"""Core, least core and nucleolus against known solutions and the balancedness that characterises them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from macredit.errors import UserError
from macredit.values.core import in_core, least_core, nucleolus, prenucleolus

GLOVE = [0.0, 0, 0, 1, 0, 1, 0, 1]
MAJORITY = [0.0, 0, 0, 1, 0, 1, 1, 1]


def bankruptcy(estate: float, claims: list[float]) -> list[float]:
    """What is left for a coalition once the others' claims are met (Aumann and Maschler 1985)."""
    n = len(claims)
    return [max(0.0, estate - sum(c for i, c in enumerate(claims) if not s >> i & 1)) for s in range(2**n)]


def members(table: Any) -> npt.NDArray[np.float64]:
    n = len(table).bit_length() - 1
    return np.array([[float(s >> i & 1) for i in range(n)] for s in range(len(table))])


def excesses(table: Any, shares: Any) -> npt.NDArray[np.float64]:
    return np.asarray(np.asarray(table) - table[0] - members(table) @ shares)


def test_core_of_the_known_games() -> None:
    # gloves: the one left glove gets all
    assert in_core(GLOVE, [1, 0, 0])
    check = in_core(GLOVE, [0.5, 0.3, 0.2])
    assert not check
    assert check.coalition == (0, 2)  # could earn 1 with 0.7
    assert check.excess == pytest.approx(0.3)
    # majority: whoever is left out joins one who gets little
    assert not in_core(MAJORITY, [1 / 3, 1 / 3, 1 / 3])
    assert in_core([0, 1, 2, 3], [1, 2])  # additive: only the weights themselves
    assert not in_core([0, 1, 2, 3], [2, 1])


def test_shares_that_miss_the_total() -> None:
    check = in_core({"": 0, "a": 0, "b": 0, "a,b": 4}, [1, 1])
    assert not check
    assert check.coalition == ("a", "b")
    assert check.excess == 2
    assert in_core([5, 5, 5, 9], [1, 3])  # v(∅) = 5 is nobody's doing
    with pytest.raises(UserError, match="expected a finite number for each of 2 players"):
        in_core([0, 0, 0, 1], [1])


def test_least_core_of_the_known_games() -> None:
    # a core that is not empty costs nothing, however much room there is
    glove = least_core(GLOVE)
    assert glove.excess == pytest.approx(0, abs=1e-9)
    assert glove.subsidy == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(glove.values, [1, 0, 0], atol=1e-8)
    roomy = least_core(bankruptcy(100, [100, 200, 300]))  # only all three earn: 100/3 each is 100/3 more than alone
    assert roomy.excess == pytest.approx(-100 / 3)
    assert roomy.subsidy == 0
    # majority: pairs could earn 1 with 2/3
    empty = least_core(MAJORITY)
    assert empty.excess == empty.subsidy == pytest.approx(1 / 3)
    assert least_core([2, 5]).values.tolist() == [3]


@pytest.mark.parametrize(
    ("estate", "shares"),
    [
        (100, [100 / 3, 100 / 3, 100 / 3]),
        (200, [50, 75, 75]),
        (300, [50, 100, 150]),
        (500, [66 + 2 / 3, 166 + 2 / 3, 266 + 2 / 3]),
    ],
)
def test_the_talmud(estate: float, shares: list[float]) -> None:
    # half the claims is 300; above it losses are shared as gains below: 100 missing → 33⅓ each
    np.testing.assert_allclose(nucleolus(bankruptcy(estate, [100, 200, 300])), shares, atol=1e-7)


def test_nucleolus_of_the_known_games() -> None:
    np.testing.assert_allclose(nucleolus(GLOVE), [1, 0, 0], atol=1e-9)
    np.testing.assert_allclose(nucleolus(MAJORITY), [1 / 3] * 3, atol=1e-9)
    # airport costs 1, 2, 3 (worths −1, −2, −3): 0 pays min(1/2, 2/3, 3/3) = 1/2, 1 then (2 − 1/2)/2 = 3/4, 2 the rest
    airport = [-float(max((i + 1 for i in range(3) if s >> i & 1), default=0)) for s in range(8)]
    np.testing.assert_allclose(nucleolus(airport), [-1 / 2, -3 / 4, -7 / 4], atol=1e-9)
    np.testing.assert_allclose(nucleolus([3.0] * 8), [0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(nucleolus([2, 5]), [3])
    np.testing.assert_allclose(nucleolus([0, 1, 2, 7]), [3, 4], atol=1e-12)  # standard for two: 1 + 4/2, 2 + 4/2


def test_players_who_earn_more_apart() -> None:
    with pytest.raises(UserError, match=r"the players earn 4 apart and 3 together.*prenucleolus"):
        nucleolus([0, 2, 2, 3])
    np.testing.assert_allclose(prenucleolus([0, 2, 2, 3]), [1.5, 1.5], atol=1e-12)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("value", [least_core, nucleolus, prenucleolus])
def test_a_worth_that_is_no_number(value: Any, wrong: float) -> None:
    with pytest.raises(UserError, match=r"coalition \{0, 1\} is not finite"):
        value([0.0, 1, 1, wrong])


def balanced(groups: npt.NDArray[np.float64], free: npt.NDArray[np.float64]) -> bool:
    """Whether every group can get a positive weight so that all players weigh the same (free rows: any weight ≥ 0)."""
    rows = np.vstack([groups, free])
    need = np.r_[np.ones(len(groups)), np.zeros(len(free))]
    system = np.hstack([rows.T, -np.ones((rows.shape[1], 1))])
    bounds = [(low, None) for low in need] + [(None, None)]
    return bool(linprog(np.zeros(len(rows) + 1), A_eq=system, b_eq=np.zeros(rows.shape[1]), bounds=bounds).status == 0)


degenerate = st.integers(2, 5).flatmap(
    lambda n: st.lists(st.integers(-2, 3), min_size=2**n, max_size=2**n).map(lambda table: [float(v) for v in table])
)


@given(degenerate)
@settings(deadline=None, max_examples=40)
def test_kohlberg_coalitions_above_any_excess_are_balanced(table: list[float]) -> None:
    rows, shares = members(table), prenucleolus(table)
    assert shares.sum() == pytest.approx(table[-1] - table[0], abs=1e-8)
    excess = excesses(table, shares)[1:-1]
    for level in np.unique(np.round(excess, 6)):
        assert balanced(rows[1:-1][excess >= level - 1e-6], np.zeros((0, rows.shape[1])))


@given(degenerate)
@settings(deadline=None, max_examples=40)
def test_kohlberg_with_individual_rationality(table: list[float]) -> None:
    alone = np.array([table[1 << i] - table[0] for i in range(len(table).bit_length() - 1)])
    table[-1] = max(table[-1], table[0] + alone.sum())
    rows, shares = members(table), nucleolus(table)
    assert (shares >= alone - 1e-8).all()
    excess = excesses(table, shares)[1:-1]
    bound = np.eye(len(alone))[shares <= alone + 1e-7]
    for level in np.unique(np.round(excess, 6)):
        assert balanced(rows[1:-1][excess >= level - 1e-6], bound)
    least = least_core(table)
    assert least.excess == pytest.approx(excesses(table, least.values)[1:-1].max(), abs=1e-8)
    assert excesses(table, prenucleolus(table))[1:-1].max() == pytest.approx(least.excess, abs=1e-8)
    if least.excess <= 0:
        assert in_core(table, shares, tolerance=1e-7)


def test_covariance_and_symmetry() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=2**6)
    shift = rng.normal(size=6)
    moved = prenucleolus(7 * table + members(table) @ shift + 3)
    np.testing.assert_allclose(moved, 7 * prenucleolus(table) + shift, atol=1e-8)
    swapped = [int(f"{mask:06b}"[::-1], 2) for mask in range(2**6)]  # player i becomes player 5 − i
    np.testing.assert_allclose(prenucleolus(table[swapped]), prenucleolus(table)[::-1], atol=1e-8)


def test_twelve_players_who_are_all_alike_or_nearly() -> None:
    size = np.bitwise_count(np.arange(2**12)).astype(float)
    np.testing.assert_allclose(nucleolus(size**2), np.full(12, 12), atol=1e-7)
    # gloves: five left ones for seven right ones; the short side gets everything
    left = np.bitwise_count(np.arange(2**12) & 31)
    gloves = np.minimum(left, size - left).astype(float)
    np.testing.assert_allclose(nucleolus(gloves), [1] * 5 + [0] * 7, atol=1e-7)
