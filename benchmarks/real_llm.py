"""The stages of ``real_llm.sh``: warm start, difficulty, play, credit with real replays, training, held-out scores.

Every stage leaves files under --out and is skipped when they are there, so a killed run goes on where it stood.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from macredit.cli import report_of, world_of
from macredit.config import MethodConfig, RunConfig, TrainConfig
from macredit.episode import Episode, read_episodes, write_atomically, write_episodes
from macredit.evaluate import evaluate, scored
from macredit.measure import measure
from macredit.report import Report
from macredit.rollout import play, tasks_of
from macredit.rows import rows_of
from macredit.run_folder import checkpoints, read_metrics
from macredit.train import train
from macredit.whatif import WhatIf

ROLES = ("planner", "solver", "verifier")
CANDIDATES: tuple[tuple[str, dict[str, Any], float], ...] = (
    ("needle_haystack", {"min_num_statements": 3, "max_num_statements": 3}, 1.0),
    ("needle_haystack", {"min_num_statements": 3, "max_num_statements": 3}, 0.8),
    ("needle_haystack", {"min_num_statements": 4, "max_num_statements": 4}, 1.0),
    ("needle_haystack", {"min_num_statements": 2, "max_num_statements": 2}, 1.0),
    ("letter_counting", {"min_words": 3, "max_words": 6}, 1.0),
    ("chain_sum", {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}, 1.0),
)
"""(data set, its settings, sampling temperature), in the order in which they are tried."""
WANTED = (0.15, 0.6)
"""Mean reward, before training, of a team with something to learn."""
CREDITED = ("dr_mas", "m_grpo", "sharp", "c3")

app = App(help=__doc__)
say = Console(stderr=True, soft_wrap=True, highlight=False).print


@Parameter(name="*")
@dataclass(frozen=True)
class Settings:
    """What is run."""

    model: str
    """The .gguf file."""
    out: Path = Path("runs/real_llm")
    """Where everything goes."""
    steps: int = 30
    """Training steps of each run."""
    tasks: int = 4
    """Tasks a step."""
    group: int = 4
    """Rollouts a task."""
    seeds: int = 2
    """Runs of each method."""
    methods: str = "grpo,sharp"
    """Methods to train with, the baseline first."""
    warm: int = 6
    """Updates of imitating perfect scripted episodes before training: teaches the form of the replies."""
    reply: int = 32
    """The longest reply, in tokens."""
    warm_rate: float = 1e-3
    """Learning rate of the adapters while imitating."""
    rate: float = 3e-4
    """Learning rate of the adapters."""
    first_seed: int = 0
    """The first run's seed."""
    datasets: str = "needle_haystack,letter_counting,chain_sum"
    """Data sets among which one is picked."""


@app.default
def real_llm(s: Settings) -> None:
    """Run all stages."""
    _warm(s)
    env, temperature = _pick(s)
    config = RunConfig(env, _policies(s, temperature))
    episodes = _play(s, config)
    _credit(s, config)
    for method in s.methods.split(","):
        for seed in range(s.first_seed, s.first_seed + s.seeds):
            _train(s, config, method, seed)
    _summary(s, episodes)


