"""The evaluation log: every score of a game on disk, so that nothing is paid for twice and every index is one reading.

JSON Lines: a header with the players, the settings and their digest, then one evaluation a line, appended as it ends::

    {"evaluations_of": "5f0c…", "players": ["a", "b"], "settings": {"game": "python score.py {coalition}"}}
    {"coalition": ["a"], "task": 3, "seed": 77, "score": 1.0}
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Self

import numpy as np

from macredit.errors import OutsideError, UserError
from macredit.rows import FloatN, IntN
from macredit.values.answers import BoolCN

if sys.platform != "win32":
    import fcntl

MOST_TASKS = 2**63
"""Tasks are numbered from 0 to below this."""


class Question(NamedTuple):
    """One evaluation that can be asked for: the same question has one answer."""

    coalition: tuple[str, ...]
    """Names, in the order of the players."""
    task: int
    seed: int


@dataclass(frozen=True)
class Log:
    """A game's evaluations."""

    players: tuple[str, ...]
    settings: Mapping[str, Any]
    """What made the scores, such as the command; two logs with other settings are of different games."""
    answers: dict[Question, float] = field(default_factory=dict)
    """Question → score, in the order of the file."""

    def coalitions(self) -> BoolCN:
        """bool[E, n]: who was in, one evaluation a row."""
        rows = [[name in question.coalition for name in self.players] for question in self.answers]
        return np.array(rows, np.bool_).reshape(len(rows), len(self.players))

    def tasks(self) -> IntN:
        """int[E]."""
        return np.array([question.task for question in self.answers], np.int64)

    def scores(self) -> FloatN:
        """float[E]."""
        return np.array(list(self.answers.values()), np.float64)


class LogFile:
    """A log that is written while evaluations end: whole lines, each on the disk before the next is asked for.

    A new file gets its header; an existing one must be of the same game, and its evaluations stand in ``known``. Nobody
    else can write it before it is closed (on Windows nothing prevents that).

    Raises:
        UserError: the file is the log of another game, malformed, or being written by another run.
        OutsideError: it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], players: Sequence[str], settings: Mapping[str, Any]) -> None:
        self.path = Path(path)
        wanted = Log(tuple(players), dict(settings))
        if self.path.is_dir():
            raise UserError(f"{self.path}: is a folder; expected the file of an evaluation log")
        if self.path.suffix.lower() == ".parquet":
            raise UserError(
                f"{self.path}: a table cannot be added to, line by line; log to a .jsonl, then export it (--export)"
            )
        with self._writing("the header"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = self.path.open("ab", buffering=0)
        self.known: dict[Question, float] = {}
        """Question → score of everything in the file."""
        try:
            self._resume(wanted)
        except BaseException:
            self._file.close()
            raise

    def _resume(self, wanted: Log) -> None:
        """Reads what is there, and cuts off what a kill left of a line; a file that is no log stays as it is."""
        with self._writing("the header"):
            _lock(self._file, self.path)
        lines, torn = _lines(self.path)
        header = line_of(header_of(wanted))
        if lines:
            self.known = _read(self.path, lines, wanted).answers
        elif not header.startswith(torn):
            raise UserError(f"{self.path}: is no log of this game; give a file that does not exist yet")
        _warn_of(self.path, lines, torn)
        with self._writing("the header"):
            self._file.truncate(sum(map(len, lines)))
            if not lines:
                self._file.write(header)

    def append(self, question: Question, score: float) -> None:
        """Keep one answer; a question that has one already is left alone."""
        if question in self.known:
            return
        line = line_of({**question._asdict(), "score": score})
        with self._writing(f"the score of {{{', '.join(question.coalition)}}}"):
            end = self._file.seek(0, os.SEEK_END)
            try:
                if self._file.write(line) != len(line):
                    raise OSError(28, "no space left")
            except OSError:
                with contextlib.suppress(OSError):
                    self._file.truncate(end)
                raise
        self.known[question] = score

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    @contextlib.contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutsideError(
                f"{self.path}: {what} could not be written ({error.strerror}); what was there before is kept"
            ) from None


def read_log(path: str | os.PathLike[str]) -> Log:
    """The log in a file, JSON Lines or .parquet; a last line cut off by a killed run is left out with a warning.

    Raises:
        UserError: the file is missing, or a line is malformed: the sentence names the line (a table's row n is line
            n + 1).
    """
    lines, torn = _lines(Path(path))
    if not lines:
        given = "has no whole line" if torn else "is empty"
        raise UserError(f"{path}: {given}; expected an evaluation log that begins with its header")
    log = _read(Path(path), lines, None)
    _warn_of(Path(path), lines, torn)
    return log


def header_of(log: Log) -> dict[str, Any]:
    """The first line: what was played, and a digest that tells whether two logs are of one game."""
    content = json.dumps([log.players, log.settings], sort_keys=True).encode()
    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    return {"evaluations_of": digest, "players": list(log.players), "settings": log.settings}


def line_of(value: Mapping[str, Any]) -> bytes:
    """JSON and a newline."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def _lock(file: IO[bytes], path: Path) -> None:
    """Keeps other runs from writing the file until it is closed."""
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{path}: another run is writing this log; wait for it, or give another file") from None


