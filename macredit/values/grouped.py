"""Players that join and leave together: a game of groups, each group's value shared equally by its members."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from macredit.rows import IntN
from macredit.values import exhaustive, gaussian
from macredit.values.answers import Answers, BoolCN, Fit, Method, Plan, keys_of


def smallest(n: int) -> int:
    """The two ends and a pair, or both coalitions of one player."""
    return min(1 << n, 4)


def batch(plan: Plan, answers: Answers) -> BoolCN:
    """What the method for the groups' own game asks, as coalitions of players."""
    inner = _inner(plan)
    return _method(inner).batch(inner, _merged(plan, answers))[:, _group_of(plan)]


def fit(plan: Plan, answers: Answers) -> Fit:
    """phi_i = Shapley value of i's group in the game of groups / members of the group (Aumann and Drèze 1974).

    Exact where the budget covers all coalitions of groups, else by the Gaussian process.
    """
    inner = _inner(plan)
    fitted = _method(inner).fit(inner, _merged(plan, answers))
    size = np.array([len(group) for group in plan.groups])
    of = _group_of(plan)
    return Fit((fitted.values / size)[of], (fitted.stderr / size)[of], fitted.dof)


def _inner(plan: Plan) -> Plan:
    return replace(plan, n=len(plan.groups), groups=())


def _method(inner: Plan) -> Method:
    return exhaustive if inner.n < 60 and inner.budget >= 2**inner.n and not inner.noise else gaussian


def _group_of(plan: Plan) -> IntN:
    """int[n]: each player's group."""
    of = np.empty(plan.n, np.int64)
    for number, group in enumerate(plan.groups):
        of[list(group)] = number
    return of


def _merged(plan: Plan, answers: Answers) -> Answers:
    """The answers as coalitions of groups; answers that split a group are left out."""
    first = [group[0] for group in plan.groups]
    of = _group_of(plan)
    kept = (answers.coalitions == answers.coalitions[:, first][:, of]).all(axis=1)
    rows = answers.coalitions[kept][:, first]
    keys = keys_of(rows)
    order = np.argsort(keys)
    at = np.flatnonzero(kept)[order]
    return Answers(rows[order], answers.mean[at], answers.count[at], answers.squares[at], answers.rounds, keys[order])
