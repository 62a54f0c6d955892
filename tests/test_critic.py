"""Critics in numpy: the table, moves, critics of a team, cross-fitting, and what they save."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from macredit.episode import Episode, episode_from_json
from macredit.errors import UserError
from macredit.learn.critic import MEMORY, TableCritic, quality
from macredit.learn.team_critic import CrossFit, TeamCritic
from macredit.moves import Move, moves_of
from macredit.rows import rows_of


def move(text: str, agent: str = "a", before: str = "", task: str = "t", prompt: tuple[int, ...] | None = None) -> Move:
    return Move(task, agent, agent, before, text, prompt, None)


def played(name: str, reward: float | None, *said: tuple[str, str], task: str = "t", **more: Any) -> Episode:
    turns = [{"agent": agent, "text": text} for agent, text in said]
    return episode_from_json({"id": name, "task": task, "reward": reward, "turns": turns, **more})


def fitted(moves: Sequence[Move], returns: Sequence[float], weight: Sequence[float] | None = None) -> TableCritic:
    critic = TableCritic()
    critic.fit(moves, np.array(returns), np.ones(len(moves)) if weight is None else np.array(weight))
    return critic


def test_finer_means_are_shrunk_towards_coarser_ones() -> None:
    critic = fitted([move("help"), move("help"), move("pass"), move("hm", agent="b")], [1.0, 1.0, 0.0, 0.0])
    # everything ½; a: (2 + 2·½)/(3 + 2) = .6; then "help" four times: (2 + 2q)/(2 + 2) = .8, .9, .95, .975
    assert critic.predict([move("help")])[0] == pytest.approx(0.975)
    # "pass", one return of 0, four times: q' = 2q/3: .6 · (2/3)^4
    assert critic.predict([move("pass")])[0] == pytest.approx(0.6 * (2 / 3) ** 4)
    # unseen: what the coarser levels know
    np.testing.assert_allclose(critic.predict([move("new"), move("new", agent="c")]), [0.6, 0.5])
    # after another transcript: the message and its prompt alone, (2 + 2q)/(2 + 2) twice
    assert critic.predict([move("help", before="other")])[0] == pytest.approx(0.9)
    # to another prompt: the message alone
    assert critic.predict([move("help", prompt=(1, 2))])[0] == pytest.approx(0.8)


def test_a_mean_of_several_episodes_counts_as_often() -> None:
    once = fitted([move("x")] * 4 + [move("y")], [1, 0, 0, 0, 1])
    weighed = fitted([move("x"), move("y")], [0.25, 1.0], [4.0, 1.0])
    np.testing.assert_allclose(once.predict([move("x"), move("y")]), weighed.predict([move("x"), move("y")]))


def test_nothing_is_known_before_the_first_fit() -> None:
    assert np.isnan(TableCritic().predict([move("x")])).all()
    assert TableCritic().predict([]).shape == (0,)


def test_old_returns_fade_and_are_forgotten() -> None:
    critic = fitted([move("x")], [1.0])
    critic.fit([move("x")], np.array([0.0]), np.ones(1))
    # one return of 1 that counts .9, one of 0 that counts 1: the mean of everything is .9 / 1.9
    assert critic.predict([move("new", agent="b")])[0] == pytest.approx(MEMORY / (1 + MEMORY))
    for n in range(200):
        critic.fit([move(f"m{n}")], np.array([0.5]), np.ones(1))
    # a key of one episode stays while 0.9^n ≥ 0.05, that is 29 fits, four keys each, and two for everything and a
    assert len(critic.state().tensors["keys"]) == 29 * 4 + 2


def test_quality_is_that_of_predictions() -> None:
    returns, weight = np.array([1.0, 0.0]), np.array([1.0, 3.0])
    # errors 0 and −½: loss ¾ · ¼; Var r = 3/16, Var(r − q) = ¾ · ¼ · ¼ = 3/64
    shown = quality(np.array([1.0, 0.5]), returns, weight)
    assert shown == {"loss": pytest.approx(3 / 16), "explained_variance": pytest.approx(0.75)}
    assert quality(np.array([np.nan, 0.5]), np.ones(2), weight)["explained_variance"] is None
    critic = TableCritic()
    assert critic.fit([move("x")], np.array([2.0]), np.ones(1))["loss"] == 4.0
    assert critic.fit([move("x")], np.array([2.0]), np.ones(1))["loss"] == 0.0


def test_moves_know_what_was_said_before_and_by_whom() -> None:
    rows = rows_of([
        played("e0", 1.0, ("a", "x"), ("b", "y")), played("e1", 0.0, ("a", "x"), ("b", "z"), task="u"),
        played("e2", 0.0, ("a", "w"), ("b", "y")), played("e3", 0.0, ("c", "x"), ("b", "y")),
    ])  # fmt: skip
    moves = moves_of(rows, range(8))
    assert [m.text for m in moves] == ["x", "y", "x", "z", "w", "y", "x", "y"]
    assert moves[1].before == moves[3].before
    assert len({moves[1].before, moves[5].before, moves[7].before}) == 3
    assert (moves[2].task, moves[2].agent, moves[2].policy) == ("u", "a", "a")


def test_a_teams_critic_learns_from_what_counts_alone() -> None:
    rows = rows_of([
        played("e0", 1.0, ("a", "x"), ("b", "y")), played("e1", None, ("a", "x")),
        played("e2", 9.0, ("a", "x"), end="failed:tool"), played("e3", 0.0, ("a", ""), ("b", "y")),
    ])  # fmt: skip
    critic = TeamCritic({})
    shown = critic.fit(rows)
    assert {name: round(q["loss"] or 0.0, 9) for name, q in shown.items()} == {"a": 1.0, "b": 0.5}
    values = critic.predict(moves_of(rows, [0, 1]))
    assert values[0] == 1.0
    assert 0 < values[1] < 1
    assert np.isnan(critic.predict([move("x", agent="c")])).all()


def test_a_saved_critic_goes_on_bit_for_bit(tmp_path: Path) -> None:
    episodes = [
        played(f"e{i}", float(i % 3), ("a", f"x{i % 4}"), ("b", f"y{i % 5}"), task=f"t{i % 2}") for i in range(9)
    ]
    rows = rows_of(episodes)
    critic, again = TeamCritic({}), TeamCritic({})
    critic.fit(rows)
    critic.save(tmp_path)
    again.load(tmp_path)
    assert again.saw(episodes)
    assert not again.saw(episodes[:-1])
    for one in (critic, again):
        one.fit(rows_of(episodes[:5]))
    moves = moves_of(rows, range(len(rows)))
    np.testing.assert_array_equal(critic.predict(moves), again.predict(moves))
    (tmp_path / "two").mkdir()
    critic.save(tmp_path / "one")
    again.save(tmp_path / "two")
    for name in ("critic.safetensors", "critic.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    with pytest.raises(UserError, match="holds no critic"):
        TeamCritic({}).load(tmp_path / "none")


def kept(folder: Path) -> TeamCritic:
    """A critic of two policies, saved; the name of one begins as the other's."""
    critic = TeamCritic({})
    critic.fit(rows_of([played("e", 1.0, ("a", "x"), ("a/z", "y"))]))
    critic.save(folder)
    return critic


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"a/keys": np.zeros((3, 6), np.int64)}, r"its 'a/keys' is int64 of shape \[3, 6\]\); expected int64 of"),
        ({"a/total": np.zeros(5)}, r"its 'a/total' is float64 of shape \[5\]\); expected float64 of shape \[6\]"),
        ({"a/count": np.zeros(6, np.int64)}, r"its 'a/count' is int64 of shape \[6\]\); expected float64 of"),
        ({"a/keys": np.array(3)}, r"its 'a/keys' is int64 of shape \[\]"),
        ({"a/z/total": np.full(6, np.nan)}, "its 'a/z/total' has values that are not finite"),
        ({"a/count": None, "x/y": np.zeros(1)}, "it lacks 'a/count'"),
        ({"a/count": None}, "it holds 5 tensors"),
        ({"x": np.zeros(1)}, "it holds 7 tensors"),
    ],
)
def test_other_tensors_than_a_critics(change: dict[str, Any], wrong: str, tmp_path: Path) -> None:
    moves = [move("x"), move("y", agent="a/z")]
    critic = kept(tmp_path)
    before = critic.predict(moves)
    tensors = {**load_file(tmp_path / "critic.safetensors"), **change}
    save_file({name: t for name, t in tensors.items() if t is not None}, tmp_path / "critic.safetensors")
    with pytest.raises(UserError, match=rf"critic.safetensors is damaged \({wrong}"):
        critic.load(tmp_path)
    np.testing.assert_array_equal(critic.predict(moves), before)


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ("[]", "its content is a list"),
        ("{}", "its content has no last"),
        ('{"last": 3, "critics": {}}', "its last is 3"),
        ('{"last": "", "critics": []}', "its critics is a list"),
        ('{"last": "", "critics": {"a": 3}, "tensors": 6}', "its critics/a is 3"),
        ('{"last": "", "critics": {"a": {"scalars": {}}}, "tensors": 6}', "its critics/a has no identity"),
        ('{"last": "", "critics": {}, "tensors": 6}', "its critics/a is null"),
    ],
)
def test_json_that_is_no_critic(content: str, wrong: str, tmp_path: Path) -> None:
    critic = kept(tmp_path)
    (tmp_path / "critic.json").write_text(content)
    with pytest.raises(UserError, match=rf"critic.json is damaged \({wrong}"):
        critic.load(tmp_path)


