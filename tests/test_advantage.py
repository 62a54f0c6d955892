"""The normaliser: hand-worked numbers, the invariants of METHODS section 10 and the edges of section 11."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macredit.advantage import normalise
from macredit.errors import UserError

WORKED: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "worked.json").read_text())
RELEASED = WORKED["released code"]


def test_population_z_score_by_hand() -> None:
    # mean 1/3; deviations 2/3, −1/3, −1/3; variance (4+1+1)/27 = 2/9; sigma = 0.4714045
    # 2/3 / 0.4714045 = 1.4142136 = √2
    result = normalise([1.0, 0.0, 0.0], [0, 0, 0], eps=0.0)
    np.testing.assert_allclose(result.advantage, [2**0.5, -(2**-0.5), -(2**-0.5)])
    assert (result.groups, result.singletons, result.degenerate) == (1, 0, 0)


def test_leave_one_out_is_the_score_minus_the_mean_of_the_others() -> None:
    # 3 − (1+2)/2 = 1.5; 1 − (3+2)/2 = −1.5; 2 − (3+1)/2 = 0
    result = normalise([3.0, 1.0, 2.0], [4, 4, 4], centre="loo", scale="none")
    np.testing.assert_allclose(result.advantage, [1.5, -1.5, 0.0], atol=1e-15)


def test_worked_vectors_of_the_released_codes() -> None:
    groups, scores = [0, 0, 0, 1, 1], [1, 0, 0, 1, 0.5]
    grpo = normalise(scores, groups, ddof=1).advantage
    np.testing.assert_allclose(grpo, RELEASED["verl_grpo_groups_a=[1,0,0]_b=[1,.5]"], atol=1e-6)
    rloo = normalise(scores, groups, centre="loo", scale="none").advantage
    np.testing.assert_allclose(rloo, RELEASED["verl_rloo"], atol=1e-6)


def test_worked_rows_of_dr_mas() -> None:
    drmas = RELEASED["drmas"]
    rows = drmas["rows(agent,traj,reward)"]
    agent, reward = [int(a == "V") for a, _, _ in rows], [r for _, _, r in rows]
    np.testing.assert_allclose(
        normalise(reward, agent, ddof=1).advantage, drmas["drmas(group_by_agent_id=True)"], atol=1e-6
    )
    np.testing.assert_allclose(normalise(reward, agent, scale="none").advantage, drmas["drmas_no_std"], atol=1e-6)
    loo = normalise(reward, agent, centre="loo", scale="none").advantage
    np.testing.assert_allclose(loo, drmas["rloo_agentwise"], atol=1e-6)


def test_main_and_aligned_sub_vectors_of_m_grpo() -> None:
    derived = WORKED["derived"]
    main = normalise([1.0, 0.1, 0.0], [0, 0, 0], eps=0.0).advantage
    np.testing.assert_allclose(main, derived["mgrpo_main R=[1,.1,0] pop"], atol=1e-6)
    aligned = derived["mgrpo_sub aligned D=2 (dup r1, drop last of r2)"]
    # six aligned members are four different ones, of which the third stands for two copies
    copies = normalise([1.0, 0.6, 0.1, 0.0, 0.5], [0] * 5, weight=[1, 1, 2, 1, 1], eps=0.0).advantage
    np.testing.assert_allclose(copies[[0, 1, 2, 2, 3, 4]], aligned["A"], atol=1e-6)


def test_eps_stands_outside_the_root_or_inside() -> None:
    # scores 1, 3: deviation ±1, variance 1; 1/(1 + 1) = 0.5 outside, 1/√(1 + 1) = 0.7071068 inside
    np.testing.assert_allclose(normalise([1.0, 3.0], [0, 0], eps=1.0).advantage, [-0.5, 0.5])
    inside = normalise([1.0, 3.0], [0, 0], eps=1.0, eps_in_sqrt=True).advantage
    np.testing.assert_allclose(inside, [-(2**-0.5), 2**-0.5])


def test_mean_and_scale_can_come_from_different_groups() -> None:
    # centre: means 1 of {0, 2} and 6 of {4, 8}; scale over all four: mean 3.5, squares 12.25+2.25+.25+20.25 = 35, /4
    result = normalise([0.0, 2.0, 4.0, 8.0], [0, 0, 1, 1], scale_group=[0, 0, 0, 0], eps=0.0)
    np.testing.assert_allclose(result.advantage, np.array([-1, 1, -2, 2]) / 8.75**0.5)


# -- edges (METHODS section 11) --------------------------------------------------------------------------------------


def test_a_group_of_one_gets_nothing_or_its_raw_score() -> None:
    assert normalise([1.0], [0]).advantage[0] == 0.0
    assert normalise([1.0], [0], centre="loo").advantage[0] == 0.0
    assert normalise([1.0], [0], single="raw").advantage[0] == pytest.approx(1 / (1 + 1e-6), abs=1e-12)
    assert normalise([3.0], [0], single="raw", scale="none", centre="loo").advantage[0] == 3.0
    assert normalise([1.0, 2.0, 0.0], [0, 1, 1]).singletons == 1


@pytest.mark.parametrize("value", [0.35, 0.1, 1e30, -1e9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_rewards_are_exactly_zero(value: float, dtype: type) -> None:
    scores: np.ndarray[Any, Any] = np.full(7, value, dtype=dtype)
    for centre in ("mean", "loo"):
        result = normalise(scores, np.zeros(7, int), centre=centre, ddof=1)
        assert (result.advantage == 0.0).all()
        assert result.degenerate == 1


def test_rounding_noise_is_no_signal_but_a_small_difference_is() -> None:
    assert (normalise([0.1 + 0.2, 0.3], [0, 0]).advantage == 0.0).all()
    # relative to a maximum of 1e6, a difference of 1e-7 is below 1e-12 · 1e6 = 1e-6
    assert (normalise([1e6, 1e6 + 1e-7], [0, 0]).advantage == 0.0).all()
    np.testing.assert_allclose(normalise([1e-9, 0.0], [0, 0], eps=0.0).advantage, [1.0, -1.0])


def test_a_large_common_offset_costs_no_digits() -> None:
    plain, offset = normalise([0.0, 1.0, 5.0], [0] * 3), normalise([2.0**40, 2.0**40 + 1, 2.0**40 + 5], [0] * 3)
    np.testing.assert_allclose(offset.advantage, plain.advantage, rtol=1e-12)


@pytest.mark.parametrize("scores", [[1e308, -1e308], [1e200, 0.0], [np.inf, 1.0], [-np.inf, np.inf]])
def test_statistics_that_overflow_name_their_group(scores: list[float]) -> None:
    with pytest.raises(UserError, match=r"^group 7: its rewards overflow .* rescale them$"):
        normalise([0.0, 1.0, *scores], [0, 0, 7, 7])


def test_overflow_of_the_scale_names_the_group_of_the_centre() -> None:
    with pytest.raises(UserError, match=r"^group 3"):
        normalise([0.0, 1.0, 1e200], [3, 3, 3], scale_group=[0, 0, 0])


def test_nan_leaves_its_group_and_siblings_stay_finite() -> None:
    # without the NaN: 1 and 0, z = ±1
    result = normalise([1.0, np.nan, 0.0, np.nan, 5.0], [0, 0, 0, 1, 1], eps=0.0)
    np.testing.assert_array_equal(result.advantage, [1.0, 0.0, -1.0, 0.0, 0.0])
    assert result.singletons == 1


def test_weight_zero_leaves_a_group_like_nan() -> None:
    result = normalise([1.0, 9.0, 0.0, 5.0, 7.0], [0, 0, 0, 1, 1], weight=[1, 0, 1, 1, 0], eps=0.0)
    np.testing.assert_array_equal(result.advantage, [1.0, 0.0, -1.0, 0.0, 0.0])
    assert result.singletons == 1


def test_nobody_at_all() -> None:
    result = normalise([], [])
    assert result.advantage.shape == (0,)
    assert normalise([np.nan], [3]).advantage[0] == 0.0
    assert (normalise([np.nan], [3]).groups, result.groups) == (0, 0)


# -- invariants (METHODS section 10) ---------------------------------------------------------------------------------

batches = st.lists(
    st.tuples(st.floats(-10, 10, allow_subnormal=False).map(lambda x: round(x, 3)), st.integers(0, 4)),
    min_size=1,
    max_size=40,
)
presets = st.fixed_dictionaries(
    {"centre": st.sampled_from(["mean", "loo"]), "scale": st.sampled_from(["std", "none"]), "ddof": st.integers(0, 1)}
)


@given(batches, presets)
def test_centred_presets_add_up_to_zero_in_every_group(batch: list[tuple[float, int]], preset: dict[str, Any]) -> None:
    score, group = zip(*batch, strict=True)
    np.testing.assert_allclose(np.bincount(group, normalise(score, group, **preset).advantage), 0.0, atol=1e-9)


@given(batches)
def test_leave_one_out_is_the_centred_score_times_n_over_n_minus_one(batch: list[tuple[float, int]]) -> None:
    score, group = zip(*batch, strict=True)
    n = np.bincount(group)[list(group)]
    mean = normalise(score, group, scale="none").advantage
    loo = normalise(score, group, centre="loo", scale="none").advantage
    np.testing.assert_allclose(loo, mean * n / np.maximum(n - 1, 1), atol=1e-12)


@given(batches, st.floats(0.5, 50), st.floats(-100, 100))
def test_a_z_score_ignores_a_positive_affine_map(batch: list[tuple[float, int]], a: float, b: float) -> None:
    score, group = zip(*batch, strict=True)
    plain = normalise(score, group, eps=0.0).advantage
    np.testing.assert_allclose(normalise(a * np.array(score) + b, group, eps=0.0).advantage, plain, atol=1e-6)


@given(batches, presets, st.randoms(use_true_random=False))
def test_permuting_members_permutes_advantages(
    batch: list[tuple[float, int]], preset: dict[str, Any], random: Any
) -> None:
    order = list(range(len(batch)))
    random.shuffle(order)
    score, group = (np.array(column) for column in zip(*batch, strict=True))
    plain = normalise(score, group, **preset).advantage
    np.testing.assert_allclose(normalise(score[order], group[order], **preset).advantage, plain[order], atol=1e-9)


@given(batches, batches, presets)
def test_other_groups_in_the_batch_change_nothing(
    one: list[tuple[float, int]], other: list[tuple[float, int]], preset: dict[str, Any]
) -> None:
    mixed = [(s, g) for s, g in one] + [(s, g + 5) for s, g in other]
    score, group = zip(*mixed, strict=True)
    alone = normalise(*zip(*one, strict=True), **preset).advantage
    np.testing.assert_array_equal(normalise(score, group, **preset).advantage[: len(one)], alone)


@given(batches, st.lists(st.integers(1, 4), min_size=40, max_size=40))
def test_a_weight_is_a_number_of_copies(batch: list[tuple[float, int]], copies: list[int]) -> None:
    score, group = (np.array(column) for column in zip(*batch, strict=True))
    w = np.array(copies[: len(batch)])
    several = np.bincount(group)[group] > 1  # a group of one member stays one, whatever its weight
    weighted = normalise(score, group, weight=w, ddof=1).advantage
    repeated = normalise(score.repeat(w), group.repeat(w), ddof=1).advantage[np.cumsum(w) - w]
    np.testing.assert_allclose(weighted[several], repeated[several], atol=1e-9)


def test_a_million_members_take_well_under_a_second() -> None:
    rng = np.random.default_rng(0)
    score, group = rng.normal(size=1_000_000), rng.integers(0, 100_000, 1_000_000)
    start = time.perf_counter()
    normalise(score, group)
    assert time.perf_counter() - start < 1.0
