"""Every coalition once: exact for a game without noise."""

from __future__ import annotations

import numpy as np

from macredit.values import gaussian
from macredit.values.answers import Answers, BoolCN, Fit, Plan, nothing
from macredit.values.exact import shapley
from macredit.values.masks import members_of


def smallest(n: int) -> int:
    """Every coalition."""
    return 1 << n


def batch(plan: Plan, answers: Answers) -> BoolCN:
    """All 2^n coalitions, bit i of the row's number saying whether player i is in."""
    return nothing(plan.n) if answers.rounds else _table(plan.n)


def fit(plan: Plan, answers: Answers) -> Fit:
    """Exact values; while worths are missing (not told yet, or dropped), the Gaussian process fills them in."""
    worths = answers.worths(_table(plan.n))
    if np.isnan(worths).any():
        return gaussian.fit(plan, answers)
    return Fit(np.asarray(shapley(worths)), np.zeros(plan.n))


def _table(n: int) -> BoolCN:
    return members_of(np.arange(1 << n), n)
