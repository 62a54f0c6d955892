"""The embedded default: a team whose true credit is known, trained with four methods and measured with all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from macredit.config import AgentConfig, MethodConfig, RunConfig, TrainConfig
from macredit.episode import write_atomically, write_episodes
from macredit.measure import measure
from macredit.progress import progress
from macredit.report import AgentRow, MethodResult, Report
from macredit.rollout import World, play, tasks_of
from macredit.rows import rows_of
from macredit.train import train
from macredit.truth import Truth, truth
from macredit.whatif import WhatIf

TRAINED = ("dr_mas", "m_grpo", "sharp", "c3")
MEASURED = (*TRAINED, "difference", "shapley")
STEPS = 20
RATE = 1.0
"""Slow enough to see the curves rise."""
ENV: Mapping[str, Any] = {"name": "coalition_v0", "preset": "glove"}
"""Only a and one of b, c together earn 1: b and c stand in for each other, so the schemes disagree."""
POLICIES: Mapping[str, Mapping[str, Any]] = {
    "planner": {"kind": "scripted", "style": "perfect"},
    **{name: {"kind": "table", "replies": ["help", "pass"]} for name in "abc"},
}


def run_demo(world_of: Callable[[RunConfig], World], out: Path, seed: int = 0) -> RenderableType:
    """Train with each of four methods, then measure the team that ``sharp`` trained.

    Args:
        world_of: makes environment and policies of a configuration.
        out: a folder of its own: one run a method, ``episodes.jsonl``, ``demo.json``, ``report.html``.
        seed: draws tasks and replies.

    Returns:
        The tables to show.
    """
    worlds: dict[str, World] = {}
    curves: dict[str, list[float]] = {}
    metrics: dict[str, list[dict[str, Any]]] = {}
    for name in TRAINED:
        config = _config(name, seed)
        worlds[name] = world_of(config)
        if (out / name / "config.json").exists():  # an earlier demo's run
            shutil.rmtree(out / name)
        metrics[name] = train(worlds[name], config, out / name)
        curves[name] = [row["reward"] for row in metrics[name] if "reward" in row]
    world = worlds["sharp"]
    with progress("measuring", None) as tick:
        episodes = play(world, tasks_of(seed, 8, 8, prefix="measured-"))
        results = measure(WhatIf(episodes, world, on_end=tick), MEASURED)
    known = truth(world)
    write_episodes(out / "episodes.jsonl", episodes)
    report = Report(
        "A team with known credit: coalition_v0, glove", tuple(results), rows_of(episodes), known.exact,
        tuple(row for row in metrics["sharp"] if "reward" in row),
        ("The curve is the run with sharp; every method's run is in its own folder beside this page.",),
        known.exact_of,
    )  # fmt: skip
    report.save(out / "report.html")
    write_atomically(out / "demo.json", json.dumps({"curves": curves, "report": report.to_json()}, indent=1).encode())
    return Group(
        _trained(curves), "", _measured(results, known), "", *report.explanations, f"report: {out / 'report.html'}"
    )


def _config(method: str, seed: int) -> RunConfig:
    t = TrainConfig(steps=STEPS, tasks=8, group=8, seed=seed, evaluate_tasks=0, save_every=STEPS)
    planner = AgentConfig("planner", trainable=False)
    return RunConfig(ENV, POLICIES, (planner,), MethodConfig(method), t, {"rate": RATE})


def _trained(curves: Mapping[str, Sequence[float]]) -> Table:
    table = Table(
        "trained with", "first step", "middle", "last step", title="mean reward while training (best possible 1)"
    )
    for name, curve in curves.items():
        table.add_row(name, *(f"{curve[i]:.3f}" for i in (0, len(curve) // 2, -1)))
    return table


def _measured(results: Sequence[MethodResult], known: Truth) -> Table:
    agents = [row.agent for row in results[0].table]
    table = Table(
        "method",
        *agents,
        title="credit per agent beside the truth (mean over 64 episodes ± standard error)",
        caption=f"exact: {known.exact_of}",
    )
    for index, values in known.exact.items():
        table.add_row(f"exact {index}", *(f"{values[a]:.3f}" if a in values else "—" for a in agents), style="bold")
    for result in results:
        table.add_row(result.name, *(_cell(row) for row in result.table))
    return table


def _cell(row: AgentRow) -> str:
    if row.credit is None:
        return "—"
    credit = f"{row.credit:z.3f}"
    return f"{credit} ±{row.stderr:.3f}" if row.stderr is not None else credit
