"""`macredit value`: tables, commands, logs, structures, pictures, and what bad input gets."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from macredit.cli import main
from macredit.progress import compiling
from macredit.values.log import read_log

GAME = {"players": ["a", "b", "c"], "worths": {"": 0, "a": 1, "b": 1, "c": 0, "a,b": 3, "a,c": 1, "b,c": 1, "a,b,c": 4}}
PLAYERS = "planner,coder,tester,critic"
SCORE = """
import json, random
asked = json.loads(input())
there = set(asked["coalition"])
chance = 0.05 + 0.3 * ("planner" in there) + 0.4 * ({"planner", "coder"} <= there)
chance += 0.2 * bool({"tester", "critic"} & there)
print(int(random.Random(asked["seed"]).random() < chance))
"""
# Shapley: planner 0.3 + 0.4/2, coder 0.4/2, tester and critic share 0.2
TRUTH = [0.5, 0.2, 0.1, 0.1]


@pytest.fixture
def game(tmp_path: Path) -> Path:
    path = tmp_path / "game.json"
    path.write_text(json.dumps(GAME))
    return path


@pytest.fixture
def command(tmp_path: Path) -> str:
    (tmp_path / "score.py").write_text(SCORE)
    return f"{sys.executable} -S {tmp_path / 'score.py'} {{coalition}}"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["value", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], status: int, *arguments: str) -> str:
    assert main(["value", *arguments]) == status
    out, err = capsys.readouterr()
    assert out == ""
    return " ".join(err.split())


def test_every_index_of_a_table(capsys: pytest.CaptureFixture[str], game: Path) -> None:
    names = "shapley,banzhaf,loo,loi,beta:1:1,least-core,nucleolus,sii,k-sii,stii,fsii,bii,moebius"
    got = printed(capsys, str(game), "--index", names)
    assert list(got["values"]) == names.split(",")
    assert got["players"] == ["a", "b", "c"]
    assert (got["evaluations"], got["method"]) == (8, "exact")
    values = got["values"]
    # c adds 1 to {a, b} alone: a third of the orders
    np.testing.assert_allclose(values["shapley"], [11 / 6, 11 / 6, 1 / 3])
    np.testing.assert_allclose(values["beta:1:1"], values["shapley"])
    assert (values["loo"], values["loi"]) == ([3, 3, 1], [1, 1, 0])
    assert np.shape(values["sii"]) == (3, 3)
    assert values["moebius"] == [0, 1, 1, 1, 0, 0, 0, 1]
    assert got["labels"]["moebius"][3] == "{a, b}"
    assert sum(values["nucleolus"]) == pytest.approx(4)
    assert not np.any(got["stderr"]["shapley"])
    assert got["core"]["excess"] < 0
    assert "nucleolus" in got["core"]["inside"]


def test_structures(capsys: pytest.CaptureFixture[str], game: Path, tmp_path: Path) -> None:
    file = tmp_path / "structure.json"
    for structure, names in (
        ({"edges": [["a", "b"], ["b", "c"]]}, ("myerson", "position")),
        ({"unions": [["a", "b"], ["c"]]}, ("owen", "owen-banzhaf")),
        ({"precedence": [["a", "b"], ["a", "c"]]}, ("precedence",)),
    ):
        file.write_text(json.dumps(structure))
        got = printed(capsys, str(game), "--structure", str(file), "--index", ",".join(names))
        assert set(got["values"]) == set(names)
        if "position" in names:
            assert got["labels"]["position"] == ["a–b", "b–c"]
    assert "needs a structure with 'edges'" in refused(capsys, 2, str(game), "--index", "myerson")
    said = refused(capsys, 2, str(game), "--index", "loo", "--structure", str(file))
    assert "--structure was given, and none of loo uses it" in said
    got = printed(capsys, str(game), "--index", "weighted,shapley", "--weights", "a=1,b=1,c=1")
    np.testing.assert_allclose(got["values"]["weighted"], got["values"]["shapley"])
    assert "no weight was given for b, c" in refused(capsys, 2, str(game), "--index", "weighted", "--weights", "a=1")


def test_players_can_be_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.save(tmp_path / "game.npy", [0.0, 1, 1, 3])
    got = printed(capsys, str(tmp_path / "game.npy"), "--players", "x,y")
    assert got["players"] == ["x", "y"]
    assert "3 players were named" in refused(capsys, 2, str(tmp_path / "game.npy"), "--players", "x,y,z")


def test_a_scoring_command_is_measured_logged_and_read_again(
    capsys: pytest.CaptureFixture[str], command: str, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    asked = ("--game", command, "--players", PLAYERS, "--budget", "60", "--log", str(log))
    got = printed(capsys, *asked, "--workers", "4")
    assert (got["evaluations"], got["distinct"], got["method"]) == (60, 16, "crossed")
    low, high = np.array(got["intervals"]["shapley"]).T
    assert ((low <= TRUTH) & (high >= TRUTH)).all()
    lines = log.read_text()
    assert len(lines.splitlines()) == 61
    again = printed(capsys, *asked)
    assert again == got
    assert log.read_text() == lines
    logged = printed(capsys, "--log", str(log), "--index", "shapley,sii,prenucleolus")
    np.testing.assert_allclose(logged["values"]["shapley"], got["values"]["shapley"])
    np.testing.assert_allclose(logged["stderr"]["shapley"], got["stderr"]["shapley"])
    assert logged["stderr"]["prenucleolus"] == [None] * 4
    assert main(["value", *asked]) == 0
    shown = capsys.readouterr()
    assert "±" in shown.out
    assert "60 evaluations of 16 coalitions; on 0/1 scores expect standard errors near" in shown.err


def test_the_result_does_not_depend_on_workers(capsys: pytest.CaptureFixture[str], command: str) -> None:
    asked = ("--game", command, "--players", "planner,coder", "--replicates", "5")
    assert printed(capsys, *asked, "--workers", "3") == printed(capsys, *asked)


def test_a_killed_run_goes_on(capsys: pytest.CaptureFixture[str], command: str, tmp_path: Path) -> None:
    whole, part = tmp_path / "whole.jsonl", tmp_path / "part.jsonl"
    asked = ("--game", command, "--players", "planner,coder", "--budget", "12", "--log")
    want = printed(capsys, *asked, str(whole))
    part.write_bytes(whole.read_bytes()[:-9])
    assert main(["value", *asked, str(part), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == want
    assert "warning: " in err
    assert "cut off by a killed run; left out" in " ".join(err.split())
    assert sorted(part.read_text().splitlines()) == sorted(whole.read_text().splitlines())


def test_an_interrupt_ends_the_commands_and_keeps_the_log(tmp_path: Path) -> None:
    log, code = tmp_path / "log.jsonl", 'import time; time.sleep(0.2); print(1); open("late", "w")'
    command = [sys.executable, "-m", "macredit.cli", "value", "--game", f"{sys.executable} -S -c '{code}'"]
    command += ["--players", "a,b,c,d", "--budget", "900", "--workers", "2", "--log", str(log)]
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a background job may have been told to ignore it
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=heeds)
    while not log.exists() or log.read_bytes().count(b"\n") < 4:
        assert run.poll() is None
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=10)
    assert run.returncode == 130
    (tmp_path / "late").unlink()
    time.sleep(0.4)
    assert not (tmp_path / "late").exists()
    assert len(read_log(log).answers) >= 3


def test_the_price_comes_before_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, 2, "--game", "false", "--players", PLAYERS)
    # (Σ_S sqrt(a_S))² / 4 = 4.64; · 0.2 / 0.0004 = 2,322
    assert "nothing was run" in said
    assert "2,322 for 0.02" in said


def test_a_command_that_is_deterministic(capsys: pytest.CaptureFixture[str]) -> None:
    command = f"{sys.executable} -S -c 'import sys; print(len(sys.argv[1]))' {{coalition}}"
    got = printed(capsys, "--game", command, "--players", "x,yy", "--deterministic")
    # worths 0, 1, 2, 4 ("x,yy")
    assert got["values"]["shapley"] == [1.5, 2.5]
    assert (got["stderr"]["shapley"], got["evaluations"], got["method"]) == ([0, 0], 4, "exact")


def test_a_structure_needs_few_coalitions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "line.json"
    names = [f"p{i}" for i in range(9)]
    file.write_text(json.dumps({"edges": list(itertools.pairwise(names))}))
    command = f"{sys.executable} -S -c 'import json; print(len(json.loads(input())[\"coalition\"]))'"
    asked = ("--game", command, "--players", ",".join(names), "--deterministic", "--workers", "2")
    got = printed(capsys, *asked, "--structure", str(file), "--index", "myerson")
    # the connected coalitions of a line of 9: 9 · 10 / 2, and the empty one
    assert got["evaluations"] == 46
    np.testing.assert_allclose(got["values"]["myerson"], 1)


def test_fewer_evaluations_than_coalitions(capsys: pytest.CaptureFixture[str]) -> None:
    command = f"{sys.executable} -S -c 'import json; print(len(json.loads(input())[\"coalition\"]))'"
    asked = ("--game", command, "--players", "a,b,c,d,e,f", "--budget", "24", "--deterministic")
    got = printed(capsys, *asked, "--index", "shapley")
    np.testing.assert_allclose(got["values"]["shapley"], 1, atol=1e-6)
    assert got["evaluations"] <= 24
    assert "ask for 'shapley' alone" in refused(capsys, 2, *asked, "--index", "shapley,banzhaf")


def test_who_waits_for_a_compiler_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = numba.njit(lambda x: x + 1), numba.njit(lambda x: x + 2)
    with compiling():
        assert one(two(1)) == 4
    assert capsys.readouterr().err == "compiling kernels, once for this installation\n"
    with compiling():
        one(1)  # is compiled
    three = numba.njit(lambda x: x + 3)
    assert three(1) == 4  # nobody listens any more
    assert capsys.readouterr().err == ""


def test_failures_outside_keep_what_was_scored(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log, broken = tmp_path / "log.jsonl", tmp_path / "broken"
    broken.touch()
    code = f'import os, sys; print(1 if sys.argv[1] != "a,b" or not os.path.exists("{broken}") else "oops")'
    asked = ("--game", f"{sys.executable} -S -c '{code}' {{coalition}}", "--players", "a,b", "--deterministic")
    said = refused(capsys, 3, *asked, "--log", str(log))
    assert "the score of {a, b} by" in said
    assert "printed 'oops'" in said
    assert "3 scores are kept in" in said
    broken.unlink()
    assert printed(capsys, *asked, "--log", str(log))["values"]["shapley"] == [0, 0]
    broken.touch()
    assert "--log FILE keeps them" in refused(capsys, 3, *asked)


@pytest.mark.parametrize("form", ["svg", "png", "html"])
def test_pictures(game: Path, tmp_path: Path, form: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"picture.{form}"
    assert main(["value", str(game), "--index", "shapley,sii", "--plot", str(path)]) == 0
    begins = {"svg": b"<?xml", "png": b"\x89PNG", "html": b"<!doctype html>"}[form]
    assert path.read_bytes().startswith(begins)
    if form == "html":
        assert "shapley: a 1.83" in path.read_text()


def test_pictures_without_matplotlib(
    capsys: pytest.CaptureFixture[str], game: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert 'pip install "macredit[report]"' in refused(capsys, 2, str(game), "--plot", str(tmp_path / "p.svg"))
    assert "unknown form of a picture '.gif'" in refused(capsys, 2, str(game), "--plot", "p.gif")


@pytest.mark.parametrize("name", ["p.bad", "p.svg"])
def test_a_picture_that_cannot_be_drawn_costs_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    asked = ("--game", f"touch {tmp_path / 'ran'}", "--players", "a", "--budget", "2", "--plot", name)
    refused(capsys, 2, *asked)
    assert not (tmp_path / "ran").exists()


def test_the_verdict_on_the_core_allows_for_rounding(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "game.json"
    # additive but for the last digit: 0.1 + 0.2 > 0.3
    path.write_text('{"n":3,"table":[0,0.1,0.2,0.30000000000000004,0.3,0.4,0.5,0.6]}')
    core = printed(capsys, str(path), "--index", "least-core,shapley")["core"]
    assert (core["empty"], core["inside"]) == (False, ["least-core", "shapley"])
    assert main(["value", str(path), "--index", "least-core"]) == 0
    assert "the core is not empty" in capsys.readouterr().err
    # two of three players share 1: each pair must get 1, all get 1, and 3/2 would be needed
    path.write_text('{"n":3,"table":[0,0,0,1,0,1,1,1]}')
    core = printed(capsys, str(path), "--index", "least-core")["core"]
    assert (core["empty"], core["inside"], core["excess"]) == (True, [], pytest.approx(1 / 3))


def test_a_file_that_is_no_log_is_left_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text('{"my": "precious config"}')
    asked = ("--game", "echo 1", "--players", "a", "--budget", "2", "--log", str(path))
    assert "p.json: is no log of this game; give a file that does not exist yet" in refused(capsys, 2, *asked)
    assert path.read_text() == '{"my": "precious config"}'


def test_forty_players(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    players, log = ",".join(f"p{i}" for i in range(40)), tmp_path / "log.jsonl"
    asked = ("--game", "echo 1", "--players", players, "--workers", "4", "--log", str(log))
    assert printed(capsys, *asked, "--index", "loo", "--deterministic")["values"]["loo"] == [0] * 40
    said = refused(capsys, 2, "--log", str(log))
    assert "41 coalitions have a score, and 'shapley' of 40 players is read from 1,099,511,627,776" in said
    assert "1,099,511,627,776 evaluations were asked for" in refused(capsys, 2, *asked, "--deterministic")


def test_lone_surrogates_are_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "game.json"
    path.write_text(r'{"players":["\ud800"],"worths":{"":0,"\ud800":1}}')
    assert main(["value", str(path)]) == 0
    assert r"\xd800" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no game was given"),
        (("FILE", "--game", "cat"), "a file and --game were given"),
        (("FILE", "--budget", "9"), "a file of worths costs nothing to read; leave out --budget, which"),
        (("FILE", "--log", "x"), "a file of worths costs nothing to read; leave out --log"),
        (("FILE", "--index", "shaply"), "Did you mean 'shapley'"),
        (("FILE", "--index", "beta:x"), "expected two numbers, such as beta:16:1"),
        (("FILE", "--index", "loo:3"), "unknown index 'loo:3'"),
        (("FILE", "--weights", "a:1"), "expected NAME=NUMBER"),
        (("FILE", "--weights", "a=1,a=2,b=1", "--index", "weighted"), "expected one for each player, not two"),
        (("FILE", "--weights", "a=1,b=1,c=1"), "--weights was given, but the indices are shapley"),
        (("--log", "x", "--budget", "9", "--players", "a"), "leave out --players, --budget, or give --game"),
        (("--game", "cat", "--players", "\udcff,b"), "which is not UTF-8; give other names"),
        (("--game", "cat", "--players", "a", "--deterministic", "--replicates", "3"), "leave out --replicates"),
        (("--game", "cat", "--players", "a", "--deterministic", "--accuracy", "1"), "--deterministic scores each"),
        (("--game", "cat", "--players", "a", "--accuracy", "1e-300"), "no number of evaluations buys that"),
        (("--game", "cat", "--players", "a", "--accuracy", "1e-9"), "expected at most 16,777,216: give --budget N"),
        (("--game", "cat a\0b", "--players", "a", "--budget", "9"), "'cat' cannot be run"),
        (("--game", "cat"), "give --players a,b,c"),
        (("--game", "cat", "--players", "a,,b"), "expected different names"),
        (("--game", "cat", "--players", "a,b", "--budget", "3"), "a budget of 3 was given for 'banzhaf'"),
        (("--game", "cat", "--players", "a,b", "--budget", "9", "--accuracy", "1"), "more than one of --budget"),
        (("--game", "cat", "--players", "a,b", "--budget", "-5"), "--budget -5 was given; expected at least 1"),
        (("--game", "cat", "--players", "a,b", "--budget", "9", "--tasks", "0"), "--tasks 0 was given"),
        (("--game", "cat", "--players", "a,b", "--accuracy", "0"), "an accuracy of 0"),
        (("--game", "nonesuch", "--players", "a,b", "--budget", "9"), "'nonesuch' cannot be run"),
        (("--log", "none.jsonl"), "none.jsonl: cannot be read"),
    ],
)
def test_words_that_cannot_be_meant(
    capsys: pytest.CaptureFixture[str], game: Path, arguments: tuple[str, ...], message: str
) -> None:
    words = [str(game) if word == "FILE" else word for word in arguments]
    assert message in refused(capsys, 2, *words)
