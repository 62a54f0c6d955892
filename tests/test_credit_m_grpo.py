"""m_grpo: invocations, alignment, and the rewards of main and sub trajectories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from macredit.credit import credit
from macredit.credit.invocations import invocations_of
from macredit.credit.m_grpo import random_copies, shared_reward
from macredit.episode import Episode, episode_from_json
from macredit.rows import rows_of
from macredit.seeds import generator


def episode(name: str, reward: float | None, *turns: Any, **more: Any) -> Episode:
    """Turns as ``speaker>recipient,recipient``, or ``speaker`` alone where recipients are unknown."""
    told = []
    for turn in turns:
        words, extra = turn if isinstance(turn, tuple) else (turn, {})
        agent, _, to = words.partition(">")
        told.append({"agent": agent, "text": "x", "valid": True, **({"to": to.split(",")} if to else {}), **extra})
    return episode_from_json({"id": name, "task": "t", "reward": reward, "turns": told, **more})


def parts(*turns: str) -> list[int]:
    """Part of each turn: 0 is main, invocations count from 1."""
    return [int(part) for part in invocations_of(rows_of([episode("e", 1.0, *turns)])).of]


def test_an_invocation_opens_when_addressed_and_closes_on_the_way_back() -> None:
    assert parts("p>s", "s>p", "p>s", "s>p", "p>user") == [0, 1, 0, 2, 0]
    assert parts("p>s,v", "s>v", "v>s", "s>p", "v>p", "p>user") == [0, 1, 2, 1, 2, 0]
    # s asks t, its own invocation stays open until it answers p
    assert parts("p>s", "s>t", "t>s", "s>p") == [0, 1, 2, 1]
    # addressed twice before it answers: one invocation; answering the user closes it too
    assert parts("p>s", "p>s", "s>s2", "s2>user", "s>user", "p>s", "s>p") == [0, 0, 1, 2, 1, 0, 3]


def test_unknown_recipients_make_each_unbroken_run_an_invocation() -> None:
    assert parts("p", "s", "s", "v", "s", "p", "s") == [0, 1, 1, 2, 3, 0, 4]
    result = credit([episode("e", 1.0, "p", "s")], "m_grpo")
    assert any("unbroken run" in said for said in result.warnings)


def test_rewards_by_hand() -> None:
    valid, correct = np.array([True, True, False]), np.array([1.0, 0.0, 1.0])
    np.testing.assert_allclose(shared_reward(valid, correct), [1.0, 0.1, 0.0])
    # .1 + .4 · 1 + .5 · .5 = .75; .1 + 0 + .5 · 1 = .6; invalid 0
    np.testing.assert_allclose(shared_reward(valid, correct, np.array([0.5, 1.0, 1.0])), [0.75, 0.6, 0.0])
    # no expert: .1 + .9 · correct
    np.testing.assert_allclose(shared_reward(valid, correct, np.full(3, np.nan)), [1.0, 0.1, 0.0])


def test_main_and_sub_are_normalised_apart() -> None:
    episodes = [
        episode("e0", 1.0, "p>s", ("s>p", {"reward": 1.0}), "p>user"),
        episode("e1", 0.0, "p>s", ("s>p", {"reward": 0.0}), "p>user"),
        episode("e2", 0.0, ("p>user", {"valid": False})),
    ]
    result = credit(episodes, "m_grpo", settings={"align": "weight", "eps": 0})
    np.testing.assert_allclose(result.credit, [1.0, 1.0, 1.0, 0.1, 0.1, 0.1, 0.0])
    # main of METHODS: R = 1, .1, 0; sub: R = 1, .1: two members, ±1
    main = [1.4083737, -0.5929995, -0.8153742]
    np.testing.assert_allclose(result.advantage, [main[0], 1, main[0], main[1], -1, main[1], main[2]], atol=1e-6)
    np.testing.assert_array_equal(result.weight, [1, 8, 1, 1, 8, 1, 1])
    assert result.notes["rollouts without an invocation"] == {"s": 1}
    assert result.sequence is not None
    assert result.sequence.tolist() == [0, 3, 0, 1, 4, 1, 2]
    assert (result.agents[5].agent, result.agents[5].reason) == ("s", "not invoked")
    assert not result.warnings


def test_each_invocation_has_its_own_reward_and_weight() -> None:
    twice = episode("e0", 1.0, "p>s", ("s>p", {"valid": False}), "p>s", ("s>p", {"reward": 0.5}), "p>user")
    once = episode("e1", 0.0, "p>s", ("s>p", {"reward": 0.0}), "p>user")
    result = credit([twice, once], "m_grpo", settings={"align": "weight", "depth": 4, "eps": 0})
    # invocations of s: 0 (invalid), .1 + .4 + .25 = .75, .1; weights 2, 2, 4; mean (1.5 + .4)/8 = .2375
    np.testing.assert_allclose(result.weight[[1, 3, 6]], [2, 2, 4])
    np.testing.assert_allclose(result.credit[[1, 3, 6]], [0, 0.75, 0.1])
    sigma = np.sqrt((2 * 0.2375**2 + 2 * 0.5125**2 + 4 * 0.1375**2) / 8)
    np.testing.assert_allclose(result.advantage[[1, 3, 6]], np.array([-0.2375, 0.5125, -0.1375]) / sigma)


@pytest.mark.parametrize(("d", "depth"), [(1, 8), (3, 8), (8, 8), (5, 2)])
def test_random_copies_fill_the_depth_and_expect_its_share(d: int, depth: int) -> None:
    draws = np.array([random_copies(d, depth, generator("test", i)) for i in range(2000)])
    assert (draws.sum(axis=1) == depth).all()
    assert (draws >= (1 if d <= depth else 0)).all()
    # each expectation is depth/d; 2000 draws of a variance below depth/d: five standard errors
    np.testing.assert_allclose(draws.mean(axis=0), depth / d, atol=5 * np.sqrt(depth / d / 2000))


def test_expected_first_and_second_moments_of_copies_are_those_of_weights() -> None:
    reward = np.array([0.3, -1.0, 2.0])
    draws = np.array([random_copies(3, 4, generator("moments", i)) for i in range(4000)])
    for power in (0, 1, 2):
        exact = (4 / 3 * reward**power).sum()
        assert (draws @ reward**power).mean() == pytest.approx(exact, abs=0.15)
    # exactly: one copy each, and the fourth uniformly one of the three
    outcomes = np.ones((3, 3)) + np.eye(3)
    np.testing.assert_allclose(outcomes.mean(axis=0), np.full(3, 4 / 3))


def test_copies_depend_on_seed_and_episode_not_on_the_batch() -> None:
    def play(i: int) -> Episode:
        return episode(f"e{i}", float(i % 2), "p>s", "s>p", "p>s", "s>p", "p>s", "s>p", "p>user")

    weights = credit([play(i) for i in range(4)], "m_grpo").weight
    reversed_ = credit([play(i) for i in reversed(range(4))], "m_grpo").weight
    np.testing.assert_array_equal(weights.reshape(4, 7), reversed_.reshape(4, 7)[::-1])
    other = credit([play(i) for i in range(4)], "m_grpo", settings={"seed": 1}).weight
    assert (weights != other).any()
    np.testing.assert_array_equal(weights.reshape(4, 7)[:, [1, 3, 5]].sum(axis=1), 8)


def test_invocations_beyond_the_depth_are_dropped_at_random() -> None:
    talk = ["p>s", "s>p"] * 5
    result = credit([episode("e0", 1.0, *talk), episode("e1", 0.0, *talk)], "m_grpo", settings={"depth": 2})
    kept = result.weight[result.rows.agent == 1]
    assert sorted(kept.tolist()) == [0] * 6 + [1] * 4
    own = result.advantage[result.rows.agent == 1]
    assert not own[kept == 0].any()
    assert np.abs(own[kept > 0]).min() == pytest.approx(1.0, abs=1e-4)


def test_what_is_assumed_is_said() -> None:
    bare = episode("e", 1.0, ("p>s", {"valid": None}), ("s>p", {"valid": None}))
    said = " ".join(credit([bare], "m_grpo").warnings)
    assert "`valid` is unknown" in said
    assert "1 of 1 invocations have no expert reward" in said
