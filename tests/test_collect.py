"""Collecting episodes: trees whose turns never come, and plays of which none succeeds."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from macredit.agents import Table, make_policy
from macredit.cli.app import main
from macredit.collect import tree
from macredit.compare import compare
from macredit.config import config_of
from macredit.credit import credit
from macredit.envs import make_env
from macredit.episode import write_episodes
from macredit.errors import OutsideError, UserError
from macredit.measure import measure
from macredit.policy import Request, Said
from macredit.rollout import World, play, tasks_of
from macredit.train import train
from macredit.whatif import WhatIf


def tables() -> World:
    """A planner that asks three specialists in turn: seven turns an episode."""
    env = make_env("coalition_v0", preset="majority")
    planner = make_policy({"kind": "scripted", "style": "perfect"}, env=env)
    return World(env, {"planner": planner, **{a: Table(["help", "pass"]) for a in env.team.specialists}})


@pytest.mark.parametrize(
    ("fanout", "said"),
    [
        (
            {99: 2},
            "fanout asks for alternatives at turn 99, and the 2 episodes played have 7 turns, counted from 0; give",
        ),
        ({7: 2, 0: 1, 9: 2}, "alternatives at turn 7 and later, and the 2 episodes played have 7 turns"),
    ],
)
def test_turns_that_never_come_are_named(fanout: Mapping[int, int], said: str) -> None:
    with pytest.raises(UserError, match=said):
        tree(tables(), tasks_of(0, 2), fanout, 8)


def test_the_last_turn_comes() -> None:
    assert len(tree(tables(), tasks_of(0, 2), {6: 2, 99: 2}, 4)) == 4


def test_a_run_whose_turns_never_come_names_its_fanout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--env", "coalition_v0", "--policy", "table:help,pass", "--method", "c3", "--fanout.99", "2"]
    assert main([*words, "--steps", "1", "--evaluate-tasks", "0", "-o", str(tmp_path / "run")]) == 2
    assert "macredit: fanout asks for alternatives at turn 99, and" in capsys.readouterr().err


class Crashes(Table):
    def say(self, batch: Sequence[Request]) -> list[Said]:
        raise ConnectionError("the server is gone")


def test_failed_episodes_do_not_say_how_long_episodes_are() -> None:
    """They end early, and whoever reads them names the failure."""
    world = tables()
    world = World(world.env, {name: Crashes(["help"]) for name in world.policies})
    grown = tree(world, tasks_of(0, 2), {1: 2}, 4)
    assert [e.end for e in grown] == ["failed:policy"] * 2


@pytest.mark.parametrize("what", ["credit", "measure", "compare", "train"])
def test_a_server_that_fails_while_playing_is_no_users_error(what: str, tmp_path: Path) -> None:
    env = make_env("coalition_v0")
    world = World(env, {name: Crashes(["help"]) for name in env.team.names})
    run = config_of({"env": {}, "train": {"steps": 1, "evaluate_tasks": 0}})
    asked: dict[str, Callable[[], object]] = {
        "credit": lambda: credit(play(world, tasks_of(0, 2)), "rloo"),
        "measure": lambda: measure(WhatIf(play(world, tasks_of(0, 2)))),
        "compare": lambda: compare(world, ["grpo"], seeds=1, budget=8),
        "train": lambda: train(world, run, tmp_path / "run"),
    }
    with pytest.raises(
        OutsideError, match=r"failed \(\d+ in the policy; the first: ConnectionError: the server is gone\)"
    ):
        asked[what]()


def test_commands_on_failed_episodes_end_with_status_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = make_env("coalition_v0")
    world = World(env, {name: Crashes(["help"]) for name in env.team.names})
    file, out = str(tmp_path / "e.jsonl"), str(tmp_path / "r.html")
    write_episodes(file, play(world, tasks_of(0, 2)))
    for words in (["credit", file, "--method", "grpo"], ["measure", file, "-o", out], ["report", file, "-o", out]):
        assert main(words) == 3
        assert "macredit: all of 2 episodes failed (2 in the policy" in capsys.readouterr().err
