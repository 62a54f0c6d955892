"""Advantages as plain arrays: from episodes of any framework, and from the columns of a trainer's batch."""

import doctest
import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import macredit.integrations
from macredit.agents import make_policies
from macredit.credit import METHODS, credit
from macredit.envs import make_env
from macredit.episode import Episode, episode_to_json, write_episodes
from macredit.errors import UserError
from macredit.integrations.arrays import advantages
from macredit.integrations.columns import Columns, credit_columns, label, labelled
from macredit.integrations.trl import TeamRollout
from macredit.rollout import World, play, tasks_of

NEEDS_ONLY_A_LOG = [name for name, method in METHODS.items() if "replay" not in method.needs]


@pytest.fixture(scope="module")
def episodes() -> list[Episode]:
    env = make_env("coalition_v0", preset="glove")
    table = {"kind": "table", "replies": ["help", "pass"]}
    specs = dict.fromkeys(env.team.names, table) | {"planner": {"kind": "scripted", "style": "perfect"}}
    return play(World(env, make_policies(specs, env)), tasks_of(0, 3, group=4))


def test_the_documented_example_runs() -> None:
    done = doctest.testmod(macredit.integrations)
    assert done.attempted > 5
    assert done.failed == 0


@pytest.mark.parametrize("method", NEEDS_ONLY_A_LOG)
def test_arrays_are_the_credits_of_the_method(episodes: list[Episode], method: str) -> None:
    found = advantages([episode_to_json(episode) for episode in episodes], method)
    own = credit(episodes, method)
    np.testing.assert_array_equal(found.advantage, own.advantage)
    np.testing.assert_array_equal(found.weight, own.weight)
    np.testing.assert_array_equal(found.credit, own.credit)
    np.testing.assert_array_equal(found.stderr, own.stderr)
    assert found.episode[0] == episodes[0].id
    assert found.agent[: len(episodes[0].turns)] == tuple(turn.agent for turn in episodes[0].turns)
    assert found.turn[1] == 1
    assert len(found.sequence) == len(found.agent)


def test_a_file_gives_what_its_objects_give(tmp_path: Path, episodes: list[Episode]) -> None:
    write_episodes(tmp_path / "e.jsonl", episodes)
    np.testing.assert_array_equal(
        advantages(tmp_path / "e.jsonl", "dr_mas").advantage, advantages(episodes, "dr_mas").advantage
    )


