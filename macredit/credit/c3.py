"""C3: what a message earned against alternatives said in the very same context.

For n messages a_1…a_n of agent k in the frozen context h, each continued to the end by the frozen team, R_j the mean
return of the episodes through a_j:  A_j = R_j − (1/(n−1)) Σ_{l≠j} R_l.  Unbiased, mean 0 in every context. The record
is a forest: siblings are turns of one context, so a prefix tree of any fan-out and independent rollouts (siblings at
the root) are read alike. A context with one turn has no alternative: it is resampled where replays are possible,
otherwise it is not trained on, and counted.

Preset ``code``: the release also z-scores each sibling group with sqrt(var0 + 1e-8); then leave-one-out equals the full
mean and two siblings always get ±1. Its shipped default (``variant="value_assisted"``) needs a critic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from macredit.advantage import normalise
from macredit.bounds import Within
from macredit.credit.members import (
    Totals,
    agent_totals,
    assemble,
    counts_of,
    first_copies,
    group_name,
    mean_by,
    pairs,
    stderr_by,
)
from macredit.credit.method import Credits, Method
from macredit.errors import UserError
from macredit.rows import FloatN, IntN, Rows, rows_of

if TYPE_CHECKING:
    from macredit.whatif import WhatIf

ALONE = "no sibling"
"""Why a turn without an alternative in its context has no credit."""


@dataclass(frozen=True, slots=True)
class C3Settings:
    """Settings of ``c3``."""

    baseline: Literal["loo", "full_mean"] = "loo"
    """What is subtracted for the advantage: the mean of the other siblings, or of all of them."""
    zscore: bool = False
    """Divide by sqrt(variance + 1e-8) of each context's advantages."""
    variant: Literal["reward_only", "value_only", "value_assisted"] = "reward_only"
    """Returns alone (the paper), or with a learned critic, which is not there."""
    alternatives: Annotated[int, Within(2)] = 4
    """n: messages compared in a context that has to be resampled, the executed one among them."""
    invalid_penalty: Annotated[float, Within(0)] = 0.0
    """Subtracted from the reward of invalid turns."""

    def __post_init__(self) -> None:
        if self.variant != "reward_only":
            raise UserError(
                f"setting 'variant' of c3 is {self.variant!r}, which needs a critic q(context, message), and no critic "
                "is there; use variant=reward_only"
            )


def c3(rows: Rows, settings: C3Settings, whatif: WhatIf | None = None) -> Credits:
    """Credit = the leave-one-out difference of each turn; advantage = the same, with the chosen baseline and scale."""
    lead = np.flatnonzero(first_copies(rows.fact, rows.counts))
    own = mean_by(rows.fact, rows.reward, rows.counts)[rows.fact[lead]]
    others, of, resampled = _alternatives(rows, lead, settings, whatif)
    value, context = np.concatenate([own, others]), np.concatenate([rows.context[lead], of])
    name = _namer(rows)
    credit = normalise(value, context, centre="loo", scale="none", name=name).advantage
    centre: Literal["loo", "mean"] = "loo" if settings.baseline == "loo" else "mean"
    result = normalise(value, context, centre=centre, scale="none", name=name)
    advantage = result.advantage
    if settings.zscore:
        advantage = normalise(advantage, context, eps=1e-8, eps_in_sqrt=True, name=name).advantage
    siblings = np.bincount(context)[context]
    leaves = np.concatenate([stderr_by(rows.fact, rows.reward, rows.counts)[rows.fact[lead]], others * np.nan])
    stderr = _stderr(leaves, context, siblings)
    credit = np.where(siblings > 1, credit, np.nan)

    def spread(of_lead: FloatN) -> FloatN:
        column = np.full(len(rows), np.nan)
        column[rows.fact[lead]] = of_lead[: len(lead)]
        return column[rows.fact]

    earned = assemble(
        rows,
        credit=spread(credit),
        stderr=spread(stderr),
        advantage=spread(advantage),
        weight=np.ones(len(rows)),
        reasons=[ALONE if alone else None for alone in np.isnan(spread(credit))],
        agents=(),
        notes={
            **counts_of(result),
            "contexts with one turn": result.singletons,
            "contexts resampled": resampled,
        },
        warnings=_warnings(result.singletons, result.groups),
    )
    return replace(earned, agents=agent_totals(rows, _totals(earned), missing=(0.0, "not invoked")))


