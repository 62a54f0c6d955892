"""What people see: results on standard output, words for them on standard error."""

from __future__ import annotations

from rich.console import Console, RenderableType


def show(result: RenderableType) -> None:
    """A result on standard output; names and texts are never read as markup."""
    Console(markup=False, highlight=False).print(result)


def say(text: str) -> None:
    """A line for people, on standard error."""
    from macredit.report.text import safe

    Console(stderr=True, soft_wrap=True, highlight=False).print(safe(text), markup=False)
