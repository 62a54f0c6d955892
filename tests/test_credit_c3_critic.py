"""c3 with a critic: the formula by hand, edges, resampled contexts, and less variance on a game of known truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pytest

from macredit.agents import make_policies
from macredit.collect import tree
from macredit.credit import Credits, credit, resolve
from macredit.envs import make_env
from macredit.episode import Episode, episode_from_json
from macredit.errors import UserError
from macredit.learn.team_critic import CrossFit
from macredit.moves import Move, moves_of
from macredit.rollout import World, tasks_of
from macredit.rows import FloatN, rows_of
from macredit.seeds import generator
from macredit.whatif import WhatIf


class Known:
    """A critic from a table: text → value; what is not in it is not known."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self.values = values

    def predict(self, moves: Sequence[Move]) -> FloatN:
        return np.array([self.values.get(move.text, np.nan) for move in moves])


def said(
    rewards: Sequence[float | None], texts: Sequence[str] = "uvwxyz", name: str = "e", **more: Any
) -> list[Episode]:
    """One turn an episode, all in one context."""
    return [
        episode_from_json(
            {"id": f"{name}{i}", "task": "q", "reward": reward, "turns": [{"agent": "a", "text": text}], **more}
        )
        for i, (reward, text) in enumerate(zip(rewards, texts, strict=False))
    ]


def valued(episodes: Sequence[Episode], values: Mapping[str, float], preset: str = "paper", **settings: Any) -> Credits:
    settings = {"variant": "value_assisted", **settings}
    return credit(episodes, "c3", preset, settings, WhatIf(episodes, critic=Known(values)))


THREE, Q = said([1.0, 0.0, 0.5]), {"u": 0.7, "v": 0.2, "w": 0.6}


def test_value_assisted_by_hand() -> None:
    # b(r): .25, .75, .5; b(q): .4, .65, .45; a = .5: baselines .325, .7, .475
    result = valued(THREE, Q)
    np.testing.assert_allclose(result.advantage, [0.675, -0.7, 0.025], atol=1e-15)
    np.testing.assert_allclose(result.credit, result.advantage)
    # a = 1: r − b(q)
    np.testing.assert_allclose(valued(THREE, Q, a=1.0).advantage, [0.6, -0.65, 0.05], atol=1e-15)
    # full means ½ and ½: r − ½ whatever a; credit stays leave-one-out
    full = valued(THREE, Q, baseline="full_mean", a=0.25)
    np.testing.assert_allclose(full.advantage, [0.5, -0.5, 0.0], atol=1e-15)
    np.testing.assert_allclose(full.credit, [1 - 0.2875, -0.725, 0.5 - 0.4875], atol=1e-15)


def test_value_only_by_hand() -> None:
    result = valued(THREE, Q, variant="value_only")
    np.testing.assert_allclose(result.advantage, [0.3, -0.45, 0.15], atol=1e-15)
    full = valued(THREE, Q, variant="value_only", baseline="full_mean")
    np.testing.assert_allclose(full.advantage, [0.2, -0.3, 0.1], atol=1e-15)
    assert np.isnan(result.stderr).all()


def test_the_shipped_default_is_z_scored_within_the_context() -> None:
    advantage = np.array([0.675, -0.7, 0.025])  # as above
    expected = (advantage - advantage.mean()) / np.sqrt(advantage.var() + 1e-8)
    result = valued(THREE, Q, "code")
    np.testing.assert_allclose(result.advantage, expected, atol=1e-12)
    np.testing.assert_allclose(result.credit, advantage, atol=1e-15)


def test_without_weight_the_critic_changes_nothing_at_all() -> None:
    rng = generator("c3 critic")
    episodes = said(rng.normal(size=6).tolist())
    values = dict(zip("uvwxyz", rng.normal(size=6).tolist(), strict=True))
    for settings in ({}, {"baseline": "full_mean"}, {"zscore": True}):
        alone = credit(episodes, "c3", settings=settings)
        with_critic = valued(episodes, values, a=0.0, **settings)
        np.testing.assert_array_equal(with_critic.advantage, alone.advantage)
        np.testing.assert_array_equal(with_critic.credit, alone.credit)
        np.testing.assert_array_equal(with_critic.stderr, alone.stderr)


