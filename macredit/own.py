"""What users bring themselves, as ``module:name``; imported only where they name it, never because a record does."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from macredit.errors import UserError, near


def own(kind: str, name: str, expected: str, known: Iterable[str] = ()) -> Any:
    """What ``module:name`` names; the module is installed, on PYTHONPATH, or (on the command line) in this folder.

    Args:
        kind: what it is, in errors.
        name: ``module:name``.
        expected: what kind of thing has to be there.
        known: names of macredit's own, of which ``name`` may be a misspelling.

    Raises:
        UserError: there is no such module, or nothing of that name in it.
    """
    module, _, attribute = name.partition(":")
    try:
        if not attribute:
            raise ValueError(f"it names no {expected.split()[0].lower()}")
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"{kind} {name!r} cannot be loaded ({error}); expected module:{expected}.{near(module, known)}"
        ) from None
