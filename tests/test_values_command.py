"""External commands as games: what they are told, what they may answer, how they fail, several at a time."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from macredit.errors import OutsideError, UserError
from macredit.values.command import CommandGame
from macredit.values.log import Question

PLAYERS = ("a", "b")
EMPTY, A, AB = (Question(coalition, 3, 7) for coalition in ((), ("a",), ("a", "b")))
PYTHON = f"{sys.executable} -S -c"


def scores(command: str, *questions: Question, timeout: float = 20, workers: int = 1) -> dict[Question, float]:
    found: dict[Question, float] = {}
    CommandGame(command, PLAYERS, timeout, workers).scores(questions, found.__setitem__)
    return found


def test_the_coalition_goes_in_as_a_word() -> None:
    command = f"{PYTHON} 'import sys; print(sys.argv); print(len(sys.argv[1]), end=chr(10) * 3)' {{coalition}}"
    assert scores(command, EMPTY, A, AB) == {EMPTY: 0, A: 1, AB: 3}


def test_and_as_one_json_line() -> None:
    code = (
        "import json; q = json.loads(input()); print(q['task'] + q['seed'] + len(q['coalition']) + len(q['players']))"
    )
    assert scores(f'{PYTHON} "{code}"', AB) == {AB: 3 + 7 + 2 + 2}


def test_no_shell_reads_the_command(tmp_path: Path) -> None:
    evil = Question((f"$(touch {tmp_path}/made); x",), 0, 0)
    game = CommandGame(f"{PYTHON} 'import sys; print(len(sys.argv))' {{coalition}} ; ls", evil.coalition)
    found: list[float] = []
    game.scores([evil], lambda _, score: found.append(score))
    assert found == [4]  # -c's own name, the coalition as one word, ";" and "ls" as words
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            f"{PYTHON} 'import sys; print(1); sys.exit(\"no key\")' {{coalition}}",
            "ended with status 1; it printed 'no k",
        ),
        (f"{PYTHON} 'print(\"score: 1\")'", "printed 'score: 1'; expected one number on its last line"),
        (f"{PYTHON} pass", "printed nothing; expected one number"),
        (f"{PYTHON} 'print(float(\"nan\"))'", "is nan; expected a finite number"),
        (f"{PYTHON} 'import time; time.sleep(9)'", "took longer than 0.5 seconds"),
        (f"{PYTHON} 'import os; os.kill(os.getpid(), 9)'", "ended with status -9"),
    ],
)
def test_failures_are_one_sentence_that_names_the_coalition(command: str, message: str) -> None:
    with pytest.raises(OutsideError, match=message) as caught:
        scores(command, AB, timeout=0.5 if "sleep" in command else 20)
    assert str(caught.value).startswith("the score of {a, b} by ")


def test_a_hanging_grandchild_ends_too(tmp_path: Path) -> None:
    child = f"import subprocess; subprocess.run(['sleep', '3']); open({str(tmp_path / 'late')!r}, 'w')"
    began = time.monotonic()
    with pytest.raises(OutsideError, match="took longer"):
        scores(f'{PYTHON} "{child}"', A, timeout=0.5)
    assert time.monotonic() - began < 2.5
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("", {}, "the command is empty"),
        ("python 'open", {}, "cannot be split into words"),
        ("nonesuch-program", {}, "'nonesuch-program' cannot be run"),
        ("cat a\0b", {}, "'cat' cannot be run .embedded null byte."),
        ("cat", {"workers": 0}, "0 workers were given"),
        ("cat", {"timeout": 0.0}, "a timeout of 0.0 seconds"),
    ],
)
def test_commands_that_cannot_be_meant(command: str, options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        scores(command, A, **options)  # type: ignore[arg-type]


def test_what_ended_before_a_failure_is_kept() -> None:
    questions = [Question(("a",), task, 0) for task in range(6)]
    code = "import json; t = json.loads(input())['task']; print(t if t != 3 else None)"
    for workers in (1, 3):
        found: dict[Question, float] = {}
        with pytest.raises(OutsideError, match="printed 'None'"):
            CommandGame(f'{PYTHON} "{code}"', PLAYERS, workers=workers).scores(questions, found.__setitem__)
        assert {question.task for question in found} >= {0, 1, 2} - ({2} if workers > 1 else set())


def test_workers_run_at_the_same_time_and_change_nothing() -> None:
    questions = [Question(("a",), task, 0) for task in range(4)]
    code = "import json, time; t = json.loads(input())['task']; time.sleep(0.4); print(t)"
    began = time.monotonic()
    found = scores(f'{PYTHON} "{code}"', *questions, workers=4)
    assert time.monotonic() - began < 1.5
    assert found == {question: question.task for question in questions}
