"""A run's configuration: frozen dataclasses, read strictly from TOML or built from flags."""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import cattrs
from cattrs.gen import make_dict_structure_fn

from macredit.bounds import Within, check_bounds
from macredit.cluster.settings import RayConfig
from macredit.credit import METHODS, Method
from macredit.errors import UserError, unknown
from macredit.learn import LearnerConfig
from macredit.learn.loss import check_aggregate
from macredit.whatif import Absence, Players

_ROLE_FILES = (".txt", ".md")


@dataclass(frozen=True)
class AgentConfig:
    """One ``[[agents]]`` table: what differs from the environment's own team."""

    name: str
    """An agent of the environment's team."""
    role: str = ""
    """Its role text, or a ``.txt`` or ``.md`` file of it, relative to the configuration."""
    policy: str = ""
    """The policy that speaks for it; empty: the policy of its own name."""
    orchestrator: bool = False
    """Only checked: the environment says who orchestrates."""
    trainable: bool = True
    """False freezes it."""


@dataclass(frozen=True)
class MethodConfig:
    """The ``[method]`` table; other keys in it are settings of the method."""

    name: str = "dr_mas"
    """A credit method; ``macredit methods`` lists them."""
    preset: str = "paper"
    """``paper``, ``code`` or ``balanced``."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the method that differ from the preset."""
    absence: Absence = "null_message"
    """What being silenced means in replays."""
    players: Players = "specialists"
    """Who may be silenced."""
    replicates: int = 1
    """How often a noisy counterfactual is replayed."""


@dataclass(frozen=True)
class TrainConfig:
    """The ``[train]`` table."""

    steps: Annotated[int, Within(0)] = 30
    """Rollout, credit and update, so many times."""
    tasks: Annotated[int, Within(1)] = 8
    """Tasks a step."""
    group: Annotated[int, Within(1)] = 8
    """Terminal evaluations a task: members of its group, or leaves of its tree."""
    pool: Annotated[int, Within(0)] = 0
    """Tasks to choose from, in turn; 0: new ones at every step."""
    seed: int = 0
    """Draws tasks and replies."""
    fanout: dict[str, int] | None = None
    """For methods that need a tree: turn → alternatives, as {"0" = 2, "1" = 4} or --fanout.0 2; none: drawn."""
    evaluate_every: Annotated[int, Within(0)] = 0
    """Steps between evaluations; 0: before the first and after the last step only."""
    evaluate_tasks: Annotated[int, Within(0)] = 32
    """Held-out tasks; 0: no evaluation."""
    evaluate_k: Annotated[int, Within(1)] = 4
    """Episodes a held-out task."""
    staleness: Annotated[int, Within(0)] = 0
    """Steps that rollouts run ahead of learning, in updates their weights lack; more than 0 needs an engine."""
    success: float = 1.0
    """A reward of at least this solves a task (for pass@k)."""
    save_every: Annotated[int, Within(0)] = 10
    """Steps between checkpoints."""
    warm_start: str = ""
    """An episodes file to imitate before the first step."""
    warm_steps: Annotated[int, Within(0)] = 20
    """Updates on it."""
    solo: bool = False
    """Also evaluate one agent alone on the same tasks (environments that take solo)."""


