"""Dr. MAS: the reward normalised over each agent's own rows, because agents differ in mean and spread.

A^{i,k} = (R_i − mu_k) / (sigma_k + eps) over Y_k, all rows of agent k on a task: an agent that speaks three times in
trajectory i brings R_i three times. It calibrates gradients and does not split credit. Under the task's own mu and
sigma the gradient norm of agent k carries (sigma_k² + (mu_k − mu)²) / sigma², which is unbounded; the paper's ablation
switches the two statistics one by one (``centre_by``, ``scale_by``).

Preset ``code``: sample standard deviation, a group of one keeps its raw score. Preset ``balanced`` (ours): a member is
(trajectory, agent), weight 1 in statistics and loss, so that long failures do not outvote short successes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from macredit.bounds import Within
from macredit.credit.broadcast import broadcast
from macredit.credit.members import agent_groups, pairs
from macredit.credit.method import Credits, Method
from macredit.rows import BoolN, IntN, Rows

if TYPE_CHECKING:
    from macredit.whatif import WhatIf


@dataclass(frozen=True, slots=True)
class DrMasSettings:
    """Settings of ``dr_mas``."""

    member: Literal["row", "trajectory"] = "row"
    """What counts once: every turn of the agent, or its mean over a trajectory (rows weighted 1 / their number)."""
    centre_by: Literal["agent", "task"] = "agent"
    """Whose mean is subtracted: the agent's on this task, or everyone's."""
    scale_by: Literal["agent", "task"] = "agent"
    """Whose standard deviation divides."""
    scale: Literal["std", "none"] = "std"
    """Divide by the standard deviation, or not."""
    ddof: Literal[0, 1] = 0
    """0: population, 1: sample standard deviation."""
    eps: Annotated[float, Within(0)] = 1e-6
    """Added to the standard deviation."""
    single: Literal["zero", "raw"] = "zero"
    """What a group of one member gets: nothing, or its raw score."""
    invalid_penalty: Annotated[float, Within(0)] = 0.0
    """Subtracted from the reward of invalid turns."""


def dr_mas(rows: Rows, settings: DrMasSettings, _whatif: WhatIf | None = None) -> Credits:
    """Agent-wise normalised advantages."""
    part = pairs(rows)
    length = np.bincount(part[rows.counts], minlength=int(part.max(initial=-1)) + 1)[part]
    balanced = settings.member == "trajectory"
    earned = broadcast(
        rows, part if balanced else rows.fact, agent_groups(rows, settings.centre_by),
        scale_group=agent_groups(rows, settings.scale_by) if settings.scale_by != settings.centre_by else None,
        weight=1.0 / np.maximum(length, 1) if balanced else None,
        scale=settings.scale, ddof=settings.ddof, eps=settings.eps, single=settings.single,
    )  # fmt: skip
    warnings = [
        f"agent {name!r}: failures longer than its average hold {100 * share:.0f} % of its loss weight, as "
        f"{100 * fair:.0f} % of its trajectories; preset 'balanced' weighs each trajectory once"
        for a, name in enumerate(rows.agents)
        for share, fair in [_long_failures(earned, rows.agent == a, part, length)]
        if share > max(0.5, 1.5 * fair)
    ]
    return replace(earned, warnings=(*earned.warnings, *warnings))


def _long_failures(earned: Credits, own: BoolN, part: IntN, length: IntN) -> tuple[float, float]:
    """Shares of loss weight and of trajectories of the agent's longer-than-average trajectories that lost."""
    used = own & (earned.weight > 0)
    _, first = np.unique(part[used], return_index=True)
    if not len(first):
        return 0.0, 0.0
    bad = (earned.advantage[used] < 0) & (length[used] > length[used][first].mean())
    weight = earned.weight[used]
    return float(weight[bad].sum() / weight.sum()), float(bad[first].mean())


METHOD = Method(
    name="dr_mas",
    run=dr_mas,
    settings=DrMasSettings,
    grain="agent",
    needs=frozenset({"group"}),
    estimand="broadcast return, normalised per agent",
    paper="Dr. MAS 2026, arXiv 2602.08847",
    presets={"paper": {}, "code": {"ddof": 1, "single": "raw"}, "balanced": {"member": "trajectory"}},
    axioms=frozenset({"centred"}),
    loss="token-mean",
    labels={"setting": "multi-agent", "granularity": "multi-agent", "methodology": "Agent-wise Adv."},
)