def _lines(path: Path) -> tuple[list[bytes], bytes]:
    """Whole lines, and what stands behind the last newline; of a table, the lines it was written from."""
    if path.suffix.lower() == ".parquet":
        from macredit.values.log_table import lines_of_parquet

        return lines_of_parquet(path), b""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); expected an evaluation log") from None
    torn = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
    return lines, torn


def _warn_of(path: Path, lines: list[bytes], torn: bytes) -> None:
    if torn:
        warnings.warn(f"{path}, line {len(lines) + 1}: cut off by a killed run; left out", stacklevel=4)


def _read(path: Path, lines: list[bytes], wanted: Log | None) -> Log:
    header = _object(path, 1, lines[0], {"evaluations_of": str, "players": list, "settings": dict})
    log = Log(tuple(map(str, header["players"])), header["settings"])
    if header_of(log)["evaluations_of"] != header["evaluations_of"]:
        raise UserError(f"{path}, line 1: the header was changed by hand; expected players and settings as written")
    if wanted is not None and header_of(log) != header_of(wanted):
        raise UserError(f"{path}: is the log of another game ({_difference(log, wanted)}); give this game its own file")
    fields = {"coalition": list, "task": int, "seed": int, "score": (int, float)}
    place = {name: i for i, name in enumerate(log.players)}
    for number, line in enumerate(lines[1:], start=2):
        row = _object(path, number, line, fields)
        names = row["coalition"]
        if not all(isinstance(name, str) and name in place for name in names) or len(set(names)) != len(names):
            raise UserError(f"{path}, line {number}: the coalition is {names!r}; expected players of the header, once")
        question = Question(tuple(sorted(names, key=place.__getitem__)), row["task"], row["seed"])
        if not 0 <= question.task < MOST_TASKS:
            raise UserError(f"{path}, line {number}: the task is {str(question.task)[:40]}; expected 0 to 2**63 - 1")
        if not abs(row["score"]) <= sys.float_info.max:
            raise UserError(f"{path}, line {number}: the score is {str(row['score'])[:40]}; expected a finite number")
        score = float(row["score"])
        if log.answers.setdefault(question, score) != score:
            raise UserError(f"{path}, line {number}: an earlier line scores the same evaluation differently; keep one")
    return log


def _object(path: Path, number: int, line: bytes, fields: Mapping[str, Any]) -> dict[str, Any]:
    """One line's object with exactly these fields of these types."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}, line {number}: not JSON ({error}); expected one evaluation a line") from None
    if not isinstance(value, dict) or set(value) != set(fields):
        given = ", ".join(value) if isinstance(value, dict) else repr(value)[:40]
        raise UserError(f"{path}, line {number}: {given or 'nothing'} was given; expected {', '.join(fields)}")
    for name, kind in fields.items():
        if not isinstance(value[name], kind) or isinstance(value[name], bool):
            raise UserError(f"{path}, line {number}: {name!r} is {repr(value[name])[:40]}, which is of another type")
    return value


def _difference(log: Log, wanted: Log) -> str:
    if log.players != wanted.players:
        return f"its players are {', '.join(log.players)}, not {', '.join(wanted.players)}"
    names = sorted({*log.settings, *wanted.settings})
    name = next(name for name in names if log.settings.get(name) != wanted.settings.get(name))
    return f"its {name} is {log.settings.get(name)!r}, not {wanted.settings.get(name)!r}"
