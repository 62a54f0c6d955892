"""Noisy games with few scores a coalition: all are scored as they matter, and coalitions lend each other their scores.

The scores of :mod:`macredit.values.allocation`, read with the prior of :mod:`macredit.values.gaussian`: a little biased
towards games with few interactions, and closer to the truth as long as the noise is the larger part of the error.
"""

from __future__ import annotations

from macredit.values import allocation, gaussian
from macredit.values.answers import Answers, BoolCN, Fit, Plan


def smallest(n: int) -> int:
    """The least budget: every coalition once."""
    return allocation.smallest(n)


def batch(plan: Plan, answers: Answers) -> BoolCN:
    """See :func:`allocation.batch`."""
    return allocation.batch(plan, answers)


def fit(plan: Plan, answers: Answers) -> Fit:
    """See :func:`gaussian.fit`."""
    return gaussian.fit(plan, answers)
