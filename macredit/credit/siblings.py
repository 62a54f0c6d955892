"""Messages said in one context, and what each earned against the others: by returns, a critic's values, or both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from macredit.advantage import DEGENERATE, Normalised, normalise
from macredit.rows import BoolN, FloatN, IntN

Variant = Literal["reward_only", "value_only", "value_assisted"]
Centre = Literal["loo", "mean"]
"""The baseline b: the mean of the other siblings, or of all of them."""


class Siblings(NamedTuple):
    """S messages with the codes of their contexts."""

    returns: FloatN
    """r, the mean over the episodes through each."""
    values: FloatN
    """q, what a critic says they return; NaN where none is known."""
    context: IntN
    stderr: FloatN
    """Of ``returns``; NaN where one episode went through."""

    @property
    def several(self) -> BoolN:
        """Which have an alternative."""
        return np.asarray(np.bincount(self.context)[self.context] > 1)

    @property
    def valued(self) -> BoolN:
        """Which are in a context of several that a critic knows whole."""
        return np.asarray(self.several & (np.bincount(self.context, np.isnan(self.values))[self.context] == 0))


def difference(
    siblings: Siblings, variant: Variant, a: float, centre: Centre, name: Callable[[int], str]
) -> Normalised:
    """By ``variant`` r − b(r), q − b(q), or r − [(1−a) b(r) + a b(q)] (C3 2026, arXiv 2603.06859).

    The last is (1−a) (r − b(r)) + a ((r − q) + (q − b(q))): with a = 0 exactly the first. Where a critic does not know
    a whole context, it is the first too.

    Args:
        siblings: S messages.
        variant: which.
        a: the critic's share of the baseline of ``value_assisted``.
        centre: the baseline.
        name: how an error names a context.

    Raises:
        UserError: see :func:`macredit.advantage.normalise`.
    """
    r, q, context, _ = siblings
    of_returns = normalise(r, context, centre=centre, scale="none", name=name)
    valued = siblings.valued
    if not valued.any():
        return of_returns
    of_values = normalise(q, context, centre=centre, scale="none", name=name).advantage
    surprise = np.where(np.abs(r - q) <= DEGENERATE * np.maximum(1.0, np.abs(r)), 0.0, r - q)
    assisted = (1 - a) * of_returns.advantage + a * (surprise + of_values)
    mixed = of_values if variant == "value_only" else assisted
    advantage = np.where(valued, mixed, of_returns.advantage)
    silent = siblings.several & (np.bincount(context, advantage != 0)[context] == 0)
    return replace(of_returns, advantage=advantage, degenerate=len(np.unique(context[silent])))


def difference_stderr(siblings: Siblings, variant: Variant, a: float) -> FloatN:
    """Of r_j − β · mean of the others: sqrt(se_j² + β² Σ_{l≠j} se_l² / (n−1)²), from the episodes through each.

    β is the share of returns in the baseline; a critic's values are taken as they are, and those alone have no error.
    NaN where a sibling has one episode. Episodes through one sibling count as independent.
    """
    squares, context = siblings.stderr**2, siblings.context
    others = np.bincount(context, squares)[context] - squares
    share = np.where(siblings.valued, 1 - a, 1.0)
    size = np.maximum(np.bincount(context)[context] - 1, 1)
    stderr: FloatN = np.sqrt(squares + share**2 * np.maximum(others, 0.0) / size**2)
    return np.where(siblings.valued & (variant == "value_only"), np.nan, stderr)
