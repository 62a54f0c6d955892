"""Methods that do not split credit: every agent receives the reward, and only the normalisation differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from macredit.credit.members import (
    Totals,
    advantages,
    agent_totals,
    assemble,
    counts_of,
    mean_by,
    pairs,
    stderr_by,
)
from macredit.credit.method import Credits
from macredit.rows import FloatN, IntN, Rows


def broadcast(
    rows: Rows,
    member: IntN,
    group: IntN,
    *,
    scale_group: IntN | None = None,
    weight: FloatN | None = None,
    notes: Mapping[str, Any] | None = None,
    **switches: Any,
) -> Credits:
    """Credit = the reward that was received; advantage = the members' mean row rewards, normalised in their groups.

    Args:
        rows: N rows.
        member: int[N] member code of each row.
        group: int[N] group code of each row.
        scale_group: int[N] group of the scale, where it is another.
        weight: float[N] loss weight of each row; default 1.
        notes: notes of the method's own.
        switches: of :func:`macredit.advantage.normalise`.
    """
    score = mean_by(member, rows.reward, rows.counts)
    advantage, result = advantages(rows, member, score, group, scale_group=scale_group, **switches)
    copies = np.bincount(rows.fact[rows.counts], minlength=len(rows))[rows.fact]
    return assemble(
        rows,
        credit=mean_by(rows.fact, rows.reward, rows.counts)[rows.fact],
        stderr=np.where(copies > 1, stderr_by(rows.fact, rows.reward, rows.counts)[rows.fact], 0.0),
        advantage=advantage,
        weight=np.ones(len(rows)) if weight is None else weight,
        reasons=["broadcast"] * len(rows),
        agents=agent_totals(rows, _received(rows), missing=(0.0, "not invoked")),
        notes={**counts_of(result), **(notes or {})},
        warnings=_warnings(rows),
    )


def _received(rows: Rows) -> Totals:
    """The mean reward of each agent's rows in each episode; it was received, so it is exact."""
    mean = mean_by(pairs(rows), rows.reward, rows.counts)
    known = np.flatnonzero(~np.isnan(mean))
    return {
        (int(code) // len(rows.agents), rows.agents[int(code) % len(rows.agents)]): (
            float(mean[code]),
            0.0,
            "broadcast",
        )
        for code in known
    }


def _warnings(rows: Rows) -> Sequence[str]:
    return () if rows.counts.any() else ("no turn counts: every one is empty, failed or without a reward",)
