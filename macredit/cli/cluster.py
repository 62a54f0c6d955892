"""From words to a cluster: where a configuration is computed, and the worlds that are played there."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated

from cyclopts import Parameter

from macredit.bounds import check_bounds
from macredit.cli.words import env_of, solo_env, solo_world, specs_of, world_of
from macredit.cluster import Parts, RayConfig
from macredit.config import RunConfig
from macredit.env import TeamEnv
from macredit.errors import UserError
from macredit.policy import Policy
from macredit.rollout import World

Ray = Annotated[
    tuple[str, ...] | None,
    Parameter(
        name="--ray",
        consume_multiple=(0, 1),
        negative="",
        help="Compute on Ray: the HOST:PORT of a cluster, auto for the one this machine is part of, or nothing for one "
        "of its own.",
    ),
]


def cluster_of(run: RunConfig, ray: tuple[str, ...] | None, workers: int, engines: int | None) -> RayConfig | None:
    """Where a run is computed: its ``[ray]`` table, with what the flags say instead; None: in this process.

    Raises:
        UserError: flags for a cluster without ``--ray`` or ``[ray]``, or a number out of bounds.
    """
    if ray is None and run.ray is None:
        if workers or engines is not None:
            raise UserError("--ray-workers or --ray-engines was given; expected --ray, or a [ray] table, beside it")
        return None
    settings = run.ray or RayConfig()
    settings = replace(settings, address=ray[0]) if ray else settings
    settings = replace(settings, workers=workers) if workers else settings
    settings = replace(settings, engines=engines) if engines is not None else settings
    check_bounds(settings, "[ray] {}")
    return settings


@contextmanager
def worlds(
    run: RunConfig, settings: RayConfig | None, learn: bool = True, companies: int = 1
) -> Iterator[tuple[World, World | None]]:
    """The team's world and, where the configuration asks for it, that of one agent alone.

    Args:
        run: the configuration.
        settings: the cluster; None: this process.
        learn: whether policies are to learn.
        companies: how many, learners included, the cluster has to hold at once if it is made here.
    """
    if settings is None:
        world = world_of(run)
        yield world, solo_world(run, world) if run.train.solo else None
        return
    from macredit.cluster.connect import connected

    env = env_of(run)
    trainable = dict.fromkeys(agent.policy for agent in env.team.agents if agent.trainable)
    with connected(settings, settings.bundles(len(trainable)) * companies):
        from macredit.cluster.company import Company

        with Company(parts_of(run, env), settings, trainable if learn else ()) as company:
            yield company.world, company.solo


def parts_of(run: RunConfig, env: TeamEnv) -> Parts:
    """What actors build a configuration from."""
    from macredit.agents import outgoing

    lead = env.team[env.team.orchestrator].policy
    solo = partial(solo_env, run, lead) if run.train.solo else None
    return Parts(partial(env_of, run), partial(speakers, run), partial(pupil, run), outgoing, solo, tuple(sys.path))


def speakers(run: RunConfig, env: TeamEnv) -> Mapping[str, Policy]:
    """Everyone who speaks; of policies that learn, the half that speaks."""
    from macredit.agents import make_policies, speaking

    trained = {agent.policy for agent in env.team.agents if agent.trainable}
    specs = specs_of(run, env)
    return make_policies({name: speaking(spec) if name in trained else spec for name, spec in specs.items()}, env)


def pupil(run: RunConfig, env: TeamEnv, name: str) -> Policy:
    """The half of a policy that learns."""
    from macredit.agents import learning, make_policies

    return make_policies({name: learning(specs_of(run, env)[name])}, env)[name]
