"""Questions with right answers: the user's own file, and the named ways to score an answer."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from macredit.errors import UserError, unknown
from macredit.own import own

Task = Mapping[str, Any]
"""``question``, ``answer``; perhaps ``scorer`` and ``facts``."""
Scorer = Callable[[str, Task], float]
"""(what was answered, the task) → reward."""


def final(text: str) -> str:
    """The answer inside a reply: what follows the last ``Answer:`` on its line, else the first line."""
    marked = re.findall(r"(?i)\banswer:[ \t]*(.*)", text)
    answer: str = marked[-1] if marked else text.strip().partition("\n")[0]
    return answer.strip()


def exact(answer: str, task: Task) -> float:
    """1 if equal, but for case, blanks and a final full stop."""
    return float(_bare(answer) == _bare(task["answer"]))


def contains(answer: str, task: Task) -> float:
    """1 if the right answer stands in it as whole words."""
    return float(re.search(rf"(?<!\w){re.escape(_bare(task['answer']))}(?!\w)", _bare(answer)) is not None)


def number(answer: str, task: Task) -> float:
    """1 if its last number is the right one, to a relative 1e-6."""
    given, right = _numbers(answer), _numbers(task["answer"])
    return float(bool(given and right) and math.isclose(given[-1], right[-1], rel_tol=1e-6, abs_tol=1e-9))


def choice(answer: str, task: Task) -> float:
    """1 if its last capital letter that stands alone is the right one."""
    given = re.findall(r"\b[A-Z]\b", answer)
    return float(given[-1:] == re.findall(r"\b[A-Z]\b", str(task["answer"]).upper())[-1:] != [])


SCORERS: dict[str, Scorer] = {"choice": choice, "contains": contains, "exact": exact, "number": number}


def find_scorer(name: str) -> Scorer:
    """A scorer by name, or the user's own ``module:function`` of (answer, task).

    Raises:
        UserError: no such scorer, with the nearest name.
    """
    if name in SCORERS:
        return SCORERS[name]
    if ":" not in name:
        raise unknown("scorer", name, SCORERS)
    found: Scorer = own("scorer", name, "function of (answer, task)", SCORERS)
    return found


def read_lines(path: str | os.PathLike[str], needed: Mapping[str, type]) -> tuple[Task, ...]:
    """The objects of a JSON Lines file, each with the ``needed`` fields (name → type).

    Raises:
        UserError: the file is missing or empty, or a line is malformed (file, line, field).
    """
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}); expected a JSON Lines file") from None
    found = [_object(line, f"{path}, line {number}", needed) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise UserError(f"{path}: is empty; expected one object with {', '.join(needed)} a line")
    return tuple(found)


def read_tasks(path: str | os.PathLike[str]) -> tuple[Task, ...]:
    """Tasks from a file: ``question`` and ``answer``, perhaps ``scorer`` and ``facts``, one object a line."""
    tasks = read_lines(path, {"question": str, "answer": str})
    for line, task in enumerate(tasks, 1):
        facts = task.get("facts", [])
        if not isinstance(facts, list) or not all(isinstance(fact, str) for fact in facts):
            raise UserError(f"{path}, task {line}: 'facts' is {facts!r}; expected a list of strings")
        if task.get("scorer", "exact") not in SCORERS:  # a data file names no code to run
            raise unknown("scorer", str(task["scorer"]), SCORERS)
    return tasks


def _object(line: str, where: str, needed: Mapping[str, type]) -> Task:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON ({error})") from None
    if not isinstance(data, dict):
        raise UserError(f"{where}: given {line[:60]!r}, expected an object")
    for name, kind in needed.items():
        value = data.get(name)
        if kind is str and isinstance(value, int | float) and not isinstance(value, bool):
            data[name] = value = str(value)
        if not isinstance(value, kind):
            raise UserError(f"{where}, field {name!r}: given {value!r}, expected a {kind.__name__}")
    return data


def _bare(text: Any) -> str:
    return " ".join(str(text).casefold().split()).removesuffix(".")


def _numbers(text: Any) -> list[float]:
    return [float(part) for part in re.findall(r"-?\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", str(text)))]
