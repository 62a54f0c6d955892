"""A run's folder: its configuration, the numbers of every step, and checkpoints that are whole or not there.

``config.json`` · ``metrics.jsonl``, a line a step or evaluation · ``checkpoints/step-000010/``, in it ``run.json``, a
folder for each learner and what a critic keeps · ``episodes.jsonl``, the last ones saved, with all replayed outcomes ·
at the end a folder for each trained policy.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from macredit.bounds import is_number
from macredit.episode import write_atomically
from macredit.errors import UserError
from macredit.learn.saved import check_fields, damaged, read_object, shown
from macredit.ledger import Ledger

KEEP = 2
"""Checkpoints kept: the newest, and one before it."""
PART = ".part"
"""The checkpoint in the making."""
_STEP = re.compile(r"step-\d+", re.ASCII)
_WITHOUT = "repair that, or put an empty file there to go on without the numbers so far"


class Kept(Protocol):
    """A part of a run that goes on after a kill: a learner, a critic."""

    def save(self, folder: Path) -> None:
        """Write all that is needed to go on."""

    def load(self, folder: Path) -> None:
        """Go on from what was written."""


class RunFolder:
    """The folder of one run.

    Args:
        path: where it is.
        parts: path inside a checkpoint → what is kept there.
    """

    def __init__(self, path: Path, parts: Mapping[str, Kept]) -> None:
        self.path, self._parts = path, parts

    def begin(self, config: Mapping[str, Any]) -> None:
        """A new run's folder, or one of a run that ended before its first checkpoint.

        Raises:
            UserError: it holds a run.
        """
        if checkpoints(self.path):
            raise UserError(f"{self.path} holds a run already; go on with --resume {self.path}, or give another -o")
        write_atomically(self.path / "config.json", json.dumps(config, indent=1, ensure_ascii=False).encode())
        (self.path / "metrics.jsonl").unlink(missing_ok=True)

    def log(self, row: Mapping[str, Any]) -> None:
        """Add a row of numbers; null for one that is not finite.

        A mean over nothing is none, and k3 overflows for what a policy would never say again; what says that an update
        went wrong stops the run before it comes here (:func:`macredit.learn.learner.check_finite`).
        """
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(_line(row))

    def save(self, step: int, about: Mapping[str, Any]) -> None:
        """A checkpoint, whole or not at all; the oldest go."""
        part = self.path / "checkpoints" / PART
        shutil.rmtree(part, ignore_errors=True)
        for name, kept in self._parts.items():
            kept.save(part / name)
        write_atomically(part / "run.json", json.dumps({"step": step, **about}).encode())
        os.sync()
        part.rename(part.with_name(f"step-{step:06d}"))
        for old in checkpoints(self.path)[:-KEEP]:
            shutil.rmtree(old)

    def load(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Go on from the newest checkpoint; numbers of steps after it are forgotten.

        Returns:
            What :meth:`save` was told besides the parts, with the step, and the rows of numbers up to it.

        Raises:
            UserError: there is no checkpoint, or a file is missing or damaged.
        """
        found = checkpoints(self.path)
        if not found:
            raise UserError(
                f"{self.path} holds no checkpoint to resume from; expected {self.path}/checkpoints/step-…; "
                "begin again without --resume"
            )
        about = _read_about(found[-1])
        metrics = [row for row in read_metrics(self.path) if row["step"] <= about["step"]]
        for name, kept in self._parts.items():
            kept.load(found[-1] / name)
        write_atomically(self.path / "metrics.jsonl", "".join(map(_line, metrics)).encode())
        return about, metrics


def checkpoints(run: Path) -> list[Path]:
    """The folders of a run's whole checkpoints, the newest last; what has no number of a step is none."""
    found = {path: _STEP.fullmatch(path.name) for path in (run / "checkpoints").glob("step-*")}
    return sorted((path for path, step in found.items() if step), key=_step)


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The rows of a run's ``metrics.jsonl``; a last line that a kill cut off is left out.

    Raises:
        UserError: there is no such file, or one of its lines is no row of a step.
    """
    path, rows = run / "metrics.jsonl", []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}); expected a line for every step; put it back, or an empty file "
            "to go on without the numbers so far"
        ) from None
    except UnicodeDecodeError as error:
        raise damaged(path, f"it is no text: {error}", "a line of JSON for every step", _WITHOUT) from None
    for n, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            if n < len(lines):
                raise damaged(path, f"line {n} is no JSON: {error}", "an object", _WITHOUT) from None
        else:
            check_fields(path, f"line {n}", row, {"step": int}, _WITHOUT)
            rows.append(row)
    return rows


def _read_about(checkpoint: Path) -> dict[str, Any]:
    """A checkpoint's ``run.json``."""
    path = checkpoint / "run.json"
    advice = f"move {checkpoint} away to go on with an older checkpoint"
    try:
        about = read_object(path, {"step": int, "ledger": dict}, advice)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); expected step and ledger; {advice}") from None
    if about["step"] != _step(checkpoint):
        raise damaged(path, f"its step is {about['step']}", f"{_step(checkpoint)}, that of its folder", advice)
    strange = about["ledger"].keys() - Ledger().json().keys()
    for name, value in about["ledger"].items():
        if name in strange or not is_number(value):
            raise damaged(path, f"its ledger has {name} = {shown(value)}", "finite counts by name", advice)
    return about


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(_finite(row), allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """JSON values with None for every number that is not finite."""
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
