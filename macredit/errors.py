"""The two ways a run can fail that a person can act on; the command line turns them into exit statuses."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """The user's input is wrong (exit status 2): one sentence saying what was given, what was expected, what to do."""


class OutsideError(RuntimeError):
    """Something outside macredit failed, such as a server or a disk (exit status 3)."""


def unknown(kind: str, given: str, known: Iterable[str]) -> UserError:
    """An error for a name that is not known, with the nearest known name."""
    names = sorted(known)
    return UserError(f"unknown {kind} {given!r}; expected one of {', '.join(names)}.{near(given, names)}")


def near(given: str, known: Iterable[str]) -> str:
    """A hint at the nearest known name; empty where none is near."""
    found = difflib.get_close_matches(given, sorted(known), n=1, cutoff=0.5)
    return f" Did you mean {found[0]!r}?" if found else ""


def missing_extra(module: str, extra: str) -> UserError:
    """An error for an optional package that is not installed, naming the extra that brings it."""
    return UserError(f'this needs the package {module!r}, which is not installed: pip install "macredit[{extra}]"')
