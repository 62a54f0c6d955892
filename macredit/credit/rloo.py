"""RLOO: the reward minus the mean reward of the others, A_i = R_i − (1/(n−1)) Σ_{l≠i} R_l, without a scale.

Members are trajectories of a task, or (``group=agent``) rows of one agent on a task. Preset ``code`` keeps the raw
score of a group of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from macredit.bounds import Within
from macredit.credit.broadcast import broadcast
from macredit.credit.members import agent_groups
from macredit.credit.method import Credits, Method
from macredit.rows import Rows

if TYPE_CHECKING:
    from macredit.whatif import WhatIf


@dataclass(frozen=True, slots=True)
class RlooSettings:
    """Settings of ``rloo``."""

    group: Literal["task", "agent"] = "task"
    """Compare the trajectories of a task, or the rows of one agent on a task."""
    single: Literal["zero", "raw"] = "zero"
    """What a group of one gets: nothing, or its raw score."""
    invalid_penalty: Annotated[float, Within(0)] = 0.0
    """Subtracted from the reward of invalid turns."""


def rloo(rows: Rows, settings: RlooSettings, _whatif: WhatIf | None = None) -> Credits:
    """Leave-one-out advantages, n/(n−1) · (s − mean)."""
    member = rows.fact if settings.group == "agent" else rows.episode
    group = agent_groups(rows, settings.group)
    return broadcast(rows, member, group, centre="loo", scale="none", single=settings.single)


METHOD = Method(
    name="rloo",
    run=rloo,
    settings=RlooSettings,
    grain="agent",
    needs=frozenset({"group"}),
    estimand="broadcast return, minus the mean of the others",
    paper="Ahmadian et al. 2024, arXiv 2402.14740",
    presets={"paper": {}, "code": {"single": "raw"}},
    axioms=frozenset({"centred"}),
    loss="token-mean",
    labels={"setting": "multi-agent", "granularity": "trajectory", "methodology": "MC"},
)
