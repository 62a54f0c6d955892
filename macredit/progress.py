"""Progress of long work, on standard error: a bar, or a line a step where no terminal is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Tick = Callable[..., None]
"""``tick()`` counts one; ``tick(note="…")`` also changes the text beside the bar."""


@contextmanager
def progress(what: str, total: int | None, done: int = 0) -> Iterator[Tick]:
    """A bar for ``total`` pieces of work (None: unknown)."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(), TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total, completed=done, note="")

        def tick(_: object = None, note: str | None = None) -> None:
            bar.advance(task)
            if note is not None:
                bar.update(task, note=note)
            if note is not None and not console.is_terminal:
                console.print(f"{what} {bar.tasks[0].completed:.0f}/{total}: {note}", markup=False, soft_wrap=True)

        yield tick


@contextmanager
def compiling() -> Iterator[None]:
    """Says so when the first kernel is compiled, which only the first run of an installation waits for."""
    from numba.core import event

    class Listener(event.Listener):
        said = False

        def on_start(self, event: Any) -> None:
            if not self.said:
                print("compiling kernels, once for this installation", file=sys.stderr)  # above a bar
            self.said = True

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Listener()):
        yield
