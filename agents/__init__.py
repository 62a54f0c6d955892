"""Kinds of policies, one file each; resolved when they are used, so that optional parts load only then.

A new kind is a file with a :class:`macredit.policy.Policy` class and a line in ``POLICIES``; users name their own
class as ``module:Class``. What its constructor takes is what a configuration may set; ``expert``, ``fumbles`` and
``bases`` are handed in where it takes them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from macredit.errors import UserError, missing_extra, unknown
from macredit.own import own
from macredit.policy import Policy

from .halves import learning, outgoing, speaking
from .settings import check_settings

if TYPE_CHECKING:
    from .chat import ChatServer
    from .copy_engine import Copy
    from .hf import HF
    from .scripted import Scripted
    from .served import Served
    from .table import Table
    from .vllm_engine import VLLM
    from .vllm_server import VLLMServer

POLICIES: dict[str, str] = {
    "scripted": "scripted:Scripted",
    "table": "table:Table",
    "hf": "hf:HF",
    "chat": "chat:ChatServer",
    "vllm": "vllm_engine:VLLM",
    "vllm-server": "vllm_server:VLLMServer",
}

ENGINES: dict[str, str] = {"copy": "copy_engine:Copy", **{kind: POLICIES[kind] for kind in ("vllm", "vllm-server")}}
"""What may speak in place of an hf policy while that learns."""

_ARGUMENT = {"scripted": "style", "table": "replies"} | dict.fromkeys(("hf", "chat", "vllm", "vllm-server"), "model")
"""What ARG sets in ``NAME=KIND:ARG``."""
_BEHIND_A_URL = ("chat", "vllm-server")
"""Kinds whose ARG is ``MODEL@URL``."""
_HANDED_IN = ("expert", "fumbles", "bases", "name")
_HALVES = ("engine", "shards")
"""What an hf policy may be besides, which its class knows nothing of."""
_EXTRAS = {"train": ("torch", "transformers", "peft", "safetensors", "gguf"), "server": ("openai",)}
"""Which extra brings which packages."""
_OWN = "Class of a Policy, such as a BatchPolicy"
_SERVED, _SHARDED = "served:Served", "sharded:Sharded"
_CLASSES = {target.split(":")[1]: target.split(":")[0] for target in (*POLICIES.values(), *ENGINES.values(), _SERVED)}

__all__ = [
    "ENGINES", "HF", "POLICIES", "VLLM", "ChatServer", "Copy", "Scripted", "Served", "Table", "VLLMServer",
    "learning", "make_policies", "make_policy", "outgoing", "parse_engine", "parse_policy", "speaking",
]  # fmt: skip


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
        env: an environment; its ``expert`` and ``fumbles``, where it has them, go to scripted policies.
        bases: shared models; give the same dict to policies that are to share one.

    Raises:
        UserError: an unknown kind or setting, a value that the setting does not take, or an optional package that is
            not installed.
    """
    kind, settings = str(spec.get("kind", "")), {key: value for key, value in spec.items() if key != "kind"}
    if kind == "hf" and settings.get("engine") is not None:
        return _served(spec, name, {} if bases is None else bases)
    if not kind:
        raise UserError(
            f"unknown kind of policy: {name!r} has the settings {list(settings)} and no kind; expected kind = "
            f"{', '.join(POLICIES)} or module:Class"
        )
    made = policy_class(kind)
    halves = _HALVES if kind == "hf" else ()
    named = f"{{}} of policy {name!r}" if name else "{}"
    check_settings(made, settings, f"setting of a {kind} policy", named, besides=halves, never=_HANDED_IN)
    _, shards = [settings.pop(half, None) for half in halves] or (None, None)
    takes = inspect.signature(made).parameters
    if shards is not None:
        sharded: Policy = _load(*_SHARDED.split(":"))(settings, shards, name)
        return sharded
    offered = {"name": name, "bases": bases, "expert": getattr(env, "expert", None)}
    offered["fumbles"] = getattr(env, "fumbles", None)
    return _made(kind, made, {**settings, **{key: value for key, value in offered.items() if key in takes}})


