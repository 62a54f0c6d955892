"""The one normaliser of the GRPO family: A = (R − centre of the group) / (scale of the group + eps).

Methods differ only in what is a member, which scalar it carries, and the switches below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from macredit.errors import UserError

FloatM = npt.NDArray[np.float64]
IntM = npt.NDArray[np.int64]
BoolM = npt.NDArray[np.bool_]
FloatG = npt.NDArray[np.float64]
BoolG = npt.NDArray[np.bool_]

DEGENERATE = 1e-12
"""A group with max − min ≤ DEGENERATE · max(1, |max|) holds equal scores: rounding is not a signal."""


@dataclass(frozen=True, slots=True)
class Normalised:
    """Advantages of M members, and how many groups had none to give."""

    advantage: FloatM
    """float[M]; 0 for members that were left out."""
    groups: int
    """Groups with at least one member."""
    singletons: int
    """Groups of one member."""
    degenerate: int
    """Groups of several members with equal scores: exactly 0 for all."""


@dataclass(frozen=True, slots=True)
class _Groups:
    """Statistics of G groups; ``code`` says where each member belongs. Codes nobody has leave empty entries."""

    code: IntM
    size: FloatG
    mean: FloatG
    used: BoolG
    single: BoolG
    flat: BoolG


def normalise(
    score: npt.ArrayLike,
    group: npt.ArrayLike,
    *,
    scale_group: npt.ArrayLike | None = None,
    weight: npt.ArrayLike | None = None,
    centre: Literal["mean", "loo"] = "mean",
    scale: Literal["std", "none"] = "std",
    ddof: int = 0,
    eps: float = 1e-6,
    eps_in_sqrt: bool = False,
    single: Literal["zero", "raw"] = "zero",
    name: Callable[[int], str] = "group {}".format,
) -> Normalised:
    """Advantages of M members within their groups (METHODS section 10), in float64 and without a loop over members.

    mean: d = s − mu; loo: d = n/(n−1) · (s − mu), which is s minus the mean of the others.
    std: A = d / (sigma + eps), or d / sqrt(sigma² + eps) with ``eps_in_sqrt``; sigma² = Σ w (s − mu)² / (n − ddof).

    Args:
        score: float[M]. NaN leaves the member out of every statistic; its advantage is 0.
        group: int[M] codes ≥ 0, dense (memory grows with the largest): whose mean is the centre.
        scale_group: int[M]: whose standard deviation is the scale; default: ``group``.
        weight: float[M]: a member of weight w stands for w copies (n = Σ w); weight 0 leaves it out.
        centre: ``mean`` or ``loo`` (leave one out).
        scale: ``std`` or ``none``.
        ddof: 0 (population) or 1 (sample).
        eps: added to the scale.
        eps_in_sqrt: add ``eps`` to the variance instead.
        single: what a group of one member gets: ``zero``, or ``raw`` (its score with mean 0 and deviation 1).
        name: how an error names a group.

    Raises:
        UserError: the scores of a group are too large for float64 statistics.
    """
    scores, codes = np.asarray(score, np.float64), np.asarray(group, np.int64)
    weights = np.ones_like(scores) if weight is None else np.asarray(weight, np.float64)
    kept = ~np.isnan(scores) & (weights > 0)
    s, w = scores[kept], weights[kept]
    with np.errstate(over="ignore", invalid="ignore"):
        groups = _statistics(s, w, codes[kept])
        scaled = groups if scale_group is None else _statistics(s, w, np.asarray(scale_group, np.int64)[kept])
        _check(np.isfinite(groups.mean)[groups.code], groups.code, name)
        deviation = np.where(groups.single[groups.code], s, s - groups.mean[groups.code])
        if centre == "loo":
            others = np.where(groups.single, groups.size, groups.size - 1.0)
            deviation *= (groups.size / np.where(groups.used, others, 1.0))[groups.code]
        if scale == "std":
            divisor = _scale(s, w, scaled, ddof, eps, eps_in_sqrt)[scaled.code]
            _check(np.isfinite(divisor), groups.code, name)
            deviation /= divisor
    for part in (groups, scaled):
        silent = part.flat | part.single if single == "zero" else part.flat
        deviation[silent[part.code]] = 0.0
    _check(np.isfinite(deviation), groups.code, name)
    advantage = np.zeros_like(scores)
    advantage[kept] = deviation
    return Normalised(advantage, int(groups.used.sum()), int(groups.single.sum()), int(groups.flat.sum()))


def _statistics(s: FloatM, w: FloatM, code: IntM) -> _Groups:
    """Means taken from the smallest member, so that a large common offset costs no digits."""
    members = np.bincount(code)
    low, high = np.full(len(members), np.inf), np.full(len(members), -np.inf)
    np.minimum.at(low, code, s)
    np.maximum.at(high, code, s)
    used = members > 0
    low, high = np.where(used, low, 0.0), np.where(used, high, 0.0)
    size = np.bincount(code, w, len(members)).astype(np.float64)
    mean = low + np.bincount(code, w * (s - low[code]), len(members)) / np.where(used, size, 1.0)
    flat = (members > 1) & (high - low <= DEGENERATE * np.maximum(1.0, np.abs(high)))
    return _Groups(code, size, mean, used, members == 1, flat)


def _scale(s: FloatM, w: FloatM, groups: _Groups, ddof: int, eps: float, eps_in_sqrt: bool) -> FloatG:
    """What deviations are divided by; 1 (+ eps) where there is nothing to estimate it from."""
    squares = np.bincount(groups.code, w * (s - groups.mean[groups.code]) ** 2, len(groups.size))
    plain = groups.single | groups.flat | ~groups.used
    variance = np.where(plain, 1.0, squares) / np.where(plain, 1.0, groups.size - ddof)
    return np.sqrt(variance + eps) if eps_in_sqrt else np.sqrt(variance) + eps


def _check(finite: BoolM, code: IntM, name: Callable[[int], str]) -> None:
    """Infinite statistics are named, never passed on."""
    if not finite.all():
        raise UserError(
            f"{name(int(code[~finite][0]))}: its rewards overflow the statistics of float64; expected finite rewards "
            "whose squares stay below 1e308; rescale them"
        )