def _namer(rows: Rows) -> Callable[[int], str]:
    return lambda code: f"context of {group_name(rows, rows.context == code)}"


def _alternatives(rows: Rows, lead: IntN, settings: C3Settings, whatif: WhatIf | None) -> tuple[FloatN, IntN, int]:
    """Returns of sampled alternatives of the turns that are alone, their contexts, and the number of these contexts.

    Raises:
        UserError: no context holds two turns, and nothing can be replayed.
    """
    context = rows.context[lead]
    alone = lead[np.bincount(context)[context] == 1]
    if whatif is None or not whatif.can_replay:
        if len(alone) == len(lead):
            raise UserError(
                f"c3 compares turns said in one context, but none of the {len(lead)} contexts of this record holds "
                "two; collect a tree (several alternatives a turn), or give the environment and policies to "
                "resample turns"
            )
        return np.empty(0), np.empty(0, dtype=np.int64), 0
    answers = whatif.resample([(int(rows.episode[n]), int(rows.turn[n])) for n in alone], settings.alternatives)
    forks = [(n, fork) for n, (_, *forks) in zip(alone, answers, strict=True) for fork in forks if fork.scored]
    if not forks:
        return np.empty(0), np.empty(0, dtype=np.int64), 0
    played = rows_of([fork for _, fork in forks], settings.invalid_penalty)
    start = np.searchsorted(played.episode, np.arange(len(forks)))
    at = start + rows.turn[[n for n, _ in forks]]
    of = rows.context[[n for n, _ in forks]]
    return played.reward[at][played.counts[at]], of[played.counts[at]], len(alone)


def _stderr(leaves: FloatN, context: IntN, siblings: IntN) -> FloatN:
    """Of R_j − mean of the others: sqrt(se_j² + Σ_{l≠j} se_l² / (n−1)²), from the spread of the episodes through each.

    NaN where a sibling has one episode. Episodes through one sibling count as independent.
    """
    squares = leaves**2
    others = np.bincount(context, squares)[context] - squares
    stderr: FloatN = np.sqrt(squares + np.maximum(others, 0.0) / np.maximum(siblings - 1, 1) ** 2)
    return stderr


def _totals(earned: Credits) -> Totals:
    """An agent's credit in an episode: the sum over its turns that have one."""
    rows, A = earned.rows, len(earned.rows.agents)
    known = ~np.isnan(earned.credit)
    part = pairs(rows)
    size = len(rows.episodes) * A
    total = np.bincount(part[known], earned.credit[known], size)
    error = np.sqrt(np.bincount(part[known], earned.stderr[known] ** 2, size))
    there = np.bincount(part[known], minlength=size) > 0
    alone = np.bincount(part[rows.counts], minlength=size) > 0
    return {
        (c // A, rows.agents[c % A]): (float(total[c]), float(error[c]), None) if there[c] else (np.nan, np.nan, ALONE)
        for c in map(int, np.flatnonzero(alone))
    }


def _warnings(alone: int, contexts: int) -> list[str]:
    if not alone:
        return []
    return [f"{alone} of {contexts} contexts hold one turn, which has no alternative: not trained on"]


METHOD = Method(
    name="c3",
    run=c3,
    settings=C3Settings,
    grain="turn",
    needs=frozenset({"tree"}),
    estimand="sequential advantage: the return of a message minus that of its alternatives in one context",
    paper="C3 2026, arXiv 2603.06859",
    presets={"paper": {}, "code": {"zscore": True}},
    axioms=frozenset({"centred"}),
    labels={"setting": "agentic/multi-agent", "granularity": "turn", "methodology": "Counterfactual"},
)
