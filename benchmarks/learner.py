"""A learner's step on ragged agent batches, beside the straightforward padded loop on the same rows in the same run.

    python benchmarks/learner.py [--quick] [--strict] [--model FILE.gguf]

Both sides start from the same weights and must find the same gradient. Times are medians of alternating steps, and
tokens are those of the rows, whatever a side computes of them; memory is the peak of a step in a process of its own,
above what the loaded model takes. Exit status 1 if gradients differ or ours needs more memory; with ``--strict``, on a
machine that does nothing else, if ours is not fast enough, too.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from gpu_plain import Plain
from values_rows import Row, at_least, at_most, small, times, told

from macredit.agents import HF
from macredit.learn import Learner, LearnerConfig, TrainRow

Step = Callable[[], object]
BATCH_TOKENS = 4096
"""Of both sides."""
CLOSE = 1e-3
"""The largest norm of the difference of two gradients, as a part of the norm of one."""
FASTER, MEMORY = 2.0, 1.0
"""Ours by the padded loop: at least this speed, at most this memory."""


@dataclass(frozen=True)
class Shape:
    """How many rows, and what they share: a task's members their prompt, a member's turns all that was said before."""

    tasks: int
    group: int
    turns: int


BATCHES = {
    "conversations": Shape(tasks=2, group=4, turns=4),
    "groups of one turn": Shape(tasks=3, group=8, turns=1),
    "nothing in common": Shape(tasks=16, group=1, turns=1),
}


def rows_of(shape: Shape, vocabulary: int, seed: int = 0) -> list[TrainRow]:
    """Rows in the order in which episodes come in: random ids, lengths as uneven as agents make them."""
    rng = np.random.default_rng(seed)
    rows: list[TrainRow] = []
    for _ in range(shape.tasks):
        prompt = rng.integers(vocabulary, size=rng.integers(50, 250))
        for _ in range(shape.group):
            context = prompt
            for _ in range(rng.integers(1, shape.turns, endpoint=True)):
                reply = rng.integers(vocabulary, size=max(2, int(rng.lognormal(3.4, 0.7))))
                ids = np.concatenate([context, reply])
                mask = np.arange(len(ids)) >= len(context)
                rows.append(TrainRow(ids, mask, np.zeros(len(ids)), float(rng.normal()), 1.0, len(rows)))
                context = np.concatenate([ids, rng.integers(vocabulary, size=rng.integers(10, 80))])
    return [rows[n] for n in rng.permutation(len(rows))]


def ours(policy: HF, rows: Sequence[TrainRow]) -> Step:
    """One update of a learner."""
    learner = Learner(policy, LearnerConfig(batch_tokens=BATCH_TOKENS))
    return lambda: learner.update(rows)


def padded(policy: HF, rows: Sequence[TrainRow]) -> Step:
    """One step of the padded loop."""
    loop = Plain(policy.module, 1e-5, BATCH_TOKENS, "float32")
    return lambda: loop.step(rows)


SIDES = {"ours": ours, "padded loop": padded}


def made(model: str, shape: Shape) -> tuple[HF, list[TrainRow]]:
    """A policy, and rows that it sampled as far as their log-probabilities tell."""
    policy = HF(model, name="p")
    rows = rows_of(shape, policy.module.config.vocab_size)
    return policy, [replace(row, logprob=logp) for row, logp in zip(rows, policy.logprobs(rows), strict=True)]


def gradient(policy: HF) -> torch.Tensor:
    """The last step's, flat."""
    return torch.cat([p.grad.flatten() for p in policy.module.parameters() if p.grad is not None])


def compared(model: str, shape: Shape, repeats: int) -> tuple[dict[str, float], int, float]:
    """Tokens a second by side, tokens, and how far apart the gradients of the first steps are."""
    policies, steps = {}, {}
    for name, side in SIDES.items():
        policies[name], rows = made(model, shape)
        steps[name] = side(policies[name], rows)
    for step in steps.values():
        step()  # from the same weights; and to warm up
    one, two = (gradient(policies[name]) for name in SIDES)
    seconds: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(repeats):
        for name, step in steps.items():
            begun = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - begun)
    tokens = sum(len(row.ids) for row in rows)
    speed = {name: tokens / statistics.median(spent) for name, spent in seconds.items()}
    return speed, tokens, float((one - two).norm() / two.norm())


