"""An external command as a game: asked by arguments and one JSON line, it answers with one number.

``python score.py {coalition}`` runs without a shell; ``{coalition}`` becomes the players that are present, joined by
commas. Standard input gets ``{"coalition": [...], "players": [...], "task": 3, "seed": 77}``; the last line of standard
output that is not empty is the score.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

from macredit.errors import OutsideError, UserError
from macredit.values.log import Question

PLACEHOLDER = "{coalition}"


@dataclass
class CommandGame:
    """Scores of coalitions from a command.

    Raises:
        UserError: the command is empty or has an open quote, players share a name, or a limit that cannot be meant.
    """

    command: str
    players: tuple[str, ...]
    timeout: float = 600.0
    """Seconds one evaluation may take."""
    workers: int = 1
    """Evaluations at a time; the scores do not depend on it."""
    _running: set[subprocess.Popen[str]] = field(default_factory=set, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _over: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            self._words = shlex.split(self.command)
        except ValueError as error:
            raise UserError(f"the command {self.command!r} cannot be split into words ({error}); quote it") from None
        if not self._words:
            raise UserError("the command is empty; expected a program and its arguments, such as 'python score.py'")
        if self.workers < 1:
            raise UserError(f"{self.workers} workers were given; expected at least 1")
        if not 0 < self.timeout < math.inf:
            raise UserError(f"a timeout of {self.timeout} seconds was given; expected a number above 0")

    def scores(self, questions: Sequence[Question], keep: Callable[[Question, float], Any]) -> None:
        """Ask every question; each answer goes to ``keep`` as it comes, in any order, in this thread.

        After a failure nothing new is started; what runs is let finish and kept.

        Raises:
            UserError: the program is not there.
            OutsideError: an evaluation failed, took too long, or printed no number.
        """
        self._over = False
        failure: OutsideError | UserError | None = None
        with ThreadPoolExecutor(self.workers) as pool:
            try:
                asked = {pool.submit(self._ask, question): question for question in questions}
                for done in as_completed(asked):
                    try:
                        score = done.result()
                    except (OutsideError, UserError) as error:
                        failure = failure or error
                        self._over = True
                    else:
                        if score is not None:
                            keep(asked[done], score)
            except BaseException:
                self._stop()
                raise
        if failure is not None:
            raise failure

    def _ask(self, question: Question) -> float | None:
        """The score; None where nothing new is started any more."""
        words = [word.replace(PLACEHOLDER, ",".join(question.coalition)) for word in self._words]
        line = {"coalition": question.coalition, "players": self.players, "task": question.task, "seed": question.seed}
        where = f"the score of {{{', '.join(question.coalition)}}} by {shlex.join(words)!r}"
        process = self._start(words)
        if process is None:
            return None
        with process:
            try:
                out, err = process.communicate(json.dumps(line) + "\n", self.timeout)
            except subprocess.TimeoutExpired:
                _kill(process)
                raise OutsideError(f"{where} took longer than {self.timeout:g} seconds; raise the timeout") from None
            finally:
                with self._lock:
                    self._running.discard(process)
        said = _last_line(err) or _last_line(out)
        printed = f"it printed {said[:200]!r}" if said else "it printed nothing"
        if process.returncode:
            raise OutsideError(f"{where} ended with status {process.returncode}; {printed}")
        return _number(_last_line(out), where)

    def _start(self, words: Sequence[str]) -> subprocess.Popen[str] | None:
        pipe = subprocess.PIPE
        with self._lock:
            if self._over:
                return None
            try:
                process = subprocess.Popen(  # noqa: S603  # the user's own command, never through a shell
                    words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace", start_new_session=True
                )
            except (OSError, ValueError) as error:  # ValueError: a null character in a word
                why = error.strerror if isinstance(error, OSError) else error
                raise UserError(f"{words[0]!r} cannot be run ({why}); expected a program that is installed") from None
            self._running.add(process)
        return process

    def _stop(self) -> None:
        """End everything that runs, with its children."""
        with self._lock:
            self._over = True
            for process in self._running:
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """End a process with its children, and wait for it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        said = f"{text[:200]!r}" if text else "nothing"
        raise OutsideError(f"{where} printed {said}; expected one number on its last line") from None
    if not math.isfinite(number):
        raise OutsideError(f"{where} is {text}; expected a finite number")
    return number
