"""SHARP: broadcast accuracy, a marginal credit per worker and a tool term, z-scored per role.

For rollout i with planner 0 and invoked workers M_i: R^b = the reward; worker m: R^mc = R − R(without m); planner:
R^mc = lambda · mean over M_i of max(R^mc, 0) (0 without workers); R^tool = share of the agent's turns that were valid.
Rbar = alpha R^b + beta R^mc + gamma R^tool;  A_{i,m} = (Rbar_{i,m} − mu_m) / (sigma_m + eps) over the rollouts of a
task that invoked the role. Loss: one ratio exp(Σ log-ratios) per agent and rollout, mean over {planner} ∪ M_i, then
over rollouts, hence weights 1 / (1 + |M_i|).

The paper's "Shapley" is leave-one-out against the whole team (an OR game gives 0 to all, an AND game 1 to each):
``marginal="loo"``. ``marginal="shapley"`` is our extension. After an absence everything downstream is played again,
unless ``counterfactual="mask_only"``. lambda, eps and ddof are given by no source; ours are 1, 1e-6 and 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from macredit.bounds import Within
from macredit.credit.coalitions import (
    FAILED,
    Value,
    Values,
    asked_with,
    by_pair,
    leave_one_out,
    marginals_by_agent,
    masked,
    redundant,
    replays,
    scored,
    totals_of,
    values_by_agent,
)
from macredit.credit.games import MOST_EVALUATIONS, Budget, shapley_of_silence
from macredit.credit.members import (
    advantages,
    agent_groups,
    agent_totals,
    assemble,
    counts_of,
    mean_by,
    pairs,
    spoke,
)
from macredit.credit.method import Credits, Method
from macredit.errors import UserError
from macredit.rows import FloatN, Rows

if TYPE_CHECKING:
    from macredit.whatif import WhatIf


@dataclass(frozen=True, slots=True)
class SharpSettings:
    """Settings of ``sharp``."""

    marginal: Literal["loo", "shapley"] = "loo"
    """A worker's marginal credit: leave-one-out (the paper), or its exact Shapley value (ours)."""
    counterfactual: Literal["rerun", "mask_only"] = "rerun"
    """After a worker falls silent everyone is asked again, or (leave-one-out alone) the other messages stay as they
    are: for environments whose reward is a function of the set of messages."""
    budget: Annotated[int, Within(0, MOST_EVALUATIONS)] = 0
    """Terminal evaluations of one episode for ``marginal="shapley"``, where 2^n are more; 0: all 2^n."""
    lam: Annotated[float, Within(0)] = 1.0
    """lambda: the planner's share of its workers' positive credits."""
    alpha: Annotated[float, Within(0)] = 0.9
    """Weight of the broadcast reward."""
    beta: Annotated[float, Within(0)] = 0.9
    """Weight of the marginal credit."""
    gamma: Annotated[float, Within(0)] = 0.1
    """Weight of the tool term."""
    eps: Annotated[float, Within(0)] = 1e-6
    """Added to the standard deviation (the paper's delta)."""
    ddof: Literal[0, 1] = 0
    """0: population, 1: sample standard deviation."""


def sharp(rows: Rows, settings: SharpSettings, whatif: WhatIf | None) -> Credits:
    """Credit = R^mc; advantage = z(Rbar) per task and role."""
    whatif = replays(rows, whatif)
    workers = invoked(rows)
    values, warnings = _marginals(rows, settings, whatif, workers)
    values = {**values, **_planner(rows, settings.lam, values, workers)}
    credit, stderr = by_pair(rows, values)
    member = pairs(rows)
    score = total_reward(
        rows.team_reward.repeat(len(rows.agents)), credit, _valid_share(rows, len(credit)),
        settings.alpha, settings.beta, settings.gamma,
    )  # fmt: skip
    advantage, result = advantages(
        rows, member, score, agent_groups(rows, "agent"), eps=settings.eps, ddof=settings.ddof
    )
    share = np.array([1.0 / (1 + len(workers.get(e, ()))) for e in range(len(rows.episodes))])
    if any(turn.valid is None for episode in rows.episodes for turn in episode.turns):
        warnings.append("turns whose `valid` is unknown count as valid in the tool term")
    return assemble(
        rows,
        credit=credit[member],
        stderr=stderr[member],
        advantage=advantage,
        weight=share[rows.episode],
        reasons=[FAILED if lost else None for lost in np.isnan(credit[member])],
        agents=agent_totals(rows, totals_of(rows, values), missing=(0.0, "not invoked")),
        sequence=member,
        notes={**counts_of(result), **asked_with(whatif, workers), "marginal": settings.marginal},
        warnings=warnings,
    )