def bare(**changed: Any) -> dict[str, Any]:
    return {"id": "e0", "task": "t", "reward": 1.0, "turns": [{"agent": "a", "text": "x"}], **changed}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (3, "episodes is 3; expected a list of episode objects"),
        (bare(), "episodes is {'id': 'e0'.*expected a list"),
        ([bare(), 3], r"episodes\[1\] is 3; expected an object with 'id'"),
        ([bare(), bare(id="e1", task=7)], r"episodes\[1\] \(id 'e1'\): field 'task': given 7, expected a string"),
        (
            [bare(), bare(id="e1", turns=[{"agent": "a"}])],
            r"episodes\[1\] \(id 'e1'\): field 'turns\[0\].text': absent",
        ),
        ([bare(), {"task": "t", "turns": []}], r"episodes\[1\] \(id None\): field 'id': absent"),
    ],
)
def test_a_malformed_episode_is_named(given: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        advantages(given, "rloo")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"method": None}, "method is None; expected a name, one of grpo, rloo"),
        ({"method": ["rloo"]}, r"method is \['rloo'\]; expected a name"),
        ({"preset": ["paper"]}, r"no preset \['paper'\]; expected one of paper, code"),
        ({"settings": ["single"]}, "the settings of rloo are .* expected names with values"),
        ({"settings": 3}, "the settings of rloo are 3; expected names with values"),
        ({"settings": [1]}, r"the settings of rloo are \[1\]; expected names with values"),
        ({"settings": {1: 2}}, r"the settings of rloo are \{1: 2\}; expected names with values"),
    ],
)
def test_what_is_no_method_is_named(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        advantages([bare()], **{"method": "rloo", **asked})


def test_numpy_inside_the_objects_is_read() -> None:
    turn = {"agent": "a", "text": "x", "token_ids": np.arange(2)}
    two = [{"id": str(i), "task": "t", "reward": np.float32(i), "turns": (turn,)} for i in range(2)]
    advantage, mask = advantages(two, "rloo").per_token()
    np.testing.assert_array_equal(advantage, [[-1.0, -1.0], [1.0, 1.0]])  # 0 − 1 and 1 − 0
    assert mask.all()


def test_tokens_need_token_ids() -> None:
    two = [{"id": str(i), "task": "t", "reward": i, "turns": [{"agent": "a", "text": "x"}]} for i in range(2)]
    with pytest.raises(UserError, match=r"turn '0/0' has no token_ids"):
        advantages(two, "rloo").per_token()


def test_counterfactuals_of_the_record_are_used() -> None:
    record = json.loads(
        '{"id": "e", "task": "t", "reward": 1, "counterfactuals": [{"silenced": ["b"], "reward": 0.25}]}'
    )
    record["turns"] = [{"agent": "a", "text": "x"}, {"agent": "b", "text": "y"}]
    assert advantages([record], "difference").credit[1] == 0.75  # 1 − 0.25


def columns_of(episodes: list[Episode], order: np.ndarray[Any, Any]) -> Columns:
    """A trainer's batch of these episodes, its rows in another order."""
    rows = [(episode, t) for episode in episodes for t in range(len(episode.turns))]
    at = [rows[n] for n in order]
    return Columns(
        task=[episode.task for episode, _ in at],
        reward=np.array([episode.reward for episode, _ in at], dtype=np.float64),
        tokens=np.ones(len(at), dtype=np.int64),
        episode=[episode.id for episode, _ in at],
        agent=[episode.turns[t].agent for episode, t in at],
        turn=[t for _, t in at],
        context=[episode.turns[t].context for episode, t in at],
    )


@pytest.mark.parametrize("method", [name for name in NEEDS_ONLY_A_LOG if name != "m_grpo"])
def test_columns_in_any_order_give_what_episodes_give(episodes: list[Episode], method: str) -> None:
    size = sum(len(episode.turns) for episode in episodes)
    order = np.random.default_rng(0).permutation(size)
    advantage, weight, _ = credit_columns(columns_of(episodes, order), method)
    own = credit(episodes, method)
    np.testing.assert_allclose(advantage, own.advantage[order])
    np.testing.assert_allclose(weight, own.weight[order])


def test_labels_say_what_columns_say(episodes: list[Episode]) -> None:
    columns = columns_of(episodes, np.arange(sum(len(episode.turns) for episode in episodes)))
    assert columns.episode is not None
    assert columns.agent is not None
    assert columns.turn is not None
    index = list(map(label, columns.task, columns.episode, columns.agent, columns.turn))
    plain = Columns(reward=columns.reward, tokens=columns.tokens, **labelled(index))
    np.testing.assert_array_equal(credit_columns(plain, "dr_mas")[0], credit_columns(columns, "dr_mas")[0])


def test_an_index_without_labels_makes_every_row_a_rollout() -> None:
    assert labelled(["g", "g"]) == {"task": ["g", "g"]}
    assert labelled([]) == {"task": []}
    with pytest.raises(UserError, match="label all rows or none"):
        labelled(["g", label("t", "e", "a", 0)])


@pytest.mark.parametrize("turn", ["x", "1.5", ""])
def test_a_label_made_by_hand_is_named(turn: str) -> None:
    index = [label("t", "e", "a", 0), "\x1f".join(["t", "e", "a", turn])]
    with pytest.raises(UserError, match=r"the group index of row 1 is 't\\x1fe\\x1fa.*a whole number"):
        labelled(index)
    with pytest.raises(UserError, match=r"the group index of row 0 is .* expected a task's name"):
        labelled(["t\x1fe\x1fa\x1fb\x1f0"] * 2)


def test_what_a_label_cannot_hold_is_refused() -> None:
    with pytest.raises(UserError, match=r"'e\\x1fx' holds '\\x1f', which parts the names of a label"):
        label("t", "e\x1fx", "a", 1)
    for turn in (1.5, "1"):
        with pytest.raises(UserError, match=f"the turn of a label is {turn!r}; expected a whole number"):
            label("t", "e", "a", turn)  # type: ignore[arg-type]
    assert labelled([label("t", "e", "a", int(np.int64(-1)))])["turn"] == [-1]


class ByIndex(list[Any]):
    """A data frame's column after sorting: looked up by an index of its own, iterated by place."""

    def __getitem__(self, n: Any) -> Any:
        return super().__getitem__(len(self) - 1 - n) if isinstance(n, int) else super().__getitem__(n)


def test_columns_are_read_by_place() -> None:
    columns = Columns(
        task=["t"] * 3, reward=np.array([1.0, 0.0, 5.0]), tokens=np.ones(3, np.int64), episode=[0, 1, 1],
        turn=[0, 0, 1], agent=["a", "a", "b"],
    )  # fmt: skip
    own = Columns(**{name: None if x is None else ByIndex(x) for name, x in vars(columns).items()})  # type: ignore[arg-type]
    np.testing.assert_array_equal(credit_columns(own, "rloo")[0], credit_columns(columns, "rloo")[0])


def test_contexts_that_are_not_known_are_no_siblings() -> None:
    columns = Columns(
        task=["t"] * 4, reward=np.array([1.0, 1.0, 0.0, 0.0]), tokens=np.ones(4, np.int64), episode=[0, 0, 1, 1],
        turn=[0, 1, 0, 1], context=["root", None, "root", None],
    )  # fmt: skip
    np.testing.assert_array_equal(credit_columns(columns, "c3")[0], [1.0, 0.0, -1.0, 0.0])


def test_a_row_without_tokens_is_left_out() -> None:
    columns = Columns(task=["t"] * 3, reward=np.array([1.0, 0.0, 5.0]), tokens=np.array([1, 1, 0]))
    np.testing.assert_array_equal(credit_columns(columns, "rloo")[0], [1.0, -1.0, 0.0])


def test_rows_of_one_rollout_may_earn_differently() -> None:
    """A malformed turn's own penalty stays on its row: dr_mas compares rows, (0 − 0.25 mean) and so on."""
    columns = Columns(
        task=["t"] * 4, reward=np.array([1.0, 0.5, 0.0, 0.0]), tokens=np.ones(4, np.int64),
        episode=[0, 0, 1, 1], agent=["a", "b", "a", "b"], turn=[0, 1, 0, 1],
    )  # fmt: skip
    advantage, _, _ = credit_columns(columns, "dr_mas", settings={"scale": "none"})
    np.testing.assert_allclose(advantage, [0.5, 0.25, -0.5, -0.25])


def test_counterfactual_columns_answer_replays() -> None:
    columns = Columns(
        task=["t"] * 2, reward=np.ones(2), tokens=np.ones(2, np.int64), episode=[0, 0], agent=["a", "b"], turn=[0, 1],
        counterfactuals=[None, {"b": 0.25}],
    )  # fmt: skip
    credits = credit_columns(columns, "difference")[2]
    assert credits.credit[1] == 0.75
    both = replace(columns, agent=["b", "c"], counterfactuals=[{"b": 0.5, "c,b": 0.0}, {"c": 0.25, "b,c": 0.0}])
    (episode,) = credit_columns(both, "rloo")[2].rows.episodes
    assert {known.silenced: known.reward for known in episode.counterfactuals} == {
        ("b",): 0.5, ("b", "c"): 0.0, ("c",): 0.25,
    }  # fmt: skip
    with pytest.raises(UserError, match=r"row 1 says 0.5 without 'b,c', and its episode said 0.0 before"):
        credit_columns(replace(both, counterfactuals=[{"c,b": 0.0}, {"b,c": 0.5}]), "difference")


@pytest.mark.parametrize("valid", [[False, True], np.array([False, True]), [0, 1], np.array([0, 1]), [np.False_, 1]])
def test_flags_are_truth_or_0_and_1(valid: Any) -> None:
    columns = Columns(task=["t"] * 2, reward=np.ones(2), tokens=np.ones(2, np.int64), valid=valid)
    credits = credit_columns(columns, "rloo")[2]
    np.testing.assert_array_equal(credits.rows.valid, [False, True])


def test_a_method_whose_needs_are_not_met_says_so() -> None:
    columns = Columns(task=["t"], reward=np.ones(1), tokens=np.ones(1, np.int64), agent=["a"])
    two = replace(
        columns, task=["t"] * 2, reward=np.ones(2), tokens=np.ones(2, np.int64), agent=["a", "b"], episode=[0, 0]
    )
    with pytest.raises(UserError, match="counterfactuals"):
        credit_columns(two, "difference")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"agent": ["a"]}, "column 'agent' has 1 rows and 'task' has 2"),
        ({"reward": np.array([0.0, np.nan])}, "the reward of row 1 is nan"),
        ({"reward": ["x", 1.0]}, "column 'reward' is .* expected a number a row"),
        ({"reward": np.ones((2, 2))}, "column 'reward' is .* expected a number a row"),
        ({"turn": ["a", "b"]}, "column 'turn' is .* expected a number a row"),
        ({"turn": [0, 0.5]}, "column 'turn' is .* expected whole numbers"),
        ({"counterfactuals": ["b", None]}, "the counterfactuals of row 0 are 'b'"),
        (
            {"counterfactuals": [None, {"b": np.nan}]},
            "the counterfactuals of row 1 say nan without 'b'; expected a fin",
        ),
        ({"counterfactuals": [None, {"b": [1, [2]]}]}, "the counterfactuals of row 1 say .* without 'b'"),
        ({"counterfactuals": [{3: 1.0}, None]}, "the counterfactuals of row 0 name 3; expected agents as text"),
        ({"counterfactuals": [{"b,": 1.0}, None]}, "the counterfactuals of row 0 name 'b,'"),
        ({"agent": ["a,b", "c"], "counterfactuals": [{"a,b": 0.0}, None]}, "agent 'a,b' has a comma.* rename it"),
        ({"episode": [0, 0], "counterfactuals": [{"b": 0.5}, {"b": 1.0}]}, "row 1 says 1.0 without 'b'"),
        ({"tokens": [-3, 1]}, r"column 'tokens' is \[-3, 1\]; expected whole numbers of at least 0"),
        ({"tokens": [0.5, 1]}, "column 'tokens' is .* expected whole numbers of at least 0"),
        ({"tokens": [np.nan, 1]}, "the tokens of row 0 is nan"),
        ({"tokens": ["x", "y"]}, "column 'tokens' is .* expected a number a row"),
        ({"tokens": np.ones((2, 2))}, "column 'tokens' is .* expected a number a row"),
        ({"tokens": None}, "column 'tokens' is None; expected a list or an array"),
        ({"tokens": 3}, "column 'tokens' is 3; expected a list or an array"),
        ({"agent": "ab"}, "column 'agent' is 'ab'; expected a list or an array, one entry a row"),
        ({"valid": ["no", True]}, "'valid' of row 0 is 'no'; expected True or False"),
        ({"valid": [True, 0.5]}, "'valid' of row 1 is 0.5"),
        ({"valid": [True, None]}, "'valid' of row 1 is None"),
        ({"valid": [2, 1]}, "'valid' of row 0 is 2"),
        ({"valid": np.ones((2, 1), np.int64)}, "'valid' of row 0 is array"),
    ],
)
def test_wrong_columns_are_named(wrong: dict[str, Any], said: str) -> None:
    columns = Columns(task=["t"] * 2, reward=np.ones(2), tokens=np.ones(2, np.int64))
    with pytest.raises(UserError, match=said):
        credit_columns(replace(columns, **wrong), "rloo")


def test_without_verl_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verl", None)
    monkeypatch.delitem(sys.modules, "macredit.integrations.verl", raising=False)
    with pytest.raises(UserError, match=r'pip install "macredit\[verl\]"'):
        importlib.import_module("macredit.integrations.verl")


def test_without_trl_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    env = make_env("coalition_v0")
    specs = {name: {"kind": "hf", "model": "tiny"} for name in env.team.names}
    bridge = TeamRollout(World(env, make_policies(specs, env)), "a")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r'pip install "macredit\[trl\]"'):
        bridge.dataset(2)
