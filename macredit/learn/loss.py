"""Policy losses and their gradients in closed form, on flat float64 arrays of trained tokens.

Every aggregation is a weighted sum Σ_j c_j l_j over tokens, so its coefficients c are fixed for a whole batch before
the first micro-batch: accumulation over micro-batches equals the full batch. Each loss returns its value and d value /
d log-probability: a numpy table uses that gradient as it is, torch backpropagates ``(gradient * logp).sum()``.

K is the number of trained tokens; ``sequence`` codes the unit of ratio and loss each token belongs to.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from macredit.errors import UserError, unknown

FloatK = npt.NDArray[np.float64]
IntK = npt.NDArray[np.int64]
BoolK = npt.NDArray[np.bool_]

Aggregate = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "dr-grpo", "seq-mean-token-sum-norm"]
Ratio = Literal["token", "sequence-mean", "sequence-product"]

_AGGREGATES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "dr-grpo", "seq-mean-token-sum-norm")
_RATIOS = ("token", "sequence-mean", "sequence-product")
LARGEST_LOG_RATIO = 20.0
"""Log-ratios are cut here, far outside every clip range, so that a ratio never overflows."""


class Loss(NamedTuple):
    """A loss value, its gradient per token, and which tokens a clip holds back."""

    value: float
    gradient: FloatK
    clipped: BoolK


def check_aggregate(aggregate: str, length: float | None) -> None:
    """Hold an aggregate to what it needs.

    Raises:
        UserError: an unknown one, or one that divides by a length that is missing.
    """
    if aggregate not in _AGGREGATES:
        raise unknown("loss aggregation", aggregate, _AGGREGATES)
    if aggregate in ("dr-grpo", "seq-mean-token-sum-norm") and not length:
        raise UserError(f"loss aggregation {aggregate!r} was given no length L; set it to the largest reply in tokens")


def coefficients(
    weight: FloatK, sequence: IntK, aggregate: Aggregate = "token-mean", length: float | None = None
) -> FloatK:
    """What each token's loss is multiplied with, so that the sum is the aggregate of the batch.

    With w_s the mean weight of the n_s tokens of sequence s (equal weights: simply its weight):

    * ``token-mean`` (DAPO, Yu et al. 2025, arXiv 2503.14476): Σ_j w_j l_j / Σ_j w_j;
    * ``seq-mean-token-mean`` (GRPO, Shao et al. 2024, arXiv 2402.03300): Σ_s w_s mean_j l_j / Σ_s w_s;
    * ``seq-mean-token-sum``: Σ_s w_s Σ_j l_j / Σ_s w_s;
    * ``dr-grpo`` (Liu et al. 2025, arXiv 2503.20783): ``seq-mean-token-sum`` / L;
    * ``seq-mean-token-sum-norm`` as released in verl: Σ_j w_j l_j / L, not divided by the number of sequences.

    Args:
        weight: float[K], the weight of each token's row.
        sequence: int[K], any codes.
        aggregate: which of the five.
        length: L, a constant such as the largest number of tokens of a reply.

    Returns:
        float[K]; all zero when every weight is.
    """
    check_aggregate(aggregate, length)
    if aggregate == "seq-mean-token-sum-norm":
        return weight / float(length or 1)
    code = np.unique(sequence, return_inverse=True)[1]
    tokens_of = np.bincount(code, minlength=1)[code] if len(code) else np.ones(0)
    over_sequences = float(np.sum(weight / tokens_of))
    total = {"token-mean": float(weight.sum()), "dr-grpo": over_sequences * float(length or 1)}
    share = weight / tokens_of if aggregate == "seq-mean-token-mean" else weight
    scale = total.get(aggregate, over_sequences)
    return share / scale if scale > 0 else np.zeros_like(weight)


def ppo(
    logp: FloatK,
    old: FloatK,
    advantage: FloatK,
    coefficient: FloatK,
    sequence: IntK,
    ratio: Ratio = "token",
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = 3.0,
) -> Loss:
    """Clipped surrogate (Schulman et al. 2017, arXiv 1707.06347), with dual clip and clip-higher.

    l_j = max(−A_j ρ_j, −A_j clip(ρ_j, 1 − clip_low, 1 + clip_high)), and for A_j < 0 at most −A_j · dual_clip (Ye et
    al. 2020, arXiv 1912.09729). The ratio ρ is exp(logp − old) of the ``token``; exp of the mean over the ``sequence``
    (GSPO, Zheng et al. 2025, arXiv 2507.18071: ``sequence-mean``); or exp of the sum (SHARP, M-GRPO:
    ``sequence-product``), the same for all tokens of a sequence.

    Args:
        logp: float[K] under the weights being trained.
        old: float[K] under the weights that sampled.
        advantage: float[K].
        coefficient: float[K], from :func:`coefficients`.
        sequence: int[K].
        ratio: the level of the ratio.
        clip_low: ε below 1.
        clip_high: ε above 1; larger than ``clip_low`` is clip-higher (DAPO).
        dual_clip: c > 1, or None for none.
    """
    if ratio not in _RATIOS:
        raise unknown("ratio level", ratio, _RATIOS)
    code, count = _units(sequence, ratio)
    summed = np.bincount(code, logp - old, minlength=len(count))
    rho = np.exp(np.clip(summed / count, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO))[code]
    free = -advantage * rho
    held = -advantage * np.clip(rho, 1.0 - clip_low, 1.0 + clip_high)
    loss, clipped = np.maximum(free, held), held > free
    if dual_clip is not None:
        ceiling = np.where(advantage < 0, -advantage * dual_clip, np.inf)
        loss, clipped = np.minimum(loss, ceiling), clipped | (loss > ceiling)
    by_log_ratio = np.where(clipped, 0.0, coefficient * free)  # d l / d log ρ = −A ρ where no clip holds
    gradient = (np.bincount(code, by_log_ratio, minlength=len(count)) / count)[code]
    return Loss(float(coefficient @ loss), gradient, clipped)


def _units(sequence: IntK, ratio: Ratio) -> tuple[IntK, FloatK]:
    """Which unit of the ratio each token is in (int[K]), and by what each unit's summed log-ratio is divided."""
    if ratio == "token":
        return np.arange(len(sequence)), np.ones(len(sequence))
    code = np.asarray(np.unique(sequence, return_inverse=True)[1], dtype=np.int64)
    tokens = np.bincount(code).astype(np.float64)
    return code, tokens if ratio == "sequence-mean" else np.ones_like(tokens)


def kl_k3(logp: FloatK, reference: FloatK, coefficient: FloatK) -> Loss:
    """Σ c_j k_j with k = exp(d) − d − 1, d = reference − logp: Schulman's k3 estimate of KL(policy ‖ reference)."""
    d = np.clip(reference - logp, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    value = float(coefficient @ (np.expm1(d) - d))
    return Loss(value, -coefficient * np.expm1(d), np.zeros(len(logp), dtype=np.bool_))


def imitate(logp: FloatK, coefficient: FloatK) -> Loss:
    """Negative log-likelihood −Σ c_j logp_j of recorded tokens."""
    return Loss(-float(coefficient @ logp), -coefficient, np.zeros(len(logp), dtype=np.bool_))