def total_reward(
    broadcast: FloatN, marginal: FloatN, tool: FloatN, alpha: float = 0.9, beta: float = 0.9, gamma: float = 0.1
) -> FloatN:
    """Rbar = alpha R^b + beta R^mc + gamma R^tool."""
    return alpha * broadcast + beta * marginal + gamma * tool


def invoked(rows: Rows) -> dict[int, tuple[str, ...]]:
    """M_i: the workers that spoke in each episode that counts, in the team's order."""
    speakers = spoke(rows)
    return {
        e: tuple(dict.fromkeys(t.agent for t in rows.episodes[e].turns if t.agent in speakers[e] - {lead}))
        for e in scored(rows)
        for lead in [rows.teams[e].orchestrator]
    }


def _marginals(
    rows: Rows, settings: SharpSettings, whatif: WhatIf, workers: dict[int, tuple[str, ...]]
) -> tuple[Values, list[str]]:
    """R^mc of the invoked workers, and what to know about it."""
    who = [(e, agent) for e, names in workers.items() for agent in names]
    if settings.counterfactual == "mask_only":
        if settings.marginal == "shapley":
            raise UserError(
                "counterfactual mask_only goes with marginal loo, not with marginal shapley; set one of them"
            )
        return masked(rows, whatif, who), []
    if settings.marginal == "loo":
        values = leave_one_out(whatif, who)
        return values, redundant(rows, values)
    players = {e: tuple(n for n in whatif.players_of(e) if n != rows.teams[e].orchestrator) for e in workers}
    budget = Budget(settings.budget) if settings.budget else None
    solved = shapley_of_silence(whatif, players, budget)
    shares = values_by_agent(players, solved)
    return {pair: shares[pair] for pair in who}, redundant(rows, marginals_by_agent(players, solved), shares)


def _planner(rows: Rows, lam: float, values: Values, workers: dict[int, tuple[str, ...]]) -> Values:
    """The planner: lambda · mean over the workers of max(credit, 0), with the standard error of the positive ones."""
    planner = {}
    for e, names in workers.items():
        known = [values[e, name] for name in names if not np.isnan(values[e, name].value)]
        n = max(len(known), 1)
        credit = lam * sum(max(v.value, 0.0) for v in known) / n
        stderr = abs(lam) * float(np.sqrt(sum(v.stderr**2 for v in known if v.value > 0))) / n
        planner[e, rows.teams[e].orchestrator] = Value(credit, stderr)
    return planner


def _valid_share(rows: Rows, size: int) -> FloatN:
    """R^tool by (episode, agent): the share of the turns it said that are not known to be invalid."""
    share = np.full(size, np.nan)
    known = mean_by(pairs(rows), rows.valid.astype(np.float64), ~rows.null)
    share[: len(known)] = known
    return share


METHOD = Method(
    name="sharp",
    run=sharp,
    settings=SharpSettings,
    grain="agent",
    needs=frozenset({"group", "replay"}),
    estimand="leave-one-out of silence, mixed with the broadcast reward and a tool term",
    paper="SHARP 2026, arXiv 2602.08335",
    index=lambda settings: str(settings["marginal"]),
    evaluations=lambda players: 1 + players,
    axioms=frozenset({"symmetry", "dummy", "centred"}),
    sequence="trajectory",
    loss="seq-mean-token-mean",
    labels={"setting": "multi-agent", "granularity": "multi-agent", "methodology": "Shapley"},
)
