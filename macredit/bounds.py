"""Numbers that mean something only within bounds, declared at the setting: ``eps: Annotated[float, Within(0)]``."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, TypeGuard, get_type_hints

from macredit.errors import UserError


@dataclass(frozen=True, slots=True)
class Within:
    """Both ends are allowed."""

    least: float
    most: float = math.inf

    def __str__(self) -> str:
        return f"at least {self.least:.15g}" if self.most == math.inf else f"{self.least:.15g} to {self.most:.15g}"


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number, which a truth value is not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def check_bounds(settings: Any, named: str = "{}") -> None:
    """Hold every field of a dataclass to the bounds its annotation declares, and every float to finite numbers.

    Args:
        settings: an instance; a field that is None is within any bounds.
        named: how an error names the field.

    Raises:
        UserError: a field is out of bounds, NaN or infinite.
    """
    for name, hint in get_type_hints(type(settings), include_extras=True).items():
        value = getattr(settings, name)
        for bound in getattr(hint, "__metadata__", ()):
            if isinstance(bound, Within) and value is not None and not bound.least <= value <= bound.most:
                raise UserError(f"{named.format(name)} is {value}; expected {bound}")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{named.format(name)} is {value}; expected a finite number")
