"""Progress of long work, on standard error; silent where nobody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
            if note is None:
                bar.advance(task)
            else:
                bar.update(task, advance=1, note=note)

        yield tick