def test_equal_returns_leave_what_the_critic_did_not_expect() -> None:
    equal = said([0.35] * 3)
    assert (valued(equal, dict.fromkeys("uvw", 0.1 + 0.25)).advantage == 0).all()
    assert valued(equal, dict.fromkeys("uvw", 0.35)).notes["groups without a signal"] == 1
    # ½ (.35 − b(q)): b(q) = .4, .65, .45
    surprising = valued(equal, Q)
    np.testing.assert_allclose(surprising.advantage, [-0.025, -0.15, -0.05], atol=1e-15)
    assert surprising.notes["groups without a signal"] == 0


def test_rows_without_a_reward_leave_both_baselines() -> None:
    told = [*THREE, *said([None], "x", "n"), *said([9.0], "y", "f", end="failed:tool"), *said([9.0], ("",), "m")]
    result = valued(told, {**Q, "x": 50.0, "y": -50.0, "": 7.0})
    np.testing.assert_allclose(result.advantage[:3], [0.675, -0.7, 0.025], atol=1e-15)
    assert not result.advantage[3:].any()
    assert not result.weight[3:].any()


def test_a_context_that_the_critic_does_not_know_whole_compares_returns() -> None:
    partly = valued(THREE, {"u": 0.7, "v": 0.2})
    np.testing.assert_array_equal(partly.advantage, credit(THREE, "c3").advantage)
    assert partly.notes["contexts unknown to the critic"] == 1
    assert partly.warnings == ("1 of 1 contexts have no value of the critic yet: returns alone",)
    assert valued(THREE, Q).warnings == ()


def test_one_turn_contexts_have_no_credit_whatever_the_critic_says() -> None:
    both = [*THREE, episode_from_json({"id": "f", "task": "p", "reward": 1.0, "turns": [{"agent": "a", "text": "u"}]})]
    for variant in ("value_only", "value_assisted"):
        result = valued(both, Q, variant=variant)
        assert result.reasons == (None, None, None, "no sibling")
        assert (result.advantage[3], result.weight[3]) == (0.0, 0.0)
        assert result.notes["contexts unknown to the critic"] == 0
    with pytest.raises(UserError, match="none of the 1 contexts of this record holds two"):
        valued(both[3:], Q)


def test_standard_errors_of_a_mixed_baseline() -> None:
    def leaves(name: str, rewards: Sequence[float]) -> list[Episode]:
        turns = [{"id": name, "agent": "a", "text": name}]
        return [
            episode_from_json({"id": f"{name}{i}", "task": "q", "reward": r, "turns": turns})
            for i, r in enumerate(rewards)
        ]

    told = [*leaves("u", [1, 0, 0, 1]), *leaves("v", [0, 0, 1, 0])]
    # variances of the means 1/12 and 1/16; the other's return has the share 1 − a = ¾ in the baseline
    result = valued(told, Q, a=0.25)
    assert result.stderr[0] == pytest.approx((1 / 12 + (3 / 4) ** 2 / 16) ** 0.5)


def test_a_critic_is_asked_for() -> None:
    for whatif in (None, WhatIf(THREE)):
        with pytest.raises(UserError, match=r"variant=value_assisted needs a critic.*--critic RUN"):
            credit(THREE, "c3", "code", {"variant": "value_assisted"}, whatif)
    with pytest.raises(UserError, match=r"'a' of c3 is 1\.5; expected 0 to 1"):
        resolve("c3", "paper", {"a": 1.5})
    method, settings = resolve("c3", "paper", {"variant": "value_only"})
    assert method.needs_with(settings) == {"tree", "critic"}
    assert method.needs_with(resolve("c3")[1]) == {"tree"}


