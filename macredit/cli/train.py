"""``macredit train``: a configuration, flags over it, the run, its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from macredit.cli.options import Arguments, Data, Output, Policies
from macredit.cli.report import report_of
from macredit.cli.screen import say, show
from macredit.cli.words import env_args, named, world_of
from macredit.config import RunConfig, TrainConfig, read_config
from macredit.errors import UserError
from macredit.rollout import World


@Parameter(name="*")
class TrainFlags(TrainConfig):
    """The ``[train]`` table as flags: an instance holds what was said and nothing else, defaults included."""

    def __init__(self, **said: Any) -> None:
        self.__dict__.update(said)


NO_FLAGS = TrainFlags()


def train(
    config: Path | None = None,
    *,
    env: str = "",
    arg: Arguments = (),
    data: Data = "",
    policy: Policies = (),
    model: str = "",
    lora: int = 0,
    method: str = "",
    preset: str = "",
    settings: TrainFlags = NO_FLAGS,
    rate: float | None = None,
    out: Output = Path("run"),
    resume: Path | None = None,
    tensorboard: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Train a team: rollouts, credit, one update per policy; evaluated on held-out tasks.

    Args:
        config: A TOML configuration; flags change it.
        env: The environment.
        model: One Hugging Face model for every agent not named by --policy: a hub id, a folder, a .gguf file or tiny.
        lora: Rank of an adapter per agent on that model; 0: a full model each.
        method: The credit method.
        preset: Its preset.
        rate: Learning rate.
        out: The run's folder.
        resume: Go on with the run in this folder.
        tensorboard: Also write TensorBoard's files into the run's folder.
    """
    from macredit.tables import training_table
    from macredit.train import tensorboard as writer
    from macredit.train import train as train_team

    if resume is not None:
        changed = (config, env, arg, data, policy, model, lora, method, preset, vars(settings), rate)
        if any(given not in (None, "", (), 0, {}) for given in changed):
            raise UserError("--resume goes on with the configuration the run keeps; leave out what would change it")
        run, out = read_config(resume / "config.json"), resume
    else:
        run = read_config(config) if config else RunConfig({})
        run = _changed(run, env, env_args(arg, data), named(policy), model, lora, method, preset, vars(settings), rate)
    if run.train.steps < 1:
        raise UserError(f"steps is {run.train.steps}; expected at least 1")
    world = world_of(run)
    solo = solo_world(run, world) if run.train.solo else None
    trackers = [writer(out / "tensorboard")] if tensorboard else []
    metrics = train_team(world, run, out, solo=solo, resume=resume is not None, trackers=trackers)
    report_of(out).save(out / "report.html")
    show(training_table(metrics))
    say(f"run: {out}; report: {out / 'report.html'}; use a trained agent by --policy NAME={out}/NAME")


def _changed(
    run: RunConfig, env: str, args: Mapping[str, Any], policies: Mapping[str, Any], model: str, lora: int,
    method: str, preset: str, settings: Mapping[str, Any], rate: float | None,
) -> RunConfig:  # fmt: skip
    """A configuration with what the flags say instead."""
    if lora and (not model or lora < 0):
        raise UserError(f"--lora {lora} was given; expected a rank of at least 1, beside --model")
    everyone = {"*": {"kind": "hf", "model": model, **({"lora": {"rank": lora}} if lora else {})}} if model else {}
    return replace(
        run,
        env={**({"name": env} if env else run.env), **args},
        policies={**run.policies, **everyone, **policies},
        method=replace(run.method, name=method or run.method.name, preset=preset or run.method.preset),
        train=replace(run.train, **settings),
        learner={**run.learner, **({"rate": rate} if rate is not None else {})},
    )


def solo_world(run: RunConfig, world: World) -> World:
    """The same tasks for one agent alone, spoken for by the orchestrator's policy, as trained as it is by then."""
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
    lead = world.env.team[world.env.team.orchestrator].policy
    env.team = env.team.casting(policies=dict.fromkeys(env.team.names, lead))
    return World(env, {lead: world.policies[lead]})
