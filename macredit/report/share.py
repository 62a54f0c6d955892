"""Who drives the update: each agent's share of |advantage| · weight by the length of its trajectories."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from macredit.credit.method import Credits

EDGES = (1, 2, 3, 4, 5, 9, 17)
"""Lower ends of the classes of length."""
LABELS = ("1", "2", "3", "4", "5–8", "9–16", "17+")
DOMINATES = 0.5
"""A warning is due above this share."""


@dataclass(frozen=True, slots=True)
class Share:
    """One agent's trajectories of one class of length, under one method."""

    agent: str
    length: str
    """How many rows the agent has in the trajectory."""
    trajectories: int
    portion: float
    """Their share of the agent's trajectories."""
    learning: float
    """Their share of the agent's Σ |advantage| · weight."""
    lowered: float
    """The part of ``learning`` that comes from negative advantages."""


def learning_share(given: Credits) -> tuple[Share, ...]:
    """Shares by agent and class of length, agents that learn nothing left out; each agent's sum to 1.

    learning_{k,l} = Σ_{rows of k in trajectories of length l} w |A| / Σ_{rows of k} w |A|.
    """
    rows = given.rows
    counts = rows.counts
    agent, episode = rows.agent[counts], rows.episode[counts]
    pull = (np.abs(given.advantage) * given.weight)[counts]
    low = np.where(given.advantage[counts] < 0, pull, 0.0)
    trip, inverse, length = np.unique(
        episode * max(len(rows.agents), 1) + agent, return_inverse=True, return_counts=True
    )
    group = np.searchsorted(EDGES, length, side="right") - 1
    A, L = len(rows.agents), len(EDGES)
    cell = (trip % max(A, 1)) * L + group
    trips_AL = np.bincount(cell, minlength=A * L).reshape(A, L)
    pull_AL = np.bincount(cell[inverse], pull, A * L).reshape(A, L)
    low_AL = np.bincount(cell[inverse], low, A * L).reshape(A, L)
    return tuple(
        Share(
            agent=name, length=LABELS[g], trajectories=int(trips_AL[a, g]),
            portion=float(trips_AL[a, g] / trips_AL[a].sum()), learning=float(pull_AL[a, g] / pull_AL[a].sum()),
            lowered=float(low_AL[a, g] / pull_AL[a].sum()),
        )
        for a, name in enumerate(rows.agents) if pull_AL[a].sum() > 0
        for g in range(L) if trips_AL[a, g]
    )  # fmt: skip


def long_failures(shares: Iterable[Share]) -> list[str]:
    """A warning for each agent whose update mostly lowers what it said in its longer trajectories.

    Longer: of a class above the median trajectory's, so at most half of them.
    """
    of: dict[str, list[Share]] = {}
    for share in shares:
        of.setdefault(share.agent, []).append(share)
    found = []
    for agent, own in of.items():
        median = next(g for g, below in enumerate(accumulate(s.portion for s in own)) if below >= 0.5 - 1e-9)
        longer = own[median + 1 :]
        lowered, portion = sum(s.lowered for s in longer), sum(s.portion for s in longer)
        if lowered > DOMINATES + 1e-9:
            found.append(
                f"long failures dominate what {agent} learns: {lowered:.0%} of its update lowers turns of its longer "
                f"trajectories ({longer[0].length} rows and more), which are {portion:.0%} of its trajectories"
            )
    return found
