"""Whoever sampled and whoever learns may disagree: how much (mismatch), and weights that correct for it.

Engines round differently and may be a few updates old, so the behaviour μ a reply was sampled from is not quite the
learner's π before its update. Importance weights w = π / μ undo that in expectation; cut at a cap their variance is
bounded and a small bias stays (truncated importance sampling, Ionides 2008; for engines beside learners Yao et al.
2025). Advantages are multiplied with w, and the ratio of the loss is then taken to π, not to μ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from macredit.learn.batch import TrainRow
from macredit.learn.loss import LARGEST_LOG_RATIO, FloatK

Correction = Literal["none", "token", "sequence"]


def mismatch(logp: FloatK, behaviour: FloatK) -> dict[str, float]:
    """How far a learner is from the behaviour that sampled, over the sampled tokens.

    Args:
        logp: float[K], the learner's log-probabilities before its update.
        behaviour: float[K], those recorded at sampling time.

    Returns:
        Mean and largest |log π − log μ| in nats, and k3 = mean(ρ − 1 − log ρ) with ρ = π / μ, an estimate of
        KL(μ ‖ π) that is never negative (Schulman 2020); nothing if there are no tokens.
    """
    if not len(logp):
        return {}
    moved = logp - behaviour
    size, held = np.abs(moved), np.clip(moved, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    return {
        "mismatch_mean": float(size.mean()),
        "mismatch_max": float(size.max()),
        "mismatch_k3": float((np.expm1(held) - held).mean()),
    }


def correct(
    rows: Sequence[TrainRow], before: Sequence[FloatK], level: Correction, cap: float
) -> tuple[list[TrainRow], float]:
    """Rows as if the learner had sampled them, with truncated importance weights.

    ``token``: w_j = min(π_j / μ_j, cap). ``sequence``: every token of a sequence has w = min(Π_j π_j / μ_j, cap), the
    product over all its rows. A learner that is its own behaviour gets w = 1 exactly.

    Args:
        rows: the rows of one rollout.
        before: float[L] a row, the learner's log-probabilities before its update.
        level: ``token`` or ``sequence``.
        cap: the largest weight.

    Returns:
        The rows in the order given, and the share of trained tokens whose weight the cap cut.
    """
    ratios = [np.where(row.mask, logp - row.logprob, 0.0) for row, logp in zip(rows, before, strict=True)]
    if level == "sequence":
        total: dict[int, float] = {}
        for row, ratio in zip(rows, ratios, strict=True):
            total[row.sequence] = total.get(row.sequence, 0.0) + float(ratio.sum())
        ratios = [np.full_like(ratio, total[row.sequence]) for row, ratio in zip(rows, ratios, strict=True)]
    weights = [np.exp(np.clip(ratio, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)) for ratio in ratios]
    cut = np.concatenate([weight[row.mask] > cap for row, weight in zip(rows, weights, strict=True)])
    corrected = [
        replace(row, logprob=logp, correction=np.minimum(weight, cap))
        for row, logp, weight in zip(rows, before, weights, strict=True)
    ]
    return corrected, float(cut.mean())
