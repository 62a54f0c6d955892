"""Settings from names and values: checked against the frozen dataclass of a method, one error for each mistake."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from macredit.bounds import check_bounds
from macredit.errors import UserError, unknown


def settings_from(kind: type, of: str, given: Mapping[str, Any]) -> Any:
    """An instance of the settings class ``kind``; text, as the command line has it, is read as the field's type.

    Raises:
        UserError: a name that ``kind`` lacks, or a value that its field cannot hold.
    """
    hints = {field.name: get_type_hints(kind)[field.name] for field in fields(kind)}
    if given and not hints:
        raise UserError(f"setting {next(iter(given))!r} was given, but {of} has no settings; leave it out")
    for name in given:
        if name not in hints:
            raise unknown(f"setting of {of}", name, hints)
    settings = kind(**{name: _value(f"setting {name!r} of {of}", value, hints[name]) for name, value in given.items()})
    check_bounds(settings, f"setting '{{}}' of {of}")
    return settings


def settings_dict(settings: Any) -> dict[str, Any]:
    """All settings by name, as results print them."""
    return asdict(settings)


def _value(what: str, given: Any, hint: Any) -> Any:
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        for choice in choices:
            if (given == choice and type(given) is type(choice)) or given == str(choice):
                return choice
        raise UserError(f"{what} is {given!r}; expected one of {', '.join(map(str, choices))}")
    try:
        return _READ[hint](given)
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{what} is {given!r}; expected {_EXPECTED[hint]}") from None


def _integer(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise TypeError
    return int(given)


def _number(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float | str) or not math.isfinite(float(given)):
        raise TypeError
    return float(given)


def _flag(given: Any) -> bool:
    return given if isinstance(given, bool) else {"true": True, "false": False}[str(given).lower()]


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise TypeError
    return given


_READ = {int: _integer, float: _number, bool: _flag, str: _text}
_EXPECTED = {int: "an integer", float: "a finite number", bool: "true or false", str: "text"}
