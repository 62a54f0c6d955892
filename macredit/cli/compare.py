"""``macredit compare``: methods side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from macredit.cli.cluster import Ray, cluster_of, worlds
from macredit.cli.options import Arguments, Data, Output, Policies
from macredit.cli.screen import say, show
from macredit.cli.words import env_args, named
from macredit.config import MethodConfig, RunConfig, TrainConfig
from macredit.episode import write_atomically
from macredit.report import Report


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
    ray: Ray = None,
    ray_workers: int = 0,
    ray_engines: int | None = None,
) -> None:
    """Several methods on the same rollouts and budget, beside the exact credit.

    Args:
        env: An environment whose exact credit is known makes the comparison worth most.
        methods: Credit methods, with commas.
        seeds: Independent repetitions.
        budget: Terminal evaluations (originals and replays) each method may use in one seed.
        steps: Training steps for learning curves, from fresh policies; 0: none.
        out: The folder for comparison.json and report.html.
        ray_workers: Rollout workers on Ray; 0: 2 of them.
        ray_engines: Engines on Ray that speak for them; none: workers speak for themselves.
    """
    from macredit.compare import compare as compare_methods
    from macredit.tables import comparison_tables
    from macredit.train import train as train_team
    from macredit.truth import truth

    config = RunConfig({"name": env, **env_args(arg, data)}, named(policy or ("scripted:perfect",)))
    where = cluster_of(config, ray, ray_workers, ray_engines)

    def curve(method: str, seed: int) -> Sequence[float]:
        t = TrainConfig(steps=steps, tasks=4, group=8, seed=seed, evaluate_tasks=0, save_every=steps)
        own = replace(config, method=MethodConfig(method), train=t)
        with worlds(own, where) as (team, _):
            rows = train_team(team, own, out / "training" / f"{method}-{seed}")
        return [row["reward"] for row in rows if "reward" in row]

    with worlds(config, where, learn=False, companies=2 if steps else 1) as (world, _):
        found, first = compare_methods(world, methods.split(","), seeds, budget, curve if steps else None)
        known = truth(world)
    write_atomically(out / "comparison.json", json.dumps([c.json() for c in found], indent=1).encode())
    rows = next(r.credits.rows for r in first if r.credits is not None)
    report = Report(f"{env}: {len(found)} methods at {budget} evaluations", tuple(first), rows, **known._asdict())
    report.save(out / "report.html")
    show(comparison_tables(found))
    say(f"numbers: {out / 'comparison.json'}; report of the first seed: {out / 'report.html'}")
