"""What learners and critics keep: arrays in a safetensors file, JSON values beside it, both whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from macredit.episode import write_atomically
from macredit.errors import UserError, missing_extra


def write_saved(folder: Path, stem: str, tensors: Mapping[str, npt.NDArray[Any]], about: Mapping[str, Any]) -> None:
    """Write ``STEM.safetensors`` and ``STEM.json``."""
    data = _safetensors().numpy.save({name: np.array(array, order="C") for name, array in tensors.items()})
    write_atomically(folder / f"{stem}.safetensors", data)
    write_atomically(folder / f"{stem}.json", json.dumps(about, indent=1).encode())


def read_saved(folder: Path, stem: str, missing: str) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """What was written.

    Raises:
        UserError: ``missing`` if a file is not there; or a file is damaged.
    """
    safetensors = _safetensors()
    try:
        about: dict[str, Any] = json.loads((folder / f"{stem}.json").read_text(encoding="utf-8"))
        return safetensors.numpy.load_file(folder / f"{stem}.safetensors"), about
    except OSError:
        raise UserError(missing) from None
    except (ValueError, safetensors.SafetensorError) as error:
        raise UserError(
            f"{folder}/{stem} is damaged ({error}); expected whole files; move it away to go on with an older one"
        ) from None


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise missing_extra("safetensors", "train") from None
    return safetensors