def test_policies_whose_names_begin_alike_keep_critics_apart(tmp_path: Path) -> None:
    critic, again = TeamCritic({}), TeamCritic({})
    critic.fit(rows_of([played("e", 1.0, ("a", "x"), ("a/z", "y")), played("f", 0.0, ("a", "w"), ("a/z", "y"))]))
    critic.save(tmp_path)
    again.load(tmp_path)
    moves = [move("x"), move("y", agent="a/z"), move("y")]
    np.testing.assert_array_equal(again.predict(moves), critic.predict(moves))


def test_cross_fitting_never_shows_a_task_its_own_returns() -> None:
    def record(first: float) -> list[Episode]:
        rewards = {"t0": [first, 0.0], "t1": [1.0, 0.0], "t2": [0.5, 0.5]}
        return [
            played(f"{task}-{i}", reward, ("a", "xy"[i]), task=task)
            for task, both in rewards.items() for i, reward in enumerate(both)
        ]  # fmt: skip

    rows, changed = rows_of(record(1.0)), rows_of(record(-7.0))
    moves = moves_of(rows, range(len(rows)))
    one, two = CrossFit(rows, {}).predict(moves), CrossFit(changed, {}).predict(moves)
    np.testing.assert_array_equal(one[:2], two[:2])
    assert (one[2:] != two[2:]).all()
    with pytest.raises(UserError, match="this one is of 1"):
        CrossFit(rows_of(record(1.0)[:2]), {})