def _served(spec: Mapping[str, Any], name: str, bases: dict[Any, Any]) -> Policy:
    """An hf policy that learns, and before it the engine that its setting ``engine`` names, or describes by a table."""
    learner = make_policy(learning(spec), name, bases=bases)
    engine = make_policy(speaking(spec), name, bases=bases.setdefault("engines", {}))
    served: Policy = _load(*_SERVED.split(":"))(learner, engine)
    return served


def _made(kind: str, made: type[Any], given: Mapping[str, Any]) -> Policy:
    try:
        inspect.signature(made).bind(**given)
    except TypeError as error:
        raise UserError(f"a {kind} policy cannot be made: {error}; set it beside the kind") from None
    policy = made(**given)
    if not isinstance(policy, Policy):
        raise UserError(f"policy {kind!r} is {policy!r}; expected module:{_OWN}")
    return policy


def policy_class(kind: str) -> type[Any]:
    """The class of a kind of policy or engine, or of ``module:Class``."""
    known = {**ENGINES, **POLICIES}
    if kind in known:
        found: type[Any] = _load(*known[kind].split(":"))
        return found
    if ":" not in kind:
        raise unknown("kind of policy", kind, POLICIES)
    found = own("policy", kind, _OWN, POLICIES)
    if not isinstance(found, type):
        raise UserError(f"policy {kind!r} is {found!r}; expected module:{_OWN}")
    return found


def parse_policy(text: str) -> tuple[str, dict[str, Any]]:
    """``NAME=KIND[:ARG]``, ``NAME=PATH`` or ``NAME=module:Class`` of the command line as (name, spec).

    ARG is a style (``noisy:0.7`` with its skill), a table's replies with commas, an hf or vllm model (a hub id, a
    folder, a ``.gguf`` file or ``tiny``), or ``MODEL@URL`` of kind chat or vllm-server (``MODEL@URL#VARIABLE``: its key
    is in that environment variable). PATH is a model file, an exported policy, or ``tiny``; its files tell what it is.
    """
    name, found, what = text.partition("=")
    if not (name and found and what):
        raise UserError(
            f"--policy was given {text!r}; expected NAME=KIND[:ARG], NAME=FOLDER or NAME=module:Class, as in "
            "solver=hf:tiny"
        )
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
    policy_class(what)
    return name, {"kind": what}


def parse_engine(text: str) -> dict[str, str]:
    """``copy``, ``vllm`` or ``vllm-server@URL`` of the command line as an engine's spec."""
    kind, found, url = text.partition("@")
    return {"kind": kind, "url": url} if found else {"kind": kind}


def _short(kind: str, argument: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"kind": kind}
    if kind == "scripted" and ":" in argument:
        argument, _, skill = argument.partition(":")
        try:
            spec["skill"] = float(skill)
        except ValueError:
            raise UserError(f"skill was given as {skill!r}; expected a number, as in scripted:noisy:0.7") from None
    if kind in _BEHIND_A_URL:
        model, found, url = argument.rpartition("@")
        if not found:
            raise UserError(
                f"{kind} was given {argument!r}; expected MODEL@URL, as in {kind}:qwen3@http://localhost:8000/v1"
            )
        spec["url"], hashed, key_env = url.partition("#")
        spec |= {"key_env": key_env} if hashed else {}
        argument = model
    if argument:
        spec[_ARGUMENT[kind]] = argument.split(",") if kind == "table" else argument
    return spec


def _load(module: str, name: str) -> Any:
    try:
        return getattr(import_module(f".{module}", __name__), name)
    except ModuleNotFoundError as error:
        for extra, packages in _EXTRAS.items():
            if (error.name or "").partition(".")[0] in packages:
                raise missing_extra(str(error.name), extra) from None
        raise
