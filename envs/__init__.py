"""Environments: one file a task, loaded when asked for."""

from __future__ import annotations

import importlib
from inspect import signature
from typing import TYPE_CHECKING, Any

from macredit.errors import UserError, near, unknown
from macredit.own import own

from .tasks import SCORERS, find_scorer

if TYPE_CHECKING:
    from macredit.env import TeamEnv

    from .coalition import Coalition
    from .relay import Relay
    from .search_qa import SearchQA
    from .solve_verify import SolveVerify
    from .wrapped import Wrapped

ENVS = {
    "coalition_v0": "coalition:Coalition",
    "relay_v0": "relay:Relay",
    "search_qa_v0": "search_qa:SearchQA",
    "solve_verify_v0": "solve_verify:SolveVerify",
    "wrapped_v0": "wrapped:Wrapped",
}
"""Environment id → file and class."""

__all__ = [
    "ENVS",
    "SCORERS",
    "Coalition",
    "Relay",
    "SearchQA",
    "SolveVerify",
    "Wrapped",
    "env_class",
    "find_scorer",
    "make_env",
]


def env_class(name: str) -> type[TeamEnv]:
    """The class behind an id, or behind ``module:Class`` of the user's own.

    Raises:
        UserError: no such environment, with the nearest name.
    """
    if name in ENVS:
        module, _, cls = ENVS[name].partition(":")
        found: type[TeamEnv] = getattr(importlib.import_module(f".{module}", __package__), cls)
        return found
    from macredit.env import TeamEnv

    if ":" not in name:
        raise unknown("environment", name, ENVS)
    found = own("environment", name, "Class of a TeamEnv", ENVS)
    if not (isinstance(found, type) and issubclass(found, TeamEnv)):
        raise UserError(f"environment {name!r} is {found!r}; expected module:Class of a TeamEnv")
    return found


def make_env(name: str, /, **args: Any) -> TeamEnv:
    """An environment by id, with its arguments.

    Raises:
        UserError: an unknown id, or an argument its constructor does not have.
    """
    cls = env_class(name)
    try:
        return cls(**args)
    except UserError:
        raise
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError) as error:
        takes = signature(cls).parameters
        hint = "".join(near(arg, takes) for arg in args if arg not in takes)
        raise UserError(f"environment {name!r} does not take these arguments {args}: {error}.{hint}") from None


def __getattr__(name: str) -> Any:
    for entry in ENVS.values():
        if entry.partition(":")[2] == name:
            return getattr(importlib.import_module(f".{entry.partition(':')[0]}", __package__), name)
    raise AttributeError(name)
