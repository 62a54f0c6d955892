"""Episodes as columns: which rows count, what they earned, shared turns, contexts and derived teams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from macredit.episode import Episode, Turn, episode_from_json
from macredit.errors import OutsideError, UserError
from macredit.rows import rows_of


def episode(name: str, reward: float | None, *turns: Any, **more: Any) -> Episode:
    told = [{"agent": t, "text": "x"} if isinstance(t, str) else {"text": "x", **t} for t in turns]
    return episode_from_json({"id": name, "task": "t", "reward": reward, "turns": told, **more})


def test_rows_stand_in_file_order() -> None:
    rows = rows_of([episode("e0", 1.0, "a", "b"), episode("e1", 0.0, "b", task="u")])
    assert (rows.agents, rows.tasks, len(rows)) == (("a", "b"), ("t", "u"), 3)
    np.testing.assert_array_equal(rows.episode, [0, 0, 1])
    np.testing.assert_array_equal(rows.turn, [0, 1, 0])
    np.testing.assert_array_equal(rows.agent, [0, 1, 1])
    np.testing.assert_array_equal(rows.task, [0, 0, 1])
    assert rows.at(2).agent == "b"


def test_a_rows_reward_is_the_teams_plus_the_agents_minus_the_penalty_on_that_row_alone() -> None:
    played = episode(
        "e", 1.0, {"agent": "a", "valid": False}, {"agent": "a", "valid": True}, "b", agent_rewards={"a": 0.25}
    )
    # invalid turn of a: 1 + .25 − .1; valid turn of a: 1 + .25; unknown validity of b: 1
    np.testing.assert_allclose(rows_of([played], invalid_penalty=0.1).reward, [1.15, 1.25, 1.0])
    np.testing.assert_array_equal(rows_of([played]).valid, [False, True, True])


def test_reasons_say_why_rows_do_not_count() -> None:
    silenced = {"agent": "a", "text": "", "null": True}
    rows = rows_of(
        [
            episode("good", 1.0, "a", {"agent": "a", "text": ""}, {"agent": "a", "token_ids": []}, silenced),
            episode("none", None, "a"),
            episode("own", 1.0, "a", agent_rewards={"a": None}),
            episode("nan", float("nan"), "a"),
            episode("crash", 0.0, "a", end="failed:tool"),
            episode("cut", 1.0, "a", end="truncated"),
        ]
    )
    assert rows.reasons == (
        None, "empty", "empty", "silenced", "no reward", "no reward", "no reward", "failed:tool", None,
    )  # fmt: skip
    np.testing.assert_array_equal(np.isnan(rows.team_reward), [False, True, False, True, True, False])


def test_copies_of_a_turn_point_at_the_first() -> None:
    rows = rows_of(
        [
            episode("e0", 1.0, {"agent": "a", "id": "q/0"}, {"agent": "b", "id": "q/0/0"}),
            episode("e1", 0.0, {"agent": "a", "id": "q/0"}, {"agent": "b", "id": "q/0/1"}),
        ]
    )
    np.testing.assert_array_equal(rows.fact, [0, 1, 0, 3])
    np.testing.assert_array_equal(rows.first, [True, True, False, True])


def test_derived_contexts_are_task_agent_and_all_earlier_turns() -> None:
    rows = rows_of(
        [
            episode("e0", 1.0, {"agent": "a", "id": "q/0"}, {"agent": "b", "id": "q/0/0"}),
            episode("e1", 0.0, {"agent": "a", "id": "q/0"}, {"agent": "b", "id": "q/0/1"}),
            episode("e2", 0.0, {"agent": "a", "id": "q/1"}, {"agent": "b", "id": "q/1/0"}),
            episode("e3", 0.0, {"agent": "a", "id": "r/0"}, task="u"),
            episode("e4", 0.0, {"agent": "b", "id": "q/2"}),
        ]
    )
    root, after, other, elsewhere, starts = rows.context[[0, 1, 5, 6, 7]]
    np.testing.assert_array_equal(rows.context[:6], [root, after, root, after, root, other])
    assert len({root, after, other, elsewhere, starts}) == 5


def test_recorded_contexts_come_before_derived_ones() -> None:
    rows = rows_of([episode(f"e{i}", 1.0, "a", {"agent": "b", "context": "h"}) for i in range(2)])
    assert rows.context[1] == rows.context[3]


def test_without_a_team_the_first_speaker_orchestrates_everyone_of_the_task() -> None:
    rows = rows_of([episode("e0", 1.0, "a", "b"), episode("e1", 0.0, "a", "c"), episode("e2", 0.0, "d", task="u")])
    assert [team.orchestrator for team in rows.teams] == ["a", "a", "d"]
    assert rows.teams[0].names == ("a", "b", "c")
    assert rows.teams[2].names == ("d",)


def test_a_file_without_any_reward_is_an_error() -> None:
    with pytest.raises(UserError, match=r"none of 2 episodes has a reward \(1 failed\)"):
        rows_of([episode("e0", None, "a"), episode("e1", 1.0, "a", end="failed:env")])


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (["policy", "policy"], r"all of 2 episodes failed \(2 in the policy; the first: E: e0\); mend that, then play"),
        (
            ["env", "worker", "worker"],
            r"all of 3 episodes failed \(2 in the worker, 1 in the environment; the first: E",
        ),
    ],
)
def test_where_every_episode_failed_the_boundary_is_named(ends: list[str], said: str) -> None:
    """Nothing is wrong with the record, so it is no user's error."""
    played = [episode(f"e{i}", None, "a", end=f"failed:{end}", error=f"E: e{i}") for i, end in enumerate(ends)]
    with pytest.raises(OutsideError, match=f"{said}.*--resume"):
        rows_of(played)
    bare = [episode("e0", 1.0, end="failed:tool")]
    with pytest.raises(OutsideError, match=r"all of 1 episodes failed \(1 in the tool\); mend that"):
        rows_of(bare)
    assert rows_of([*played, episode("good", 1.0, "a")]).reasons == (*(f"failed:{end}" for end in ends), None)


def test_a_record_of_nothing_lacks_rewards() -> None:
    with pytest.raises(UserError, match="none of 0 episodes has a reward"):
        rows_of([])


def test_a_row_reward_that_overflows_is_named() -> None:
    played = [episode("e", 1e308, "a", "b", agent_rewards={"b": 1e308}), episode("f", 0.0, "a", "b")]
    with pytest.raises(UserError, match="group task 't': the reward of turn 1 in episode 'e'"):
        rows_of(played)


def test_a_bare_nan_is_no_reward() -> None:
    turns = episode("e", None, "a", "b").turns
    nan = Episode("e", "t", turns, float("nan"))
    own = Episode("g", "t", tuple(Turn("a", "x", f"g/{i}") for i in range(1)), 1.0, {"a": float("nan")})
    rows = rows_of([nan, episode("f", 1.0, "a"), own])
    assert rows.reasons == ("no reward", "no reward", None, "no reward")
