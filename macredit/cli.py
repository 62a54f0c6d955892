"""The command line: thin; every command builds plain values and calls the library."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from macredit.config import AgentConfig, MethodConfig, RunConfig, TrainConfig, read_config
from macredit.episode import Episode, EpisodeWriter, read_episodes, write_atomically, write_episodes
from macredit.errors import OutsideError, UserError, unknown
from macredit.report import Report
from macredit.rollout import World
from macredit.whatif import REFERENCE, Absence, Players, WhatIf

app = App(
    name="macredit",
    help="Who in the team earned the reward? Train, measure and compare teams of LLM agents.",
    help_format="rich",
)
check = App(name="check", help="Run the conformance checks that macredit's own parts pass on yours.")
app.command(check)

Policies = Annotated[
    tuple[str, ...],
    Parameter(
        name="--policy",
        consume_multiple=True,
        negative="",
        help="NAME=KIND[:ARG] or NAME=FOLDER, such as solver=hf:tiny or solver=scripted:noisy:0.7; without NAME= it "
        "speaks for everyone not named.",
    ),
]
Arguments = Annotated[
    tuple[str, ...],
    Parameter(
        name="--arg",
        consume_multiple=True,
        negative="",
        help="KEY=VALUE for the environment; the value is read as JSON where it is JSON, such as preset=or.",
    ),
]
Data = Annotated[
    str,
    Parameter(name="--data", help="Your own tasks, for environments that take `data`: the same as --arg data=FILE."),
]
Output = Annotated[Path, Parameter(name=["--out", "-o"])]


@Parameter(name="*")
@dataclass(frozen=True)
class Replays:
    """Where replays happen, and what absence means in them."""

    env: str = ""
    """The environment; empty takes the one that the record names."""
    arg: Arguments = ()
    policy: Policies = ()
    absence: Absence = "null_message"
    """What it means that an agent is silenced."""
    players: Players = "specialists"
    """Who may be silenced: all agents but the orchestrator, or everyone."""
    replicates: int = 1
    """How often a noisy counterfactual is replayed; the first shares the original's noise, the others do not."""
    record: Path | None = None
    """Write the episodes here with every outcome that was replayed, to be asked again without environment or model."""


# -- commands ----------------------------------------------------------------------------------------------------------


@app.command
def demo(*, out: Output = Path("macredit-demo"), seed: int = 0) -> None:
    """Train and measure a small team whose true credit is known, with four methods; under a minute, no download.

    Args:
        out: The folder for the report and the episodes.
        seed: Draws tasks and replies.
    """
    from macredit.demo import run_demo

    show(run_demo(world_of, out, seed))


