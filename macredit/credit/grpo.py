"""GRPO for teams: one advantage per trajectory, given to every turn of every agent.

A_i = (R_i − mean) / (std + eps) over the trajectories of a task. Preset ``code`` is what Dr. MAS's release calls
"MAS-GRPO": sample standard deviation, and a group of one trajectory keeps its raw score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from macredit.bounds import Within
from macredit.credit.broadcast import broadcast
from macredit.credit.method import Credits, Method
from macredit.rows import Rows

if TYPE_CHECKING:
    from macredit.whatif import WhatIf


@dataclass(frozen=True, slots=True)
class GrpoSettings:
    """Settings of ``grpo``."""

    scale: Literal["std", "none"] = "std"
    """Divide by the group's standard deviation, or not."""
    ddof: Literal[0, 1] = 0
    """0: population, 1: sample standard deviation."""
    eps: Annotated[float, Within(0)] = 1e-6
    """Added to the standard deviation."""
    single: Literal["zero", "raw"] = "zero"
    """What a group of one trajectory gets: nothing, or its raw score."""
    invalid_penalty: Annotated[float, Within(0)] = 0.0
    """Subtracted from the reward of invalid turns."""


def grpo(rows: Rows, settings: GrpoSettings, _whatif: WhatIf | None = None) -> Credits:
    """Trajectory-level group-relative advantages; a trajectory carries the mean of its rows' rewards."""
    return broadcast(
        rows, rows.episode, rows.task,
        scale=settings.scale, ddof=settings.ddof, eps=settings.eps, single=settings.single,
    )  # fmt: skip


METHOD = Method(
    name="grpo",
    run=grpo,
    settings=GrpoSettings,
    grain="agent",
    needs=frozenset({"group"}),
    estimand="broadcast return, centred on the task's trajectories",
    paper="Shao et al. 2024, arXiv 2402.03300",
    presets={"paper": {}, "code": {"ddof": 1, "single": "raw"}},
    axioms=frozenset({"centred"}),
    loss="token-mean",
    labels={"setting": "multi-agent", "granularity": "trajectory", "methodology": "MC"},
)
