"""``macredit train``: a configuration, flags over it, the run, its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from macredit.cli.cluster import Ray, cluster_of, worlds
from macredit.cli.options import Arguments, Data, Output, Policies
from macredit.cli.report import report_of
from macredit.cli.screen import say, show
from macredit.cli.words import env_args, named
from macredit.config import RunConfig, TrainConfig, read_config
from macredit.errors import UserError


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
    engine: str = "",
    method: str = "",
    preset: str = "",
    settings: TrainFlags = NO_FLAGS,
    rate: float | None = None,
    out: Output = Path("run"),
    resume: Path | None = None,
    track: str = "",
    tensorboard: Annotated[bool, Parameter(negative="")] = False,
    ray: Ray = None,
    ray_workers: int = 0,
    ray_engines: int | None = None,
) -> None:
    """Train a team: rollouts, credit, one update per policy; evaluated on held-out tasks.

    Args:
        config: A TOML configuration; flags change it.
        env: The environment.
        model: One Hugging Face model for every agent not named by --policy: a hub id, a folder, a .gguf file or tiny.
        lora: Rank of an adapter per agent on that model; 0: a full model each.
        engine: What speaks for every hf policy while that learns: copy, vllm, vllm-server@URL, or none; may be another
            with --resume.
        method: The credit method.
        preset: Its preset.
        rate: Learning rate.
        out: The run's folder.
        resume: Go on with the run in this folder, here or with --ray: it does not keep where it was computed.
        track: Trackers that get every number too: tensorboard,wandb,mlflow,trackio; a resumed run keeps its own.
        tensorboard: The same as --track tensorboard.
        ray_workers: Rollout workers on Ray, instead of what the configuration says, or 2.
        ray_engines: Engines on Ray that speak for them, instead of the table's 0.
    """
    from macredit.tables import training_table
    from macredit.trackers import openers, recorded
    from macredit.train import train as train_team

    if resume is not None:
        changed = (config, env, arg, data, policy, model, lora, method, preset, vars(settings), rate)
        if any(given not in (None, "", (), 0, {}) for given in changed):
            raise UserError("--resume goes on with the configuration the run keeps; leave out what would change it")
        run, out = read_config(resume / "config.json"), resume
    else:
        run = read_config(config) if config else RunConfig({})
        run = _changed(run, env, env_args(arg, data), named(policy), model, lora, method, preset, vars(settings), rate)
    run = with_engine(run, engine) if engine else run
    if run.train.steps < 1:
        raise UserError(f"steps is {run.train.steps}; expected at least 1")
    asked = [*filter(None, track.split(",")), *["tensorboard"] * tensorboard, *(recorded(out) if resume else ())]
    trackers = openers(asked)
    where, run = cluster_of(run, ray, ray_workers, ray_engines), replace(run, ray=None)
    with worlds(run, where) as (world, solo):
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


def with_engine(run: RunConfig, engine: str) -> RunConfig:
    """A configuration whose every hf policy speaks through an engine, or (``none``) with the weights that learn.

    Raises:
        UserError: an unknown engine, or there is no hf policy.
    """
    from macredit.agents import parse_engine

    about = {} if engine == "none" else {"engine": parse_engine(engine)}
    served = {
        name: {**{key: value for key, value in spec.items() if key != "engine"}, **about}
        for name, spec in run.policies.items()
        if spec.get("kind") == "hf"
    }
    if not served:
        raise UserError(f"--engine {engine} was given, and no policy is of kind hf; give --model, or leave it out")
    return replace(run, policies={**run.policies, **served})