@app.command
def play(
    env: str,
    *,
    policy: Policies = (),
    arg: Arguments = (),
    data: Data = "",
    n: Annotated[int, Parameter(name=["--episodes", "-n"])] = 64,
    group: int = 8,
    seed: int = 0,
    out: Output = Path("episodes.jsonl"),
) -> None:
    """Play episodes and write them as JSON Lines.

    Args:
        env: An environment; `macredit envs` lists them. Your own: module:Class.
        n: How many episodes.
        group: Members of each task's group: they face one problem and answer differently.
        seed: Draws tasks and replies; the same seed writes the same file.
        out: The episodes file.
    """
    from macredit.progress import progress
    from macredit.rollout import play as play_plans
    from macredit.rollout import tasks_of

    if n < 1 or group < 1:
        raise UserError(f"-n {n} --group {group} was given; expected at least 1 of each")
    world = world_of(RunConfig({"name": env, **env_args(arg, data)}, named(policy)))
    plans = tasks_of(seed, -(-n // group), group)[:n]
    with EpisodeWriter(out) as writer, progress("playing", n) as tick:

        def keep(episode: Episode) -> None:
            writer.write(episode)
            tick()

        try:
            episodes = play_plans(world, plans, on_end=keep)
        finally:
            writer.finish(plan.id for plan in plans)
    scored = [e.reward for e in episodes if e.scored and e.reward is not None]
    failed = [e for e in episodes if e.failed]
    mean = f"mean reward {sum(scored) / len(scored):.3f}" if scored else "no reward"
    say(f"{out}: {len(episodes)} episodes, {mean}, {len(failed)} failed")
    if failed:
        say(f"first failure: {failed[0].id} ended {failed[0].end} ({failed[0].error})")


@app.command
def credit(
    episodes: Path,
    *,
    method: str,
    preset: str = "paper",
    set_: Annotated[tuple[str, ...], Parameter(name="--set", consume_multiple=True, negative="")] = (),
    replays: Replays = Replays(),
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """One method on recorded episodes: credit and advantage of every turn.

    Args:
        episodes: An episodes file.
        method: A credit method; `macredit methods` lists them.
        preset: paper, code (what the released code does) or balanced.
        set_: KEY=VALUE, a setting of the method.
        json_: Print one JSON object and nothing else.
    """
    from macredit.measure import run_method
    from macredit.tables import turns_table

    with replaying(episodes, replays) as whatif:
        result = run_method(method, whatif, preset, pairs(set_, plain=True))
    credits = result.credits
    if credits is None:
        raise UserError(result.error or f"{method} gave no credit")
    for warning in credits.warnings:
        say(f"warning: {warning}")
    if json_:
        print(json.dumps(credits.to_json(method, preset, result.settings, result.cost)))
        return
    report = Report(f"{method} on {episodes}", (result,), credits.rows, exact_of(whatif))
    show(turns_table(credits))
    show(report.text())


@app.command
def measure(
    episodes: Path,
    *,
    replays: Replays = Replays(),
    out: Output = Path("report.html"),
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Every method that the record supports, cheapest first, and the report.

    Args:
        episodes: An episodes file.
        out: The report: .html, .json, .txt, or a picture with the extra `report`.
        json_: Print the report as one JSON object and nothing else.
    """
    from macredit.measure import measure as measure_all
    from macredit.rows import rows_of

    with replaying(episodes, replays) as whatif:
        results = measure_all(whatif)
    report = Report(f"Credit in {episodes.name}", tuple(results), rows_of(whatif.episodes), exact_of(whatif))
    report.save(out)
    if json_:
        print(json.dumps(report.to_json()))
    else:
        show(report.text())
    say(f"report: {out}")


@app.command
def value(
    game: Path,
    *,
    index: str = "shapley,banzhaf,loo",
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Values of a cooperative game, exactly, from the worths of all its coalitions.

    Args:
        game: {"players": ["a", "b"], "worths": {"": 0, "a": 1, "b": 1, "a,b": 3}} or {"n": 3, "table": [2**n numbers]}.
        index: Indices, with commas: shapley, banzhaf, loo.
        json_: Print one JSON object and nothing else.
    """
    from macredit.values import INDICES, read_game, values_of

    names = index.split(",")
    players, table = read_game(game)
    values = {name: values_of(name, table) for name in names}
    if json_:
        exact = {name: [0.0] * len(players) for name in names}
        print(json.dumps({"players": players, "values": values, "stderr": exact, "evaluations": len(table)}))
        return
    shown = Table("player", *names, title=f"{len(players)} players, indices of {', '.join(INDICES)}")
    for i, player in enumerate(players):
        shown.add_row(player, *(f"{values[name][i]:.6g}" for name in names))
    show(shown)


@app.command
def compare(
    env: str,
    *,
    methods: str = "grpo,dr_mas,m_grpo,sharp,c3,difference,shapley",
    policy: Policies = (),
    arg: Arguments = (),
    data: Data = "",
    seeds: int = 5,
    budget: int = 64,
    steps: int = 0,
    out: Output = Path("comparison"),
) -> None:
    """Several methods on the same rollouts and budget, beside the exact credit.

    Args:
        env: An environment whose exact credit is known makes the comparison worth most.
        methods: Credit methods, with commas.
        seeds: Independent repetitions.
        budget: Terminal evaluations (originals and replays) each method may use in one seed.
        steps: Training steps for learning curves, from fresh policies; 0: none.
        out: The folder for comparison.json and report.html.
    """
    from macredit.compare import compare as compare_methods
    from macredit.tables import comparison_tables
    from macredit.train import train as train_team

    config = RunConfig({"name": env, **env_args(arg, data)}, named(policy or ("scripted:perfect",)))
    world = world_of(config)

    def curve(method: str, seed: int) -> Sequence[float]:
        t = TrainConfig(steps=steps, tasks=4, group=8, seed=seed, evaluate_tasks=0, save_every=steps)
        own = replace(config, method=MethodConfig(method), train=t)
        rows = train_team(world_of(own), own, out / "training" / f"{method}-{seed}")
        return [row["reward"] for row in rows if "reward" in row]

    found, first = compare_methods(world, methods.split(","), seeds, budget, curve if steps else None)
    write_atomically(out / "comparison.json", json.dumps([c.json() for c in found], indent=1).encode())
    rows = next(r.credits.rows for r in first if r.credits is not None)
    report = Report(
        f"{env}: {len(found)} methods at {budget} evaluations", tuple(first), rows, world.env.exact_credit()
    )
    report.save(out / "report.html")
    show(comparison_tables(found))
    say(f"numbers: {out / 'comparison.json'}; report of the first seed: {out / 'report.html'}")


@app.command
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
    settings: Annotated[TrainConfig | None, Parameter(name="*")] = None,
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
        changed = (config, env, arg, data, policy, model, lora, method, preset, settings, rate)
        if any(given not in (None, "", (), 0) for given in changed):
            raise UserError("--resume goes on with the configuration the run keeps; leave out what would change it")
        run, out = read_config(resume / "config.json"), resume
    else:
        run = read_config(config) if config else RunConfig({})
        run = _changed(run, env, env_args(arg, data), named(policy), model, lora, method, preset, settings, rate)
    if run.train.steps < 1:
        raise UserError(f"steps is {run.train.steps}; expected at least 1")
    world = world_of(run)
    solo = world_of(_solo(run, world)) if run.train.solo else None
    trackers = [writer(out / "tensorboard")] if tensorboard else []
    metrics = train_team(world, run, out, solo=solo, resume=resume is not None, trackers=trackers)
    report_of(out).save(out / "report.html")
    show(training_table(metrics))
    say(f"run: {out}; report: {out / 'report.html'}; use a trained agent by --policy NAME={out}/NAME")


@app.command
def report(source: Path, *, out: Output = Path("report.html")) -> None:
    """The report of an episodes file or of a training run, from what is recorded.

    Args:
        source: An episodes file, or a run's folder.
        out: .html, .json, .txt, or a picture with the extra `report`.
    """
    report_of(source).save(out)
    say(f"report: {out}")


@app.command
def methods(
    *,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
    markdown: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """The credit methods: what each estimates, what it needs, where it comes from.

    Args:
        json_: Print one JSON object and nothing else.
        markdown: Print the table of the README.
    """
    from macredit.credit import METHODS, resolve, settings_dict

    if json_:
        shown = {
            name: {
                "grain": m.grain, "needs": sorted(m.needs), "estimand": m.estimand, "axioms": sorted(m.axioms),
                "presets": list(m.presets), "settings": settings_dict(resolve(name)[1]), "paper": m.paper,
            }
            for name, m in METHODS.items()
        }  # fmt: skip
        print(json.dumps(shown))
        return
    header = ("method", "needs", "what its credit estimates", "presets", "source")
    rows = [(n, ", ".join(sorted(m.needs)), m.estimand, ", ".join(m.presets), m.paper) for n, m in METHODS.items()]
    if markdown:
        print("\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)))
        return
    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    show(table)


@app.command
def envs() -> None:
    """The environments, and the arguments they take."""
    import inspect

    from macredit.envs import ENVS, env_class

    table = Table("environment", "what the team does", "arguments")
    for name in ENVS:
        cls = env_class(name)
        takes = [str(p) for p in inspect.signature(cls).parameters.values() if p.kind is not p.VAR_KEYWORD]
        table.add_row(name, (inspect.getdoc(cls) or "").partition("\n")[0], ", ".join(takes))
    show(table)


@check.command(name="env")
def check_env(name: str, *, arg: Arguments = ()) -> None:
    """PettingZoo's own tests and ours, on an environment (module:Class for your own)."""
    from macredit.check import check_env as run_checks
    from macredit.envs import make_env

    _verdict(run_checks(make_env(name, **pairs(arg))))


@check.command(name="policy")
def check_policy(policy: str) -> None:
    """The policy contract, on NAME=KIND[:ARG] or NAME=FOLDER."""
    from macredit.agents import make_policy, parse_policy
    from macredit.check import check_policy as run_checks

    name, spec = parse_policy(policy)
    _verdict(run_checks(make_policy(spec, name=name)))


@check.command(name="method")
def check_method(name: str) -> None:
    """What a credit method promises, on random episodes."""
    from macredit.check import check_method as run_checks

    _verdict(run_checks(name))


# -- from words to worlds ----------------------------------------------------------------------------------------------


def world_of(config: RunConfig) -> World:
    """Environment and policies of a configuration.

    Raises:
        UserError: an unknown name, or an agent for whom nobody speaks.
    """
    from macredit.agents import make_policies
    from macredit.envs import make_env

    about = dict(config.env)
    if not about.get("name"):
        raise UserError("no environment was named; give --env NAME (`macredit envs` lists them)")
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


@contextlib.contextmanager
def replaying(path: Path, replays: Replays) -> Any:
    """The recorded episodes, with replays in the world that was given or recorded."""
    from macredit.progress import progress

    episodes = read_episodes(path)
    world = None
    if replays.policy or replays.env:
        config = RunConfig(_env_of(episodes, replays), named(replays.policy), _agents_of(episodes))
        world = world_of(config)
    with progress("replaying", None) as tick:
        whatif = WhatIf(
            episodes, world, absence=replays.absence, players=replays.players, replicates=replays.replicates,
            on_end=tick,
        )  # fmt: skip
        yield whatif
    if replays.record is not None:
        write_episodes(replays.record, whatif.recorded())


def _env_of(episodes: Sequence[Episode], replays: Replays) -> dict[str, Any]:
    if replays.env:
        return {"name": replays.env, **pairs(replays.arg)}
    recorded = {json.dumps([e.env, e.env_args], sort_keys=True) for e in episodes}
    first = episodes[0]
    if len(recorded) > 1 or first.env is None:
        raise UserError("the episodes name no single environment to replay in; give --env NAME")
    code = [text for text in (first.env, *(first.env_args or {}).values()) if _CODE.fullmatch(str(text))]
    if code:
        raise UserError(f"the record names code to run, {code[0]!r}; if you trust it, give --env and --arg yourself")
    return {**(first.env_args or {}), **pairs(replays.arg), "name": first.env}


def _agents_of(episodes: Sequence[Episode]) -> tuple[AgentConfig, ...]:
    """Roles and policies as recorded: a replay asks the team that played."""
    team = episodes[0].team
    if team is None or any(e.team != team for e in episodes):
        return ()
    return tuple(AgentConfig(a.name, a.role, a.policy, trainable=a.trainable) for a in team.agents)


_CODE = re.compile(r"[^\s:/]+:\w+")
"""``module:name``: imported and called only where the user names it, never because a record does."""


def exact_of(whatif: WhatIf) -> Mapping[str, Mapping[str, float]] | None:
    """The exact credit, where the episodes' environment knows it."""
    from macredit.env import TeamEnv
    from macredit.envs import ENVS, env_class, make_env

    if whatif.world is not None:
        return whatif.world.env.exact_credit()
    first = whatif.episodes[0]
    same = all((e.env, e.env_args) == (first.env, first.env_args) for e in whatif.episodes)
    if not same or first.env not in ENVS or env_class(first.env).exact_credit is TeamEnv.exact_credit:
        return None
    return make_env(first.env, **(first.env_args or {})).exact_credit()


def report_of(source: Path) -> Report:
    """The report of an episodes file or a run's folder."""
    from macredit.measure import measure as measure_all
    from macredit.rows import rows_of
    from macredit.train import read_metrics

    episodes = read_episodes(source / "episodes.jsonl" if source.is_dir() else source)
    metrics = read_metrics(source) if (source / "metrics.jsonl").exists() else []
    whatif = WhatIf(episodes)
    results = tuple(measure_all(whatif))
    return Report(str(source), results, rows_of(episodes), exact_of(whatif), tuple(metrics))


def _changed(
    run: RunConfig, env: str, args: Mapping[str, Any], policies: Mapping[str, Any], model: str, lora: int,
    method: str, preset: str, settings: TrainConfig | None, rate: float | None,
) -> RunConfig:  # fmt: skip
    """A configuration with what the flags say instead."""
    everyone = {"*": {"kind": "hf", "model": model, **({"lora": {"rank": lora}} if lora else {})}} if model else {}
    return replace(
        run,
        env={**({"name": env} if env else run.env), **args},
        policies={**run.policies, **everyone, **policies},
        method=replace(run.method, name=method or run.method.name, preset=preset or run.method.preset),
        train=replace(run.train, **(settings.given if settings else {})),
        learner={**run.learner, **({"rate": rate} if rate is not None else {})},
    )


def _solo(run: RunConfig, world: World) -> RunConfig:
    """The same tasks for one agent alone, spoken for by the orchestrator's policy."""
    lead = world.env.team[world.env.team.orchestrator].policy
    spec = run.policies.get(lead, run.policies.get("*", {}))
    return RunConfig({**run.env, "solo": True}, {"*": spec})


# -- what people see ---------------------------------------------------------------------------------------------------


def _verdict(results: Sequence[Any]) -> None:
    table = Table("check", "", "what happened")
    for result in results:
        table.add_row(result.name, Text("ok", "green") if result.ok else Text("failed", "red"), result.detail)
    show(table)
    failed = sum(not result.ok for result in results)
    if failed:
        say(f"{failed} of {len(results)} checks failed")
        raise SystemExit(1)


def show(result: RenderableType) -> None:
    """A result on standard output; names and texts are never read as markup."""
    Console(markup=False, highlight=False).print(result)


def say(text: str) -> None:
    """A line for people, on standard error."""
    from macredit.report.text import safe

    Console(stderr=True, soft_wrap=True, highlight=False).print(safe(text), markup=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 done, 1 a check failed, 2 the input is wrong, 3 something outside failed."""
    if os.getcwd() not in sys.path:
        sys.path.append(
            os.getcwd()
        )  # module:name of the user's own, as beside the file; never before what is installed
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without Unicode shows escapes
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except CycloptsError as error:
        say(f"macredit: {error}")
        return 2
    except UserError as error:
        say(f"macredit: {error}")
        return 2
    except OutsideError as error:
        say(f"macredit: {error}")
        return 3
    except BrokenPipeError:  # whoever read the output has left; nothing more can be said to them
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 3
    except OSError as error:
        say(f"macredit: {error}")
        return 3
    except KeyboardInterrupt:
        say("macredit: interrupted; what was complete is kept")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