def _env(dataset: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Two loops: what only the verifier knows reaches the solver by a rejection."""
    return {"name": "solve_verify_v0", "dataset": dataset, "settings": settings, "loops": 2}


def _policies(s: Settings, temperature: float = 1.0) -> dict[str, dict[str, Any]]:
    """One adapter a role on one base; after the warm start, the adapters that it left."""
    form: dict[str, Any] = {"kind": "hf", "max_tokens": s.reply, "sampling": {"temperature": temperature}}
    if (s.out / "warm" / "measured.json").exists():
        return {role: {**form, "model": str(s.out / "warm" / role)} for role in ROLES}
    return {role: {**form, "model": s.model, "lora": {"rank": 16}} for role in ROLES}


def _warm(s: Settings) -> None:
    """Measure the base team; where asked for, imitate a perfect scripted team for a few updates and measure again."""
    out = s.out / "warm"
    if not s.warm or (out / "measured.json").exists():
        return
    shutil.rmtree(out, ignore_errors=True)
    env = _env(*CANDIDATES[0][:2])
    base = world_of(RunConfig(env, _policies(s)))
    taught = s.out / "taught.jsonl"
    teacher = world_of(RunConfig(env, {"*": {"kind": "scripted", "style": "perfect"}}))
    write_episodes(taught, play(teacher, tasks_of(3, 8, prefix="taught-")))
    before = evaluate(base, max(2, s.tasks), s.group)
    t = TrainConfig(
        steps=0, warm_start=str(taught), warm_steps=s.warm, evaluate_tasks=max(2, s.tasks), evaluate_k=s.group
    )
    (after,) = train(base, RunConfig(env, _policies(s), train=t, learner={"rate": s.warm_rate}), out)
    say(f"base team: mean reward {before.avg:.3f}; after {s.warm} updates: {after['evaluation']['avg']:.3f}")
    found = {"before": before.json(), "after": after["evaluation"]}
    write_atomically(out / "measured.json", json.dumps(found, indent=1).encode())


def _pick(s: Settings) -> tuple[dict[str, Any], float]:
    """The first data set and difficulty at which the team earns enough, not too much, and most groups are mixed."""
    file = s.out / "difficulty.json"
    if not file.exists():
        tried: list[dict[str, Any]] = []
        candidates = [candidate for candidate in CANDIDATES if candidate[0] in s.datasets.split(",")]
        if not candidates:
            known = ", ".join(dict.fromkeys(candidate[0] for candidate in CANDIDATES))
            raise SystemExit(f"--datasets {s.datasets} names none of {known}")
        for dataset, settings, temperature in candidates:
            world = world_of(RunConfig(_env(dataset, settings), _policies(s, temperature)))
            episodes = play(world, tasks_of(1, max(2, 2 * s.tasks), s.group, "pick-"))
            mean, mixed = _mean(episodes), _mixed(episodes)
            what = {"dataset": dataset, "settings": settings, "temperature": temperature}
            tried.append({**what, "mean": mean, "mixed": mixed})
            size = ", ".join(f"{name}={value}" for name, value in settings.items() if name.startswith("max_"))
            say(f"{dataset}, {size}, temperature {temperature}: mean {mean:.3f}, mixed groups {mixed:.0%}")
            if WANTED[0] <= mean <= WANTED[1] and mixed > 0.5:
                break
        best = min(tried, key=lambda t: (not WANTED[0] <= t["mean"] <= WANTED[1], -t["mixed"]))
        if not WANTED[0] <= best["mean"] <= WANTED[1]:
            say(f"none lies in {WANTED[0]} to {WANTED[1]}: going on with the most mixed one; expect a weak signal")
        say(f"chosen: {best['dataset']}, temperature {best['temperature']}")
        write_atomically(file, json.dumps({"chosen": best, "tried": tried}, indent=1).encode())
    best = json.loads(file.read_text())["chosen"]
    return _env(best["dataset"], best["settings"]), best["temperature"]


def _mean(episodes: Sequence[Episode]) -> float:
    return float(np.mean([e.reward for e in episodes if e.reward is not None]))


def _mixed(episodes: Sequence[Episode]) -> float:
    """Share of groups whose rewards differ."""
    groups: dict[str, set[float | None]] = {}
    for e in episodes:
        groups.setdefault(e.task, set()).add(e.reward)
    return float(np.mean([len(rewards) > 1 for rewards in groups.values()]))


def _play(s: Settings, config: RunConfig) -> list[Episode]:
    file = s.out / "episodes.jsonl"
    if not file.exists():
        write_episodes(file, play(world_of(config), tasks_of(2, s.tasks, s.group, "measured-")))
    return read_episodes(file)


def _credit(s: Settings, config: RunConfig) -> None:
    """The four methods on the same episodes, with real replays."""
    page = s.out / "credit.html"
    if page.exists():
        return
    episodes = read_episodes(s.out / "episodes.jsonl")
    results = measure(WhatIf(episodes, world_of(config)), CREDITED)
    report = Report("SmolLM2-135M, three roles", tuple(results), rows_of(episodes))
    report.save(s.out / "credit.json")
    report.save(page)
    Console().print(report.text())


def _train(s: Settings, config: RunConfig, method: str, seed: int) -> None:
    out = s.out / f"{method}-{seed}"
    t = TrainConfig(
        steps=s.steps, tasks=s.tasks, group=s.group, seed=seed, evaluate_tasks=max(2, 2 * s.tasks), evaluate_k=s.group,
        save_every=1,
    )  # fmt: skip
    config = replace(config, method=MethodConfig(method), train=t, learner={"rate": s.rate})
    if (out / "report.html").exists():
        return
    resume = bool(checkpoints(out))
    if not resume and out.exists():
        shutil.rmtree(out)
    train(world_of(config), config, out, resume=resume)
    report_of(out).save(out / "report.html")


def _summary(s: Settings, episodes: Sequence[Episode]) -> None:
    """Held-out scores before and after, the training curve in thirds, and its picture."""
    score = scored(list(episodes))
    say(f"before training, on {score.tasks} tasks: avg@{score.k} {score.avg:.3f}, pass@{score.k} {score.passed:.3f}")
    table = Table("run", "held-out before", "held-out after", "reward, first third", "last third", "seconds a step")
    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    for method in s.methods.split(","):
        for seed in range(s.first_seed, s.first_seed + s.seeds):
            rows = read_metrics(s.out / f"{method}-{seed}")
            held = [row["evaluation"]["avg"] for row in rows if "evaluation" in row]
            steps = [row for row in rows if "reward" in row]
            rewards = [row["reward"] for row in steps]
            third = max(1, len(steps) // 3)
            seconds = float(np.median([row["seconds"] for row in steps]))
            table.add_row(
                f"{method}, seed {seed}", f"{held[0]:.3f}", f"{held[-1]:.3f}", f"{np.mean(rewards[:third]):.3f}",
                f"{np.mean(rewards[-third:]):.3f}", f"{seconds:.0f}",
            )  # fmt: skip
            axes.plot([row["step"] for row in steps], rewards, label=f"{method}, seed {seed}", linewidth=1.2)
    axes.set(xlabel="step", ylabel="mean reward", ylim=(0, 1))
    axes.legend(frameon=False)
    figure.savefig(s.out / "curves.svg")
    Console().print(table)


if __name__ == "__main__":
    app()
