"""Kinds of policies, one file each; resolved when they are used, so that optional parts load only then.

A new kind is a file with a :class:`macredit.policy.Policy` class and a line in ``POLICIES``. What its constructor takes
is what a configuration may set; ``expert``, ``fumble`` and ``bases`` are handed in where it takes them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from macredit.errors import UserError, missing_extra, unknown
from macredit.policy import Policy

if TYPE_CHECKING:
    from .hf import HF
    from .scripted import Scripted
    from .table import Table

POLICIES: dict[str, str] = {
    "scripted": "scripted:Scripted",
    "table": "table:Table",
    "hf": "hf:HF",
}

_ARGUMENT = {"scripted": "style", "table": "replies", "hf": "model"}
"""What ARG sets in ``NAME=KIND:ARG``."""
_HANDED_IN = ("expert", "fumble", "bases", "name")
_CLASSES = {target.split(":")[1]: target.split(":")[0] for target in POLICIES.values()}

__all__ = ["HF", "POLICIES", "Scripted", "Table", "make_policies", "make_policy", "parse_policy"]


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _load(_CLASSES[name], name)


def make_policies(specs: Mapping[str, Mapping[str, Any]], env: Any = None) -> dict[str, Policy]:
    """All policies of a team, by name; those with LoRA adapters on the same model share it in memory."""
    bases: dict[Any, Any] = {}
    return {name: make_policy(spec, name=name, env=env, bases=bases) for name, spec in specs.items()}


def make_policy(
    spec: Mapping[str, Any], name: str = "", env: Any = None, bases: dict[Any, Any] | None = None
) -> Policy:
    """One policy.

    Args:
        spec: ``kind`` and the settings of that kind, such as ``{"kind": "scripted", "style": "perfect"}``.
        name: its name in records.
        env: an environment; its ``expert`` and ``fumble``, where it has them, go to scripted policies.
        bases: shared models; give the same dict to policies that are to share one.

    Raises:
        UserError: an unknown kind or setting, or an optional package that is not installed.
    """
    kind, settings = spec.get("kind", ""), {key: value for key, value in spec.items() if key != "kind"}
    if kind not in POLICIES:
        raise unknown("kind of policy", kind, POLICIES)
    made = _load(*POLICIES[kind].split(":"))
    takes = inspect.signature(made).parameters
    for setting in settings:
        if setting not in takes or setting in _HANDED_IN:
            raise unknown(f"setting of a {kind} policy", setting, [t for t in takes if t not in _HANDED_IN])
    offered = {"name": name, "bases": bases, "expert": getattr(env, "expert", None)}
    offered["fumble"] = getattr(env, "fumble", None)
    policy: Policy = made(**settings, **{key: value for key, value in offered.items() if key in takes})
    return policy


def parse_policy(text: str) -> tuple[str, dict[str, Any]]:
    """``NAME=KIND[:ARG]`` or ``NAME=PATH`` of the command line as (name, spec).

    ARG is a style (``noisy:0.7`` with its skill), a table's replies with commas, or an hf model: a hub id, a folder, a
    ``.gguf`` file or ``tiny``. PATH is a model file, an exported policy, or ``tiny``; its files tell what it is.
    """
    name, found, what = text.partition("=")
    if not (name and found and what):
        raise UserError(f"--policy was given {text!r}; expected NAME=KIND[:ARG] or NAME=FOLDER, as in solver=hf:tiny")
    kind, _, argument = what.partition(":")
    if kind in POLICIES:
        return name, _short(kind, argument)
    path = Path(what)
    if (path / "table.json").is_file():
        return name, {"kind": "table", "file": what}
    if what == "tiny" or path.suffix == ".gguf" or any((path / f"{f}config.json").is_file() for f in ("", "adapter_")):
        return name, {"kind": "hf", "model": what}
    if path.exists():
        raise UserError(
            f"--policy {text!r}: {what} is no exported policy; expected config.json, adapter_config.json or table.json "
            "in it, or a .gguf file"
        )
    raise unknown("kind of policy", kind, POLICIES)


def _short(kind: str, argument: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"kind": kind}
    if kind == "scripted" and ":" in argument:
        argument, _, skill = argument.partition(":")
        try:
            spec["skill"] = float(skill)
        except ValueError:
            raise UserError(f"skill was given as {skill!r}; expected a number, as in scripted:noisy:0.7") from None
    if argument:
        spec[_ARGUMENT[kind]] = argument.split(",") if kind == "table" else argument
    return spec


def _load(module: str, name: str) -> Any:
    try:
        return getattr(import_module(f".{module}", __name__), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("torch", "transformers", "peft", "safetensors", "gguf"):
            raise missing_extra(str(error.name), "train") from None
        raise
