"""What learners and critics keep: arrays in a safetensors file, JSON values beside it, both whole or not at all.

What is read back is compared with what was to be there before anybody takes it over: a file may be whole and still be
of something else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from macredit.bounds import is_number
from macredit.episode import write_atomically
from macredit.errors import UserError, missing_extra

Tensors = Mapping[str, npt.NDArray[Any]]
_KINDS = {dict: "an object", list: "a list", str: "a text", int: "a whole number", float: "a number"}
_ADVICE = "move its checkpoint away to go on with an older one"


def write_saved(folder: Path, stem: str, tensors: Tensors, about: Mapping[str, Any]) -> None:
    """Write ``STEM.safetensors`` and ``STEM.json``.

    Raises:
        UserError: a tensor is not finite, so that it could not be read again.
    """
    for name in _not_finite(tensors):
        raise UserError(
            f"{folder / stem}.safetensors was not written: its {name!r} has values that are not finite; go on from the "
            "checkpoint before, with a lower learning rate"
        )
    data = _safetensors().numpy.save({name: np.array(array, order="C") for name, array in tensors.items()})
    write_atomically(folder / f"{stem}.safetensors", data)
    write_atomically(folder / f"{stem}.json", json.dumps({**about, "tensors": len(tensors)}, indent=1).encode())


def read_saved(
    folder: Path, stem: str, missing: str, fields: Mapping[str, type]
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """What was written.

    Args:
        folder: where.
        stem: of both files.
        missing: what is wrong if a file is not there.
        fields: what the JSON object has at least, name → type.

    Raises:
        UserError: ``missing``; or a file is damaged.
    """
    safetensors, file = _safetensors(), folder / f"{stem}.safetensors"
    try:
        about = read_object(folder / f"{stem}.json", fields, _ADVICE)
        tensors: dict[str, npt.NDArray[Any]] = safetensors.numpy.load_file(file)
    except OSError:
        raise UserError(missing) from None
    except (AttributeError, KeyError, TypeError, safetensors.SafetensorError) as error:  # also dtypes numpy has not
        raise damaged(file, str(error), "a whole safetensors file", _ADVICE) from None
    if about.get("tensors", len(tensors)) != len(tensors):  # older files do not say
        raise damaged(file, f"it holds {len(tensors)} tensors", f"the {about['tensors']} that were saved", _ADVICE)
    return tensors, about


def read_object(path: Path, fields: Mapping[str, type], advice: str) -> dict[str, Any]:
    """A JSON object, as it was saved.

    Args:
        path: the file.
        fields: what it has at least, name → type.
        advice: what to do where it is damaged.

    Raises:
        OSError: the file cannot be opened.
        UserError: it is damaged.
    """
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"no JSON: {error}", "an object", advice) from None
    check_fields(path, "content", found, fields, advice)
    return found


def check_fields(path: Path, where: str, found: Any, fields: Mapping[str, type], advice: str = _ADVICE) -> None:
    """See that a JSON value, read from a place in a file, is an object with fields of some types.

    Raises:
        UserError: it is not.
    """
    if not isinstance(found, dict):
        expected = f"an object with {', '.join(fields)}" if fields else "an object"
        raise damaged(path, f"its {where} is {shown(found)}", expected, advice)
    for name, kind in fields.items():
        if type(found.get(name)) is not kind:
            has = f"its {name} is {shown(found[name])}" if name in found else f"its {where} has no {name}"
            raise damaged(path, has, f"{_KINDS[kind]} there", advice)


def check_saved(folder: Path, stem: str, tensors: Tensors, expected: Tensors) -> None:
    """Compare what was read with what is to be taken over.

    Args:
        folder: where it was read.
        stem: of its files.
        tensors: what was read.
        expected: arrays of the names, shapes and dtypes that fit; their values do not matter.

    Raises:
        UserError: names, a shape or a dtype differ, or values are not finite.
    """
    file = folder / f"{stem}.safetensors"
    for name in sorted(expected.keys() ^ tensors.keys()):
        has = "lacks" if name in expected else "has an unknown"
        raise damaged(file, f"it {has} {name!r}", f"{len(expected)} tensors, those of what it is loaded into", _ADVICE)
    for name, like in expected.items():
        if (tensors[name].shape, tensors[name].dtype) != (like.shape, like.dtype):
            raise damaged(file, f"its {name!r} is {_form(tensors[name])}", _form(like), _ADVICE)
    for name in _not_finite(tensors):
        raise damaged(file, f"its {name!r} has values that are not finite", "finite numbers", _ADVICE)


def check_values(folder: Path, stem: str, found: Any, own: Any, where: str = "scalars") -> None:
    """Compare JSON values that were read with those they are to replace: alike in form, and numbers finite.

    Raises:
        UserError: they differ in form.
    """
    file = folder / f"{stem}.json"
    if isinstance(own, dict) and isinstance(found, dict):
        for key, value in own.items():
            if key in found:
                check_values(folder, stem, found[key], value, f"{where}/{key}")
            elif not isinstance(value, bool | None):  # each version of torch has flags of its own
                raise damaged(file, f"it has no {where}/{key}", f"{_KINDS[type(value)]} there", _ADVICE)
    elif isinstance(own, list) and isinstance(found, list) and len(found) == len(own):
        for n, (one, other) in enumerate(zip(found, own, strict=True)):
            check_values(folder, stem, one, other, f"{where}/{n}")
    elif isinstance(own, dict | list) or (is_number(own) and not is_number(found)):
        many = f" of {len(own)}" if isinstance(own, list) else ""
        raise damaged(file, f"its {where} is {shown(found)}", f"{_KINDS[type(own)]}{many}, and finite", _ADVICE)


def damaged(path: Path, found: str, expected: str, advice: str) -> UserError:
    """An error for a file that is not what was saved."""
    return UserError(f"{path} is damaged ({found}); expected {expected}; {advice}")


def shown(value: Any) -> str:
    """A JSON value, short enough for an error."""
    return _KINDS[type(value)] if isinstance(value, dict | list) else json.dumps(value)[:40]


def _form(array: npt.NDArray[Any]) -> str:
    return f"{array.dtype} of shape {list(array.shape)}"


def _not_finite(tensors: Tensors) -> Iterator[str]:
    return (name for name, array in tensors.items() if not np.isfinite(array).all())


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise missing_extra("safetensors", "train") from None
    return safetensors
