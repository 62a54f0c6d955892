"""C3: what a message earned against alternatives said in the very same context.

For n messages a_1…a_n of agent k in the frozen context h, each continued to the end by the frozen team, R_j the mean
return of the episodes through a_j:  A_j = R_j − (1/(n−1)) Σ_{l≠j} R_l.  Unbiased, mean 0 in every context. The record
is a forest: siblings are turns of one context, so a prefix tree of any fan-out and independent rollouts (siblings at
the root) are read alike. A context with one turn has no alternative: it is resampled where replays are possible,
otherwise it is not trained on, and counted.

With a critic q(context, message), ``variant="value_only"`` is A = q − b(q) and ``variant="value_assisted"`` is
A = r − [(1−a) b(r) + a b(q)], b the same baseline: the luck of the siblings' continuations leaves it, and it has mean
0 in a context no longer. It stays unbiased if the critic has not seen the returns it is subtracted from. Equal returns
cancel in b(r) alone: what is left, a (r − b(q)), is a signal, and exactly 0 where the critic knew. Until a critic has
seen returns of a policy, returns alone count.

Preset ``code``: the release also z-scores each sibling group with sqrt(var0 + 1e-8); then leave-one-out equals the full
mean and two siblings always get ±1. Its shipped default is that with ``variant="value_assisted"``.
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
from macredit.credit.method import Credits, Method, Need
from macredit.credit.siblings import Centre, Siblings, Variant, difference, difference_stderr
from macredit.errors import UserError
from macredit.moves import Values, moves_of
from macredit.rows import FloatN, IntN, Rows, rows_of

if TYPE_CHECKING:
    from macredit.episode import Episode
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
    variant: Variant = "reward_only"
    """Returns alone (the paper), a critic's values alone, or returns with a baseline of both."""
    a: Annotated[float, Within(0, 1)] = 0.5
    """The critic's share of the baseline of ``value_assisted``."""
    alternatives: Annotated[int, Within(2)] = 4
    """n: messages compared in a context that has to be resampled, the executed one among them."""
    invalid_penalty: Annotated[float, Within(0)] = 0.0
    """Subtracted from the reward of invalid turns."""


def c3(rows: Rows, settings: C3Settings, whatif: WhatIf | None = None) -> Credits:
    """Credit = the difference of each turn to the others; advantage = the same, with the chosen baseline and scale."""
    lead = np.flatnonzero(first_copies(rows.fact, rows.counts))
    critic = _critic(settings, whatif)
    siblings, resampled = _siblings(rows, lead, critic, settings, whatif)
    name = _namer(rows)
    credit = difference(siblings, settings.variant, settings.a, "loo", name).advantage
    centre: Centre = "loo" if settings.baseline == "loo" else "mean"
    result = difference(siblings, settings.variant, settings.a, centre, name)
    advantage = result.advantage
    if settings.zscore:
        advantage = normalise(advantage, siblings.context, eps=1e-8, eps_in_sqrt=True, name=name).advantage
    stderr = difference_stderr(siblings, settings.variant, settings.a)
    credit = np.where(siblings.several, credit, np.nan)

    def spread(of_lead: FloatN) -> FloatN:
        column = np.full(len(rows), np.nan)
        column[rows.fact[lead]] = of_lead[: len(lead)]
        return column[rows.fact]

    unknown = 0 if critic is None else len(np.unique(siblings.context[siblings.several & ~siblings.valued]))
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
            **({} if critic is None else {"contexts unknown to the critic": unknown}),
        },
        warnings=_warnings(result.singletons, unknown, result.groups),
    )
    return replace(earned, agents=agent_totals(rows, _totals(earned), missing=(0.0, "not invoked")))


def _critic(settings: C3Settings, whatif: WhatIf | None) -> Values | None:
    if settings.variant == "reward_only":
        return None
    if whatif is None or whatif.critic is None:
        raise UserError(
            f"c3 with variant={settings.variant} needs a critic q(context, message), and none was given; give one: "
            "--critic RUN of a run that trained it, --critic cross-fit to fit it on the record's other tasks, or "
            "WhatIf(…, critic=…); or use variant=reward_only"
        )
    return whatif.critic


def _namer(rows: Rows) -> Callable[[int], str]:
    return lambda code: f"context of {group_name(rows, rows.context == code)}"


def _siblings(
    rows: Rows, lead: IntN, critic: Values | None, settings: C3Settings, whatif: WhatIf | None
) -> tuple[Siblings, int]:
    """Everything that is compared, and the number of contexts that were resampled."""

    def valued(of: Rows, which: IntN) -> FloatN:
        return np.full(len(which), np.nan) if critic is None else critic.predict(moves_of(of, which))

    fact = rows.fact[lead]
    own = mean_by(rows.fact, rows.reward, rows.counts)[fact]
    leaves = stderr_by(rows.fact, rows.reward, rows.counts)[fact]
    found = Siblings(own, valued(rows, lead), rows.context[lead], leaves)
    alone = lead[~found.several]
    forks = _alternatives(rows, alone, len(lead), settings, whatif)
    if not forks:
        return found, 0
    played = rows_of([fork for _, fork in forks], settings.invalid_penalty)
    of = np.array([n for n, _ in forks], dtype=np.int64)
    at = np.searchsorted(played.episode, np.arange(len(forks))) + rows.turn[of]
    at, of = at[played.counts[at]], of[played.counts[at]]
    more = Siblings(played.reward[at], valued(played, at), rows.context[of], np.full(len(at), np.nan))
    both = (np.concatenate(columns) for columns in zip(found, more, strict=True))
    return Siblings(*both), len(alone)


def _alternatives(
    rows: Rows, alone: IntN, turns: int, settings: C3Settings, whatif: WhatIf | None
) -> list[tuple[int, Episode]]:
    """Scored replays of turns that are alone, with the row of the turn whose alternative each holds.

    Raises:
        UserError: no context holds two turns, and nothing can be replayed.
    """
    if whatif is not None and whatif.can_replay:
        answers = whatif.resample([(int(rows.episode[n]), int(rows.turn[n])) for n in alone], settings.alternatives)
        return [(n, fork) for n, (_, *forks) in zip(alone, answers, strict=True) for fork in forks if fork.scored]
    if len(alone) == turns:
        raise UserError(
            f"c3 compares turns said in one context, but none of the {turns} contexts of this record holds "
            "two; collect a tree (several alternatives a turn), or give the environment and policies to "
            "resample turns"
        )
    return []


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


def _warnings(alone: int, unknown: int, contexts: int) -> list[str]:
    said = [
        (alone, f"{alone} of {contexts} contexts hold one turn, which has no alternative: not trained on"),
        (unknown, f"{unknown} of {contexts} contexts have no value of the critic yet: returns alone"),
    ]
    return [text for count, text in said if count]


def _needs_more(settings: C3Settings) -> frozenset[Need]:
    return frozenset() if settings.variant == "reward_only" else frozenset({"critic"})


METHOD = Method(
    name="c3",
    run=c3,
    settings=C3Settings,
    grain="turn",
    needs=frozenset({"tree"}),
    needs_more=_needs_more,
    estimand="sequential advantage: the return of a message minus that of its alternatives in one context",
    paper="C3 2026, arXiv 2603.06859",
    presets={"paper": {}, "code": {"zscore": True}},
    axioms=frozenset({"centred"}),
    labels={"setting": "agentic/multi-agent", "granularity": "turn", "methodology": "Counterfactual"},
)
