"""From words to worlds: what the command line or a configuration says, as environment and policies."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from macredit.config import RunConfig
from macredit.env import TeamEnv
from macredit.errors import UserError, unknown
from macredit.rollout import World
from macredit.whatif import REFERENCE


def world_of(config: RunConfig) -> World:
    """Environment and policies of a configuration.

    Raises:
        UserError: an unknown name, or an agent for whom nobody speaks.
    """
    from macredit.agents import make_policies

    env = env_of(config)
    world = World(env, make_policies(specs_of(config, env), env))
    for name in env.team.names:
        world.speaker(name, {})
    return world


def env_of(config: RunConfig) -> TeamEnv:
    """The environment of a configuration, its team as that casts it.

    Raises:
        UserError: an unknown name.
    """
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
    return env


def specs_of(config: RunConfig, env: TeamEnv) -> dict[str, Mapping[str, Any]]:
    """Each policy's kind and settings; ``*`` stands for everyone not named.

    Raises:
        UserError: a policy that speaks for nobody.
    """
    specs = dict(config.policies)
    default = specs.pop("*", None)
    if default is not None:
        specs = {**{agent.policy: default for agent in env.team.agents}, **specs}
    speakers = {agent.policy for agent in env.team.agents} | {REFERENCE}
    for name in specs:
        if name not in speakers:
            raise unknown("policy (it speaks for nobody)", name, speakers)
    return specs


def solo_world(run: RunConfig, world: World) -> World:
    """The same tasks for one agent alone, spoken for by the orchestrator's policy, as trained as it is by then."""
    lead = world.env.team[world.env.team.orchestrator].policy
    return World(solo_env(run, lead), {lead: world.policies[lead]})


def solo_env(run: RunConfig, lead: str) -> TeamEnv:
    """The environment's form for one agent alone, spoken for by the policy ``lead``."""
    from macredit.envs import ENVS, env_class, make_env

    def takes_solo(name: str) -> bool:
        return "solo" in signature(env_class(name)).parameters

    if not takes_solo(run.env["name"]):
        raise UserError(
            f"solo was asked for, but {run.env['name']} has no form for one agent alone; leave it out, or take "
            f"{' or '.join(filter(takes_solo, ENVS))}"
        )
    args = {**run.env, "solo": True}
    env = make_env(args.pop("name"), **args)
    env.team = env.team.casting(policies=dict.fromkeys(env.team.names, lead))
    return env


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
