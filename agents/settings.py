"""What a user may set is what a constructor takes: names, types and bounds are checked against its annotations.

``max_tokens: int | None`` takes no text and no fraction, ``Annotated[int, Within(1)]`` none below 1, and
``Annotated[Mapping[str, Any], "a table such as { rank = 16 }"]`` says in its own words what is expected. What has no
annotation, or one that no configuration file can write, is left to the constructor.
"""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from macredit.bounds import Within, is_number
from macredit.errors import UserError, near, unknown

_NAMED = {
    bool: "true or false", int: "a whole number", float: "a finite number", str: "a text", type(None): "none",
    Mapping: "a table", dict: "a table", Sequence: "a list", list: "a list", tuple: "a list", os.PathLike: "a path",
}  # fmt: skip
_HIDDEN = ("key_env", "url")
"""Settings whose values are not shown: they may hold a key or a password by mistake."""


def check_settings(
    made: type[Any],
    settings: Mapping[str, Any],
    what: str,
    named: str = "{}",
    besides: Collection[str] = (),
    never: Collection[str] = (),
) -> None:
    """Hold settings to what a constructor takes.

    Args:
        made: a class.
        settings: what the user set.
        what: what an error calls a setting, such as ``setting of a hf policy``.
        named: how an error names one of them.
        besides: settings that are known and do not go to the constructor.
        never: what the constructor takes and users do not set.

    Raises:
        UserError: a setting that is not known, of another type, or out of bounds.
    """
    takes = [name for name in inspect.signature(made).parameters if name not in never]
    hints = _hints(made)
    for name, value in settings.items():
        if name not in (*takes, *besides):
            raise unknown(what, name, {*takes, *besides})
        if name in takes and not _fits(value, hints.get(name, Any)):
            given = f"a {type(value).__name__}" if name in _HIDDEN else f"{value!r:.80}"
            hint = near(value, _choices(hints[name])) if isinstance(value, str) else ""
            raise UserError(
                f"{named.format(name)} was given as {given}; expected {_expected(hints[name])}{'.' * bool(hint)}{hint}"
            )


def _hints(made: type[Any]) -> dict[str, Any]:
    try:
        return get_type_hints(made.__init__, include_extras=True)
    except (AttributeError, NameError, SyntaxError, TypeError):  # they name what only a type checker imports
        return {}


def _fits(value: Any, hint: Any) -> bool:
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind is Annotated:
        bounds = [bound for bound in parts[1:] if isinstance(bound, Within)]
        return _fits(value, parts[0]) and (value is None or all(b.least <= value <= b.most for b in bounds))
    if kind in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is Literal:
        return value in parts
    if kind is float:
        return is_number(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind in (Mapping, dict):
        return isinstance(value, Mapping) and all(_fits(one, parts[1]) for one in value.values() if len(parts) == 2)
    if kind in (Sequence, list, tuple):
        listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return listed and all(_fits(one, parts[0]) for one in value if parts and kind is not tuple)
    return not isinstance(kind, type) or kind not in _NAMED or isinstance(value, kind)


def _expected(hint: Any) -> str:
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind is Annotated:
        said = [part for part in parts[1:] if isinstance(part, str)]
        return said[0] if said else " of ".join([_expected(parts[0]), *(str(b) for b in parts[1:])])
    if kind in (Union, types.UnionType):
        return " or ".join(_expected(part) for part in parts if part is not type(None))
    if kind is Literal:
        return " or ".join(repr(part) for part in parts)
    inner = parts[-1] if parts and kind in (Mapping, Sequence, dict, list) else Any
    return _NAMED.get(kind, "something else") + ("" if inner is Any else f", each {_expected(inner)}")


def _choices(hint: Any) -> list[str]:
    if get_origin(hint) is Literal:
        return [part for part in get_args(hint) if isinstance(part, str)]
    return [choice for part in get_args(hint) for choice in _choices(part)]
