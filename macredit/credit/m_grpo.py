"""M-GRPO: the main agent and its sub-agents normalised apart, sub-trajectories aligned to a fixed number per rollout.

Main (the orchestrator), over K rollouts: R_M = f·format + (1−f)·correct if the format is valid, else 0;
A = (R_M − mean) / (std + eps). Sub, over aligned sub-trajectories: R_S = f·format + (1−f−x)·correct + x·expert if
valid, else 0; f = 0.1, x = 0.5. A sub-trajectory is one invocation. Rollout i has d_i of them; D − d_i are duplicated
at random, or d_i − D dropped at random, so that each rollout brings D (``align="duplicate"``, the paper).
``align="weight"`` (ours) gives each the weight D/d_i: expected copies, mean and second moment agree exactly. Copies are
weights, never rows. Rollouts with d_i = 0 stay out of that agent's batch and are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from macredit.bounds import Within
from macredit.credit.invocations import Invocations, invocations_of
from macredit.credit.members import Totals, advantages, agent_groups, agent_totals, assemble, counts_of, mean_by, pairs
from macredit.credit.method import Credits, Method
from macredit.rows import BoolN, FloatN, Rows
from macredit.seeds import generator

if TYPE_CHECKING:
    from macredit.whatif import WhatIf


@dataclass(frozen=True, slots=True)
class MGrpoSettings:
    """Settings of ``m_grpo``."""

    align: Literal["duplicate", "weight"] = "duplicate"
    """Random copies (the paper), or their expectation D/d_i as a weight (ours)."""
    depth: Annotated[int, Within(1)] = 8
    """D: sub-trajectories of an agent that every rollout brings, chosen so that few rollouts have more."""
    format_weight: Annotated[float, Within(0, 1)] = 0.1
    """f: the share of R_M and R_S that a valid format earns."""
    expert_weight: Annotated[float, Within(0, 1)] = 0.5
    """x: the share of R_S that the sub-answer's own reward earns, where there is one."""
    eps: Annotated[float, Within(0)] = 1e-6
    """Added to the standard deviation."""
    seed: int = 0
    """Chooses the random copies."""


def m_grpo(rows: Rows, settings: MGrpoSettings, _whatif: WhatIf | None = None) -> Credits:
    """Credit = R_M or R_S; advantage = its z-score over rollouts (main) or aligned invocations (sub)."""
    parts = invocations_of(rows)
    reward = _rewards(rows, parts, settings)
    alive = np.zeros(len(reward), dtype=np.bool_)
    alive[parts.of[rows.counts]] = True
    copies = _copies(rows, parts, settings, alive)
    group = np.where(parts.main[parts.of], rows.task, len(rows.tasks) + agent_groups(rows, "agent"))
    advantage, result = advantages(rows, parts.of, reward, group, weight=copies, eps=settings.eps)
    return assemble(
        rows,
        credit=reward[parts.of],
        stderr=np.zeros(len(rows)),
        advantage=advantage,
        weight=copies[parts.of],
        reasons=[None] * len(rows),
        agents=agent_totals(rows, _totals(rows, reward[parts.of]), missing=(0.0, "not invoked")),
        sequence=parts.of,
        notes={**counts_of(result), **_notes(rows, parts, alive)},
        warnings=_warnings(rows, _expert(rows, parts)[~parts.main]),
    )


def shared_reward(
    valid: BoolN,
    correct: FloatN,
    expert: FloatN | None = None,
    *,
    format_weight: float = 0.1,
    expert_weight: float = 0.5,
) -> FloatN:
    """R_M (without ``expert``) or R_S: f + (1−f−x)·correct + x·expert where the format is valid, else 0.

    Where ``expert`` is NaN its weight goes to the shared outcome.
    """
    own = np.full(correct.shape, np.nan) if expert is None else expert
    x = np.where(np.isnan(own), 0.0, expert_weight)
    earned = format_weight + (1.0 - format_weight - x) * correct + x * np.where(np.isnan(own), 0.0, own)
    return np.where(valid | np.isnan(correct), earned, 0.0)


