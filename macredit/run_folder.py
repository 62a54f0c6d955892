"""A run's folder: its configuration, the numbers of every step, and checkpoints that are whole or not there.

``config.json`` · ``metrics.jsonl``, a line a step or evaluation · ``checkpoints/step-000010/``, in it ``run.json``, a
folder for each learner and what a critic keeps · ``episodes.jsonl``, the last ones saved, with all replayed outcomes ·
at the end a folder for each trained policy.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from macredit.episode import write_atomically
from macredit.errors import UserError

KEEP = 2
"""Checkpoints kept: the newest, and one before it."""


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
        """Add a row of numbers."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def save(self, step: int, about: Mapping[str, Any]) -> None:
        """A checkpoint, whole or not at all; the oldest go."""
        part = self.path / "checkpoints" / ".part"
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
            UserError: there is no checkpoint.
        """
        found = checkpoints(self.path)
        if not found:
            raise UserError(
                f"{self.path} holds no checkpoint to resume from; expected {self.path}/checkpoints/step-…; "
                "begin again without --resume"
            )
        about: dict[str, Any] = json.loads((found[-1] / "run.json").read_text())
        for name, kept in self._parts.items():
            kept.load(found[-1] / name)
        metrics = [row for row in read_metrics(self.path) if row["step"] <= about["step"]]
        write_atomically(self.path / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in metrics).encode())
        return about, metrics


def checkpoints(run: Path) -> list[Path]:
    """The folders of a run's whole checkpoints, the newest last."""
    return sorted((run / "checkpoints").glob("step-*"))


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The rows of a run's ``metrics.jsonl``; a line that a kill cut off is left out."""
    rows = []
    for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    return rows
