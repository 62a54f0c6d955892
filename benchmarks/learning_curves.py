"""A random tiny Llama with a LoRA adapter per agent learns ``coalition_v0`` from scratch with each headline method.

    python benchmarks/learning_curves.py        (writes learning_curves.svg beside this file)

Same tasks, same group of 8 terminal evaluations a task; C3 trains three of an episode's seven turns a tree, so that its
steps are cheaper and it takes more of them.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

from macredit.cli import world_of
from macredit.config import MethodConfig, RunConfig, TrainConfig
from macredit.train import train

STEPS = {"dr_mas": 20, "m_grpo": 20, "sharp": 20, "c3": 60}


def run(method: str, out: Path) -> tuple[list[float], float, float, float]:
    """(mean reward by step, held-out reward before and after, seconds)."""
    t = TrainConfig(steps=STEPS[method], save_every=STEPS[method], evaluate_tasks=32)
    everyone = {"*": {"kind": "hf", "model": "tiny", "lora": {"rank": 16}}}
    config = RunConfig({"name": "coalition_v0"}, everyone, (), MethodConfig(method), t)
    begun = time.perf_counter()
    rows = train(world_of(config), config, out)
    held = [row["evaluation"]["avg"] for row in rows if "evaluation" in row]
    return [row["reward"] for row in rows if "reward" in row], held[0], held[-1], time.perf_counter() - begun


def main() -> None:
    """Train with all four, print the table, draw the curves."""
    table = Table("method", "steps", "held-out before", "held-out after", "seconds")
    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    with tempfile.TemporaryDirectory() as folder:
        for method in STEPS:
            curve, before, after, seconds = run(method, Path(folder) / method)
            table.add_row(method, str(len(curve)), f"{before:.3f}", f"{after:.3f}", f"{seconds:.0f}")
            axes.plot(np.arange(1, len(curve) + 1) * 64, curve, label=method, linewidth=1.2)
    axes.set(xlabel="terminal evaluations (8 tasks × 8 a step)", ylabel="mean reward", ylim=(0, 1))
    axes.legend(frameon=False)
    figure.savefig(Path(__file__).with_name("learning_curves.svg"))
    Console().print(table)


if __name__ == "__main__":
    main()
