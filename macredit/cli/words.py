"""From words to worlds: what the command line or a configuration says, as environment and policies."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from macredit.config import RunConfig
from macredit.errors import UserError, unknown
from macredit.rollout import World
from macredit.whatif import REFERENCE


def world_of(config: RunConfig) -> World:
    """Environment and policies of a configuration.

    Raises:
        UserError: an unknown name, or an agent for whom nobody speaks.
    """
    from macredit.agents import make_policies
    from macredit.envs import make_env

    about = dict(config.env)
    if not about.get("name"):
        given = f", only {', '.join(map(repr, about))}" if about else ""
        raise UserError(f"no environment was named{given}; give --env NAME or [env] name (`macredit envs` lists them)")
    env = make_env(about.pop("name"), **about)
    for agent in config.agents:
        env.team[agent.name]
        if agent.orchestrator and agent.name != env.team.orchestrator:
            raise UserError(
                f"{agent.name!r} is called the orchestrator; in {env.name} that is {env.team.orchestrator!r}"
            )
    env.team = env.team.casting(
        roles={a.name: a.role for a in config.agents if a.role},
        policies={a.name: a.policy for a in config.agents if a.policy},
        frozen=[a.name for a in config.agents if not a.trainable],
    )
    specs = dict(config.policies)
    default = specs.pop("*", None)
    if default is not None:
        specs = {**{agent.policy: default for agent in env.team.agents}, **specs}
    speakers = {agent.policy for agent in env.team.agents} | {REFERENCE}
    for name in specs:
        if name not in speakers:
            raise unknown("policy (it speaks for nobody)", name, speakers)
    world = World(env, make_policies(specs, env))
    for name in env.team.names:
        world.speaker(name, {})
    return world


def pairs(given: Sequence[str], plain: bool = False) -> dict[str, Any]:
    """KEY=VALUE words as a dict; values are JSON where they are JSON, unless ``plain``."""
    out: dict[str, Any] = {}
    for word in given:
        key, found, text = word.partition("=")
        if not found or not key:
            raise UserError(f"{word!r} was given; expected KEY=VALUE")
        out[key] = text
        if not plain:
            with contextlib.suppress(ValueError):
                out[key] = json.loads(text)
    return out


def env_args(given: Sequence[str], data: str) -> dict[str, Any]:
    """The environment's arguments."""
    return {**pairs(given), **({"data": data} if data else {})}


def named(policies: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``--policy`` words as specs by name; one without a name stands under ``*``."""
    from macredit.agents import parse_policy

    return dict(parse_policy(text if "=" in text else f"*={text}") for text in policies)