# -- on a game whose truth is known -----------------------------------------------------------------------------------

WEIGHT = {"a": 0.5, "b": 0.3, "c": 0.2}


def additive(noise: float = 0.0) -> World:
    """Everyone helps or passes by a coin; the planner calls a, b, c in this order."""
    env = make_env("coalition_v0", preset="additive", noise=noise)
    table = {"kind": "table", "replies": ["help", "pass"]}
    return World(env, make_policies({**dict.fromkeys("abc", table), "planner": {"kind": "scripted"}}, env))


class Perfect:
    """The exact expectation of the return: who helped before is on record, everyone still to come tosses a coin."""

    def __init__(self, episodes: Sequence[Episode]) -> None:
        rows = rows_of(episodes)
        self.value: dict[tuple[str, str, str], float] = {}
        for n, move in enumerate(moves_of(rows, range(len(rows)))):
            so_far = episodes[rows.episode[n]].turns[: rows.turn[n] + 1]
            worth = {turn.agent: WEIGHT[turn.agent] * (turn.text == "help") for turn in so_far if turn.agent in WEIGHT}
            coming = sum(weight / 2 for agent, weight in WEIGHT.items() if agent not in worth)
            self.value[move.before, move.agent, move.text] = sum(worth.values()) + coming

    def predict(self, moves: Sequence[Move]) -> FloatN:
        return np.array([self.value[move.before, move.agent, move.text] for move in moves])


def test_a_perfect_critic_takes_the_luck_of_siblings_away() -> None:
    """Two siblings of a's turn: the truth is q_j − q_l, and b's and c's coins are luck of variance .15² + .1²."""
    episodes = tree(additive(), tasks_of(0, 500), {1: 2}, 2)
    whatif = WhatIf(episodes, critic=Perfect(episodes))
    first = np.array([turn.agent == "a" for e in episodes for turn in e.turns])
    truth = credit(episodes, "c3", settings={"variant": "value_only"}, whatif=whatif).advantage[first]
    assert set(np.round(truth, 9)) == {-0.5, 0.0, 0.5}
    luck = 0.15**2 + 0.1**2
    for a in (0.0, 0.5, 1.0):
        settings = {"variant": "value_assisted", "a": a}
        error = credit(episodes, "c3", settings=settings, whatif=whatif).advantage[first] - truth
        # the luck of its own continuation, and (1 − a) of the sibling's; of 1,000 turns, no bias
        assert error.var() == pytest.approx(luck * (1 + (1 - a) ** 2), rel=0.1)
        assert abs(error.mean()) < 4 * (luck / len(error)) ** 0.5
    whatif.critic = CrossFit(rows_of(episodes), {})
    error = (
        credit(episodes, "c3", settings={"variant": "value_assisted", "a": 1.0}, whatif=whatif).advantage[first] - truth
    )
    assert error.var() == pytest.approx(luck, rel=0.15)  # a fitted one comes close


class Forks:
    """Replays in which another text earns given rewards."""

    can_replay = True

    def __init__(self, episode: Episode, rewards: Sequence[float], critic: Known) -> None:
        self.episode, self.rewards, self.critic = episode, rewards, critic

    def resample(self, questions: Sequence[tuple[int, int]], n: int) -> list[list[Episode]]:
        assert (list(questions), n) == ([(0, 0)], 1 + len(self.rewards))
        return [[self.episode, *said(self.rewards, "zz")]]


def test_resampled_alternatives_are_valued_too() -> None:
    alone = said([1.0])[0]
    whatif = cast(WhatIf, Forks(alone, [0.0, 0.5], Known({"u": 0.8, "z": 0.4})))
    result = credit([alone], "c3", settings={"variant": "value_assisted", "alternatives": 3}, whatif=whatif)
    # 1 − (½ · ¼ + ½ · .4)
    np.testing.assert_allclose(result.advantage, [0.675])
