"""CPU and GPU agree: log-probabilities, loss, gradient, the step, advantages; all beside plain autograd in float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gpu_bench import Bench, Line
from gpu_plain import Plain, token_log_probabilities
from gpu_rows import Size, team_rows

from macredit.advantage import normalise
from macredit.agents import make_policy
from macredit.learn import Learner, LearnerConfig, TrainRow
from macredit.learn.loss import FloatK
from macredit.values import shapley

RATE = 1e-5
TOLERANCE = {"float32": 2e-4, "bfloat16": 0.2}
"""Largest difference of a log-probability, in nats."""


@dataclass(frozen=True)
class Found:
    """What one way of computing finds on the same rows."""

    logprobs: FloatK
    loss: float
    gradient: float
    """Norm."""
    after: FloatK
    """Log-probabilities after the step."""


def parity(bench: Bench) -> Iterator[Line]:
    """The learner in float32 on the CPU and on the device, in bfloat16 on the device, against float64."""
    model = bench.model("toy" if bench.tiny else "small")
    rows = sampled_rows(2048 if bench.tiny else 8192)
    truth = by_autograd(model, rows)
    ways = {("cpu", "float32"), (str(bench.device), "float32"), (str(bench.device), bench.precision)}
    found = {way: by_learner(model, rows, *way) for way in sorted(ways)}
    for (device, precision), one in found.items():
        line = bench.check_finite("parity", compared(one, truth))
        bench.check(
            line["logprob_max"] <= TOLERANCE[precision],
            f"parity: log-probabilities on {device} in {precision} differ by {line['logprob_max']:.2g} from float64; "
            f"expected at most {TOLERANCE[precision]}",
        )
        exact = max(line["loss"], line["gradient"], line["after_step_max"])
        bench.check(
            precision != "float32" or exact <= 1e-3,
            f"parity: loss, gradient or step on {device} differ by {exact:.2g} from float64; expected at most 1e-3",
        )
        yield {"device": device, "precision": precision, "against": "float64 on the CPU, autograd", **line}
    difference = advantages_on(bench.device)
    bench.check(difference <= 1e-9, f"parity: advantages on {bench.device} differ by {difference:.2g} from the CPU's")
    yield {"device": str(bench.device), "advantage_max": difference}


def sampled_rows(vocabulary: int) -> list[TrainRow]:
    """Short rows whose ratios lie on both sides of the clip range: what they were sampled with is noise."""
    rows = team_rows(Size(2, 4, (48, 96), (4, 16), vocabulary))["solver"]
    rng = np.random.default_rng(1)
    return [replace(row, logprob=np.where(row.mask, rng.normal(-np.log(vocabulary), 0.2), 0.0)) for row in rows]


def by_autograd(model: str, rows: Sequence[TrainRow]) -> Found:
    """Row by row, float64, on the CPU."""
    policy: Any = make_policy({"kind": "hf", "model": model}, name="p")
    module = policy.module.double()
    loop = Plain(module, RATE, 1, "float32")

    def logprobs() -> FloatK:
        with torch.no_grad():
            parts = [token_log_probabilities(module, [row], loop.cast)[0].numpy()[row.mask[1:]] for row in rows]
        return np.concatenate(parts)

    before = logprobs()
    loss = loop.step(rows)
    return Found(before, loss, loop.norm, logprobs())


def by_learner(model: str, rows: Sequence[TrainRow], device: str, precision: str) -> Found:
    """What users run, on a device."""
    policy: Any = make_policy({"kind": "hf", "model": model, "device": device}, name="p")
    config = LearnerConfig(rate=RATE, batch_tokens=512, dual_clip=None, precision=precision)  # type: ignore[arg-type]
    learner = Learner(policy, config)

    def logprobs() -> FloatK:
        found = learner.policy.logprobs(rows)
        return np.concatenate([logp[row.mask] for row, logp in zip(rows, found, strict=True)])

    before = logprobs()
    metrics = learner.update(rows)
    return Found(before, metrics["loss"], metrics["gradient"], logprobs())


def compared(one: Found, truth: Found) -> dict[str, float]:
    """Differences: absolute in nats, relative for loss and gradient."""
    off = np.abs(one.logprobs - truth.logprobs)
    return {
        "logprob_max": float(off.max()),
        "logprob_mean": float(off.mean()),
        "loss": abs(one.loss / truth.loss - 1),
        "gradient": abs(one.gradient / truth.gradient - 1),
        "after_step_max": float(np.abs(one.after - truth.after).max()),
    }


def advantages_on(device: torch.device) -> float:
    """Largest difference of normalised Shapley values of 64 games of 8 players, worths on the device or in NumPy."""
    worths = np.random.default_rng(0).normal(size=(64, 256))
    here = np.array([shapley(table) for table in worths])
    there = np.array([shapley(torch.as_tensor(table, device=device)).cpu().numpy() for table in worths])
    group = np.tile(np.arange(8), 64)  # each player's values over the games
    one, two = (normalise(values.ravel(), group).advantage for values in (here, there))
    return float(np.abs(one - two).max())
