"""Episode records: strict reading, exact round trips, files that survive a kill."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macredit.episode import (
    Counterfactual,
    Episode,
    EpisodeWriter,
    Turn,
    check_forest,
    episode_from_json,
    episode_line,
    read_episodes,
    write_episodes,
)
from macredit.errors import OutsideError, UserError

SMALL: dict[str, Any] = {"id": "t0-3", "task": "t0", "turns": [{"agent": "planner", "text": "hi"}]}


def changed(**fields: Any) -> dict[str, Any]:
    return {**SMALL, **fields}


def turn(**fields: Any) -> dict[str, Any]:
    return changed(turns=[{"agent": "planner", "text": "hi", **fields}])


def test_only_four_fields_are_required() -> None:
    episode = episode_from_json(SMALL)
    assert episode.turns[0].id == "t0-3/0"
    assert episode.turns[0].to is None
    assert episode.turns[0].reads is None
    assert episode.reward is None
    assert not episode.scored


@pytest.mark.parametrize("reward", [None, math.nan, "absent"])
def test_null_absent_and_nan_all_mean_no_reward(reward: Any) -> None:
    data = SMALL if reward == "absent" else changed(reward=reward)
    assert episode_from_json(data).reward is None
    assert '"reward":null' in episode_line(episode_from_json(data))


def test_absent_is_unknown_and_empty_is_empty() -> None:
    assert episode_from_json(turn(to=[])).turns[0].to == ()
    assert episode_from_json(turn(token_ids=[])).turns[0].empty
    assert not episode_from_json(turn()).turns[0].empty
    assert episode_from_json(changed(turns=[{"agent": "a", "text": ""}])).turns[0].empty


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "expected an object"),
        ({"id": "x", "task": "t"}, "field 'turns': absent"),
        (changed(turns=[{"agent": "a"}]), r"turns\[0\].text': absent"),
        (changed(id=3), "field 'id': given 3, expected a string"),
        (changed(reward="1"), "expected a number or null"),
        (changed(reward=True), "expected a number or null"),
        (changed(reward=math.inf), "expected a finite number"),
        (changed(end="crashed"), "'done', 'truncated' or 'failed:<where>'"),
        (changed(agent_rewards={"a": "x"}), "an object of numbers"),
        (turn(valid="no"), "expected true or false"),
        (turn(reads=["t9/9"]), "no earlier turn"),
        (turn(token_ids=[1, 2], logprobs=[-0.5]), "one for each of the 2 token_ids"),
        (turn(token_ids=[1.5]), "a list of integers"),
        (turn(prompt_after="x"), "no earlier turn"),
        (changed(turns=[{"agent": "a", "text": "", "id": "q"}] * 2), "stands twice"),
        (changed(counterfactuals=[{"reward": 1}]), r"counterfactuals\[0\].silenced"),
        (
            changed(counterfactuals=[{"silenced": ["z"]}], team={"orchestrator": "a", "agents": {"a": {}}}),
            "unknown agent in field 'counterfactuals\\[0\\].silenced' 'z'",
        ),
        (changed(team={"agents": {}}), "orchestrator"),
    ],
)
def test_a_malformed_line_says_field_given_and_expected(data: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        episode_from_json(data)


def test_a_bad_line_names_file_and_line_and_nothing_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text(json.dumps(SMALL) + "\n" + json.dumps(changed(id="x", reward="1")) + "\n")
    with pytest.raises(UserError, match=r"e\.jsonl, line 2: field 'reward'"):
        read_episodes(path)


def test_missing_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_episodes(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(UserError, match="holds no episode"):
        read_episodes(tmp_path / "empty.jsonl")


def test_a_torn_last_line_is_left_out_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text(json.dumps(SMALL) + "\n" + '{"id": "t0-4", "tas')
    with pytest.warns(UserWarning, match="line 2: cut off"):
        assert [e.id for e in read_episodes(path)] == ["t0-3"]


def test_unknown_fields_survive_a_round_trip() -> None:
    data = changed(colour="blue", turns=[{"agent": "a", "text": "x", "mood": [1]}], counterfactuals=[
        {"silenced": ["a"], "reward": 0.5, "why": "x"}])  # fmt: skip
    back = json.loads(episode_line(episode_from_json(data)))
    assert back["colour"] == "blue"
    assert back["turns"][0]["mood"] == [1]
    assert back["counterfactuals"][0]["why"] == "x"


texts = st.text(max_size=8)
names = st.text(min_size=1, max_size=5)
maybe = st.none()
numbers = st.floats(allow_nan=False, allow_infinity=False)
turns = st.builds(
    Turn,
    agent=names,
    text=texts,
    to=maybe | st.lists(names, max_size=2).map(tuple),
    valid=maybe | st.booleans(),
    null=st.booleans(),
    reward=maybe | numbers,
    context=maybe | texts,
    finish=maybe | texts,
    prompt_ids=maybe | st.lists(st.integers(0, 99), max_size=3).map(tuple),
    token_ids=maybe | st.just((1, 2)),
    sampling=maybe | st.just({"temperature": 0.5}),
    policy=maybe | texts,
    usage=maybe | st.just({"prompt": 3}),
)
episodes = st.builds(
    lambda said, **fields: Episode(
        id="e", task="t", turns=tuple(Turn(**{**_fields(t), "id": f"e/{i}"}) for i, t in enumerate(said)), **fields
    ),
    st.lists(turns, max_size=3),
    reward=maybe | numbers,
    agent_rewards=st.dictionaries(names, maybe | numbers, max_size=2),
    group=maybe | st.integers(0, 9),
    env=maybe | texts,
    env_args=maybe | st.just({"length": 3}),
    seed=maybe | st.integers(0, 2**40),
    sample=maybe | st.just((0, 1, "rep", 2)),
    end=st.sampled_from(["done", "truncated", "failed:env"]),
    error=maybe | texts,
    counterfactuals=st.lists(
        st.builds(Counterfactual, silenced=st.lists(names, max_size=2).map(tuple), reward=maybe | numbers), max_size=2
    ).map(tuple),
)


def _fields(said: Turn) -> dict[str, Any]:
    return {name: getattr(said, name) for name in Turn.__dataclass_fields__}


@given(episodes)
def test_any_episode_survives_a_round_trip(episode: Episode) -> None:
    assert episode_from_json(json.loads(episode_line(episode))) == episode


def test_prompts_are_unrolled_from_what_came_after() -> None:
    first = {"id": "a", "agent": "s", "text": "x", "prompt_ids": [1, 2], "token_ids": [3]}
    second = {"id": "b", "agent": "s", "text": "y", "prompt_ids": [4], "prompt_after": "a", "token_ids": [5]}
    third = {"id": "c", "agent": "s", "text": "z", "prompt_ids": [6], "prompt_after": "b", "token_ids": [7]}
    episode = episode_from_json(changed(turns=[first, second, third]))
    assert [episode.prompt(t) for t in range(3)] == [(1, 2), (1, 2, 3, 4), (1, 2, 3, 4, 5, 6)]


def test_copies_of_a_turn_must_be_equal() -> None:
    copy = [{"agent": "a", "text": "x", "id": "q/0"}]
    fine = [episode_from_json(changed(id=i, turns=copy)) for i in "ab"]
    check_forest(fine)
    other = episode_from_json(changed(id="c", turns=[{"agent": "a", "text": "y", "id": "q/0"}]))
    with pytest.raises(UserError, match="copies of one turn must be equal"):
        check_forest([*fine, other])
    with pytest.raises(UserError, match="two episodes have the id"):
        check_forest([fine[0], fine[0]])


def test_the_writer_keeps_whole_lines_as_they_come_and_orders_them_at_the_end(tmp_path: Path) -> None:
    first, second = (episode_from_json(changed(id=i)) for i in "ab")
    with EpisodeWriter(tmp_path / "e.jsonl") as writer:
        writer.write(second)
        assert [e.id for e in read_episodes(tmp_path / "e.jsonl")] == ["b"]
        writer.write(first)
        writer.finish(["a", "b", "never played"])
    assert [e.id for e in read_episodes(tmp_path / "e.jsonl")] == ["a", "b"]


def test_a_full_disk_keeps_what_was_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (episode_from_json(changed(id=i)) for i in "ab")
    path = tmp_path / "e.jsonl"
    with EpisodeWriter(path) as writer:
        writer.write(first)
        whole = writer._file

        class Full:
            def write(self, data: bytes) -> int:
                return whole.write(data[:10])

            def __getattr__(self, name: str) -> Any:
                return getattr(whole, name)

        monkeypatch.setattr(writer, "_file", Full())
        with pytest.raises(OutsideError, match="could not write episode 'b'"):
            writer.write(second)
    assert [e.id for e in read_episodes(path)] == ["a"]


def test_unwritable_places_are_outside_failures(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutsideError, match="cannot be written"):
        EpisodeWriter(tmp_path / "file" / "e.jsonl")
    with pytest.raises(OutsideError, match="cannot be written"):
        write_episodes(tmp_path / "file" / "e.jsonl", [])


def test_lone_surrogates_survive_a_file(tmp_path: Path) -> None:
    episode = episode_from_json(changed(turns=[{"agent": "a\ud800", "text": "\udfff \u2603"}]))
    write_episodes(tmp_path / "e.jsonl", [episode])
    assert read_episodes(tmp_path / "e.jsonl") == [episode]


@pytest.mark.parametrize("line", ["[" * 100_000, json.dumps(changed(reward=10**400))])
def test_absurd_lines_are_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(UserError, match="line 1"):
        read_episodes(path)


@pytest.mark.parametrize(
    ("about", "edges"), [({"policy": 3}, []), ({"role": 3}, []), ({"trainable": 1}, []), ({}, 5), ({}, ["pp"])]
)
def test_a_team_of_the_wrong_types_is_named(about: dict[str, Any], edges: Any) -> None:
    team = {"orchestrator": "p", "agents": {"p": about}, "edges": edges}
    with pytest.raises(UserError, match="team"):
        episode_from_json(changed(team=team))