@dataclass(frozen=True)
class RunConfig:
    """A whole configuration."""

    env: Mapping[str, Any]
    """``name`` and the environment's arguments."""
    policies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name → ``kind`` and its settings."""
    agents: tuple[AgentConfig, ...] = ()
    """Changes to the environment's team."""
    method: MethodConfig = field(default_factory=MethodConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    learner: Mapping[str, Any] = field(default_factory=dict)
    """Settings of every learner that differ from the method's (see ``LearnerConfig``)."""
    ray: RayConfig | None = None
    """A cluster to compute it on; none: this process."""

    def json(self) -> dict[str, Any]:
        """The JSON form, as runs keep it."""
        return asdict(self)


def learner_config(method: Method, settings: Mapping[str, Any]) -> LearnerConfig:
    """How a learner learns under a method: its loss and unit of ratio, then what the user set."""
    ratio = "token" if method.sequence == "turn" else "sequence-product"
    learner: LearnerConfig = _structure(
        {"aggregate": method.loss, "ratio": ratio, **settings}, LearnerConfig, "[learner]"
    )
    check_bounds(learner)
    check_aggregate(learner.aggregate, learner.length)
    return learner


def read_config(path: str | os.PathLike[str]) -> RunConfig:
    """A configuration from TOML (or the JSON that a run keeps); role files are read in.

    Raises:
        UserError: a missing file, bad TOML, an unknown key, or a value of another type.
    """
    path = Path(path)
    form = "JSON, as a run keeps it" if path.suffix == ".json" else "TOML"
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); expected a configuration ({form})") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: {error}; expected {form}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: it holds {json.dumps(data):.40}; expected an object of sections, env among them")
    config = config_of(data, str(path))
    return replace(config, agents=tuple(replace(a, role=_role(a.role, path.parent)) for a in config.agents))


def config_of(data: Mapping[str, Any], where: str = "configuration") -> RunConfig:
    """A configuration from plain data, strictly.

    Raises:
        UserError: an unknown key, or a value of another type.
    """
    config: RunConfig = _structure(data, RunConfig, where)
    return config


def _role(role: str, folder: Path) -> str:
    if not role.endswith(_ROLE_FILES) or "\n" in role:
        return role
    try:
        return (folder / role).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"role file {folder / role} cannot be read ({error.strerror})") from None


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (int, float, str, bool):
        converter.register_structure_hook(kind, _strict)
    converter.register_structure_hook_func(_is_choice, _choice)
    plain = make_dict_structure_fn(MethodConfig, converter)

    def method(data: Mapping[str, Any], _: type) -> MethodConfig:
        known, settings = _names(MethodConfig), _settings_of(data.get("name"))
        own = {key: value for key, value in data.items() if key not in known}
        rest = {key: value for key, value in data.items() if key in known}
        for key in own.keys() - settings:
            raise unknown("key", key, {*known, *settings})
        return plain({**rest, "settings": {**rest.get("settings", {}), **own}}, MethodConfig)

    converter.register_structure_hook(MethodConfig, method)
    return converter


def _names(kind: type[Any]) -> list[str]:
    return [one.name for one in fields(kind)]


def _settings_of(method: Any) -> set[str]:
    """Names of a method's settings; of every method's where none is named, since a flag may name it."""
    chosen = [METHODS[method]] if method in METHODS else METHODS.values()
    return {name for one in chosen for name in _names(one.settings)}


def _strict(value: Any, kind: type[Any]) -> Any:
    """No silent conversion: 3 is a float, "3" is not a number and 1 is no truth value."""
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind or (kind is float and not math.isfinite(float(value))):
        raise UserError(f"given {value!r}, expected {'a finite ' * (kind is float)}{kind.__name__}")
    return value


def _is_choice(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _choice(value: Any, kind: Any) -> Any:
    if value not in get_args(kind):
        raise unknown("choice", str(value), get_args(kind))
    return value


def _structure(data: Mapping[str, Any], kind: type[Any], where: str) -> Any:
    try:
        return _converter().structure(data, kind)
    except (cattrs.BaseValidationError, TypeError, ValueError) as error:
        found = [line.rpartition(" @ $") for line in cattrs.transform_error(error, format_exception=_wrong)]
        wrong = "; ".join(f"{place.lstrip('.')}: {what}" if place else what for what, _, place in found)
        raise UserError(f"{where}: {wrong}") from None


def _wrong(error: BaseException, kind: type | None) -> str:
    """What is wrong at one place of a configuration."""
    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        what = "section" if error.cl is RunConfig else "key"
        return "; ".join(str(unknown(what, key, _names(error.cl))) for key in sorted(error.extra_fields))
    if isinstance(error, UserError):
        return str(error)
    return "expected a table" if is_dataclass(kind) else cattrs.v.format_exception(error, kind)