def peak(model: str, batch: str, shape: Shape, side: str) -> float:
    """MB that a step of one side needs above the loaded model, in a process of its own."""
    command = [sys.executable, __file__, "--model", model, "--tasks", str(shape.tasks), "--memory-of", batch, side]
    return float(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def step_memory(model: str, shape: Shape, side: str) -> float:
    """What :func:`peak` runs."""
    step = SIDES[side](*made(model, shape))
    Path("/proc/self/clear_refs").write_text("5")  # the highest use of memory is counted from here
    before = _resident("VmRSS")
    step()
    return _resident("VmHWM") - before


def _resident(what: str) -> float:
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def judged(
    batch: str, speed: dict[str, float], tokens: int, differ: float, memory: dict[str, float]
) -> tuple[Row, Row, Row]:
    """A batch's rows: speed, which the machine's other work disturbs; memory; gradients."""
    ours, theirs = (speed[name] for name in SIDES)
    how = f"{ours:,.0f} against {theirs:,.0f} tokens/s, of {tokens:,}"
    faster = Row(f"{batch}: speed, by the padded loop's", times, at_least(FASTER), None, ours / theirs, how)
    what = f"{batch}: memory, by the padded loop's"
    if memory:
        mine, other = (memory[name] for name in SIDES)
        less = Row(what, times, at_most(MEMORY), None, mine / other, f"{mine:,.0f} against {other:,.0f} MB")
    else:
        less = Row(what, times, None, None, None, "needs Linux and, with --quick, is of the first batch alone")
    how = "norm of their difference, by the norm of one"
    return faster, less, Row(f"{batch}: gradients differ by", small, at_most(CLOSE), None, differ, how)


def main(arguments: list[str] | None = None) -> int:
    """Print the rows; the exit status."""
    options = _options(arguments)
    shapes = {name: replace(BATCHES[name], tasks=options.tasks or BATCHES[name].tasks) for name in options.batches}
    if options.memory_of:
        batch, side = options.memory_of
        print(json.dumps(step_memory(options.model, shapes[batch], side)))
        return 0
    print(f"{options.model}: {torch.get_num_threads()} threads, medians of {options.repeats}")
    return told(measured(options, shapes))


def measured(options: argparse.Namespace, shapes: Mapping[str, Shape]) -> Iterator[tuple[Row, bool]]:
    """The rows of every batch, and whether each is judged."""
    for n, (batch, shape) in enumerate(shapes.items()):
        measurable = platform.system() == "Linux" and not (options.quick and n)
        memory = {side: peak(options.model, batch, shape, side) for side in SIDES if measurable}
        speed, *exact = judged(batch, *compared(options.model, shape, options.repeats), memory)
        yield speed, options.strict
        yield from ((row, True) for row in exact)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny", help="as policies name models")
    parser.add_argument("--quick", action="store_true", help="few steps, memory of the first batch alone")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a speed misses its target, too")
    parser.add_argument("--repeats", type=int, default=0, help="timed steps of each side; 0: 9, and 3 with --quick")
    parser.add_argument("--tasks", type=int, default=0, help="tasks of each batch; 0: as many as it has")
    parser.add_argument("--batches", type=_batches, default=list(BATCHES), help=f"by comma: {', '.join(BATCHES)}")
    parser.add_argument("--memory-of", nargs=2, metavar=("BATCH", "SIDE"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.repeats = options.repeats or (3 if options.quick else 9)
    return options


def _batches(names: str) -> list[str]:
    for name in names.split(","):
        if name not in BATCHES:
            raise argparse.ArgumentTypeError(f"{name!r} is no batch; expected some of {', '.join(BATCHES)}")
    return names.split(",")


if __name__ == "__main__":
    sys.exit(main())