def random_copies(d: int, depth: int, rng: np.random.Generator) -> FloatN:
    """float[d]: how often each of d sub-trajectories stands in the aligned batch; adds up to ``depth``.

    Each expectation is depth / d.
    """
    if d > depth:
        chosen = rng.choice(d, depth, replace=False)
        return np.bincount(chosen, minlength=d).astype(np.float64)
    return np.bincount([*range(d), *rng.integers(d, size=depth - d)], minlength=d).astype(np.float64)


def _rewards(rows: Rows, parts: Invocations, settings: MGrpoSettings) -> FloatN:
    episode = np.arange(len(parts.main))
    episode[parts.of] = rows.episode
    return shared_reward(
        parts.valid, rows.team_reward[episode], _expert(rows, parts),
        format_weight=settings.format_weight, expert_weight=settings.expert_weight,
    )  # fmt: skip


def _expert(rows: Rows, parts: Invocations) -> FloatN:
    """The own reward of each invocation's last turn, NaN where there is none; the main agent has no such term."""
    own = [None if main else rows.at(row).reward for main, row in zip(parts.main, parts.last, strict=True)]
    return np.array([np.nan if reward is None else reward for reward in own], dtype=np.float64)


def _copies(rows: Rows, parts: Invocations, settings: MGrpoSettings, alive: BoolN) -> FloatN:
    """How many aligned sub-trajectories each part stands for; the orchestrator's stand for themselves."""
    copies = np.where(parts.main, 1.0, 0.0)
    for (e, agent), members in _by_agent(rows, parts, alive).items():
        if settings.align == "weight":
            copies[members] = settings.depth / len(members)
        else:
            rng = generator("m_grpo", settings.seed, rows.episodes[e].id, rows.agents[agent])
            copies[members] = random_copies(len(members), settings.depth, rng)
    return copies


def _by_agent(rows: Rows, parts: Invocations, alive: BoolN) -> dict[tuple[int, int], list[int]]:
    """The invocations of each agent in each episode that have a turn to train on, in order."""
    members: dict[tuple[int, int], list[int]] = {}
    for part in np.flatnonzero(alive & ~parts.main):
        row = parts.last[part]
        members.setdefault((int(rows.episode[row]), int(rows.agent[row])), []).append(int(part))
    return members


def _totals(rows: Rows, reward: FloatN) -> Totals:
    """An agent's mean R_S (or R_M) over its turns in an episode."""
    mean = mean_by(pairs(rows), reward, rows.counts)
    A = len(rows.agents)
    return {
        (c // A, rows.agents[c % A]): (float(mean[c]), 0.0, None) for c in map(int, np.flatnonzero(~np.isnan(mean)))
    }


def _notes(rows: Rows, parts: Invocations, alive: BoolN) -> dict[str, object]:
    """How many invocations there are, and how many rollouts have none of an agent that others invoked."""
    invoked = _by_agent(rows, parts, alive)
    rollouts = int(np.sum(~np.isnan(rows.team_reward)))
    subs = sorted({agent for _, agent in invoked})
    return {
        "invocations": sum(map(len, invoked.values())),
        "rollouts without an invocation": {
            rows.agents[a]: rollouts - sum(agent == a for _, agent in invoked) for a in subs
        },
    }


def _warnings(rows: Rows, expert: FloatN) -> list[str]:
    turns = [turn for episode in rows.episodes for turn in episode.turns]
    lacks = int(np.isnan(expert).sum())
    said = {
        "the format counts as valid where `valid` is unknown": any(turn.valid is None for turn in turns),
        "recipients are unknown: each unbroken run of an agent's turns is one invocation": any(
            turn.to is None for turn in turns
        ),
        f"{lacks} of {len(expert)} invocations have no expert reward on their last turn; its weight went to the shared "
        "outcome": lacks > 0,
    }
    return [text for text, holds in said.items() if holds]


METHOD = Method(
    name="m_grpo",
    run=m_grpo,
    settings=MGrpoSettings,
    grain="agent",
    needs=frozenset({"group"}),
    estimand="outcome return per trajectory (main) or invocation (sub)",
    paper="M-GRPO 2025, arXiv 2511.13288",
    axioms=frozenset({"centred"}),
    sequence="invocation",
    loss="seq-mean-token-mean",
    labels={"setting": "multi-agent", "granularity": "multi-agent", "methodology": "Hierarchical"},
)
