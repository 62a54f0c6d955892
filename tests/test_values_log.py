"""The evaluation log: torn lines, other games, malformed lines, and resuming."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from macredit.errors import OutsideError, UserError
from macredit.values.log import LogFile, Question, read_log

PLAYERS = ("a", "b")
SETTINGS = {"game": "score {coalition}"}
TABLE = [0.0, 1.0, 2.0, 5.0]
QUESTIONS = [Question(tuple(p for i, p in enumerate(PLAYERS) if mask >> i & 1), 0, 7) for mask in range(4)]


def written(path: Path, repeats: int = 1) -> Path:
    with LogFile(path, PLAYERS, SETTINGS) as log:
        for task in range(repeats):
            for question, worth in zip(QUESTIONS, TABLE, strict=True):
                log.append(question._replace(task=task), worth + 0.1 * task)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    log = read_log(written(tmp_path / "deep" / "log.jsonl"))
    assert (log.players, log.settings) == (PLAYERS, SETTINGS)
    assert list(log.answers) == QUESTIONS
    np.testing.assert_array_equal(log.coalitions(), [[0, 0], [1, 0], [0, 1], [1, 1]])
    np.testing.assert_array_equal(log.scores(), TABLE)


def test_a_torn_last_line_is_dropped_and_written_over(tmp_path: Path) -> None:
    path = written(tmp_path / "log.jsonl")
    whole = path.read_bytes()
    for cut in range(1, len(whole.splitlines(keepends=True)[-1])):
        path.write_bytes(whole[:-cut])
        with pytest.warns(UserWarning, match=r"line 5: cut off by a killed run"):
            log = LogFile(path, PLAYERS, SETTINGS)
        with log:
            assert len(log.known) == 3
            log.append(QUESTIONS[3], TABLE[3])
        assert path.read_bytes() == whole


def test_a_header_that_was_cut_off_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    header = written(path).read_bytes().splitlines()[0]
    for torn in (header[:1], header[:30], header):
        path.write_bytes(torn)
        with pytest.warns(UserWarning, match="line 1: cut off"):
            log = LogFile(path, PLAYERS, SETTINGS)
        with log:
            log.append(QUESTIONS[0], 1.0)
        assert read_log(path).scores().tolist() == [1.0]


@pytest.mark.parametrize("text", ['{"my": "precious config"}', '{"evaluations_of": "5', "x", "two\nlines"])
def test_a_file_that_is_no_log_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"config.json(: is no log of this game|, line 1: not JSON)"):
        LogFile(path, PLAYERS, SETTINGS)
    with pytest.raises(UserError, match=r"config.json(: has no whole line|, line 1: not JSON)"):
        read_log(path)
    assert path.read_text() == text


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")
def test_one_run_at_a_time_writes_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with LogFile(path, PLAYERS, SETTINGS) as log:
        log.append(QUESTIONS[0], 1.0)
        with pytest.raises(UserError, match="another run is writing this log"):
            LogFile(path, PLAYERS, SETTINGS)
        assert read_log(path).scores().tolist() == [1.0]
    LogFile(path, PLAYERS, SETTINGS).__exit__(None, None, None)


def test_bytes_that_are_no_text_come_back(tmp_path: Path) -> None:
    path, names, command = tmp_path / "log.jsonl", ("\udcff", "\ud800ü"), {"game": "score \udcfe"}
    with LogFile(path, names, command) as log:
        log.append(Question(names, 0, 0), 1.0)
    found = read_log(path)
    assert (found.players, found.settings, list(found.answers)) == (names, command, [Question(names, 0, 0)])


def test_a_resumed_log_goes_on(tmp_path: Path) -> None:
    path = written(tmp_path / "log.jsonl")
    with LogFile(path, PLAYERS, SETTINGS) as log:
        assert log.known[QUESTIONS[3]] == 5.0
        log.append(QUESTIONS[3], 5.0)
        log.append(QUESTIONS[3]._replace(task=1), 6.0)
    assert len(path.read_text().splitlines()) == 6


@pytest.mark.parametrize(
    ("players", "settings", "message"),
    [
        (("a", "c"), SETTINGS, "is the log of another game .its players are a, b, not a, c."),
        (PLAYERS, {"game": "other"}, "is the log of another game .its game is 'score {coalition}', not 'other'."),
    ],
)
def test_a_log_of_another_game(
    tmp_path: Path, players: tuple[str, ...], settings: dict[str, str], message: str
) -> None:
    path = written(tmp_path / "log.jsonl")
    before = path.read_bytes()
    with pytest.raises(UserError, match=message):
        LogFile(path, players, settings)
    assert path.read_bytes() == before


ROW = {"coalition": ["a"], "task": 9, "seed": 0, "score": 1.0}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 6: not JSON"),
        ("[1]", r"line 6: \[1\] was given; expected coalition, task, seed, score"),
        (json.dumps({**ROW, "more": 1}), "line 6: coalition, task, seed, score, more was given"),
        (json.dumps({**ROW, "task": "x"}), "line 6: 'task' is 'x'"),
        (json.dumps({**ROW, "score": True}), "line 6: 'score' is True"),
        (json.dumps({**ROW, "score": float("nan")}), "line 6: the score is nan"),
        (json.dumps({**ROW, "score": 10**400}), "line 6: the score is 1000000000000000000000000000000000000000;"),
        (json.dumps({**ROW, "task": 10**30}), "line 6: the task is 1000000000000000000000000000000"),
        (json.dumps({**ROW, "task": -1}), "line 6: the task is -1"),
        (json.dumps({**ROW, "coalition": ["a", "a"]}), "line 6: the coalition is"),
        (json.dumps({**ROW, "coalition": ["z"]}), "line 6: the coalition is"),
        (json.dumps({**ROW, "task": 0, "seed": 7}) + "\n" + json.dumps({**ROW, "task": 1}), None),
        (json.dumps({**ROW, "task": 0, "seed": 7, "score": 3}), "line 6: an earlier line scores the same evaluation"),
    ],
)
def test_malformed_lines(tmp_path: Path, line: str, message: str | None) -> None:
    path = written(tmp_path / "log.jsonl")
    path.write_text(path.read_text() + line + "\n")
    if message is None:
        assert len(read_log(path).answers) == 5
        return
    with pytest.raises(UserError, match=message):
        read_log(path)


def test_missing_empty_and_edited_logs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_log(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(UserError, match="is empty"):
        read_log(tmp_path / "empty.jsonl")
    path = written(tmp_path / "log.jsonl")
    path.write_text(path.read_text().replace('"players": ["a", "b"]', '"players": ["a", "c"]', 1))
    with pytest.raises(UserError, match="line 1: the header was changed by hand"):
        read_log(path)


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a folder"):
        LogFile(tmp_path, PLAYERS, SETTINGS)
    with pytest.raises(OutsideError, match="the header could not be written"):
        LogFile(tmp_path / "file" / "log.jsonl", PLAYERS, SETTINGS)
