"""From credit per episode to credit per agent: means over episodes, their errors, and the exact value beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from macredit.credit import METHODS, Credits, settings_dict
from macredit.rows import Rows

BROADCAST = "broadcast"
"""The reason of methods that give every agent the same reward."""


@dataclass(frozen=True, slots=True)
class AgentRow:
    """One agent under one method, over all episodes that give it a credit."""

    agent: str
    credit: float | None
    """Mean over episodes; None where every episode has null."""
    stderr: float | None
    """Standard error of that mean over episodes; None for fewer than two."""
    estimate_stderr: float | None
    """Standard error of that mean from the estimates alone; 0 is exact, None is not estimated."""
    episodes: int
    """How many episodes the mean is over."""
    reasons: Mapping[str, int]
    """Why a credit is null or special → in how many episodes."""

    @property
    def broadcast(self) -> bool:
        """Whether the agent was handed the team's reward."""
        return BROADCAST in self.reasons

    @property
    def margin(self) -> float | None:
        """Half the 95 % interval: over episodes (Student's t), else of the estimates (normal)."""
        if self.stderr is not None:
            return float(stdtrit(self.episodes - 1, 0.975)) * self.stderr
        return None if self.estimate_stderr is None else 1.96 * self.estimate_stderr


def team_names(rows: Rows) -> tuple[str, ...]:
    """Every agent of every team, each team's own order, orchestrators first."""
    teams = dict.fromkeys(rows.teams)
    leads = [team.orchestrator for team in teams]
    return tuple(dict.fromkeys([*leads, *(name for team in teams for name in team.names), *rows.agents]))


def agent_table(given: Credits) -> tuple[AgentRow, ...]:
    """Mean credit per agent over episodes, A rows in the order of the team.

    With c_{e,a} the credit of agent a in episode e and n_a the number of episodes that have one: credit = Σ_e c_{e,a} /
    n_a; stderr = sqrt(Σ_e (c_{e,a} − credit)² / (n_a − 1) / n_a), which treats episodes as independent;
    estimate_stderr = sqrt(Σ_e s_{e,a}²) / n_a, null where one s_{e,a} is.
    """
    names = team_names(given.rows)
    code = {name: a for a, name in enumerate(names)}
    A = len(names)
    known = [cell for cell in given.agents if cell.credit is not None and np.isfinite(cell.credit)]
    agent = np.array([code[cell.agent] for cell in known], dtype=np.int64)
    credit = np.array([cell.credit for cell in known], dtype=np.float64)
    error = np.array([np.nan if cell.stderr is None else cell.stderr for cell in known], dtype=np.float64)
    n_A = np.bincount(agent, minlength=A)
    some_A = np.maximum(n_A, 1)
    mean_A = np.bincount(agent, credit, A) / some_A
    spread_A = np.bincount(agent, (credit - mean_A[agent]) ** 2, A)
    stderr_A = np.sqrt(spread_A / np.maximum(n_A - 1, 1) / some_A)
    estimate_A = np.sqrt(np.bincount(agent, error**2, A)) / some_A
    reasons: list[Counter[str]] = [Counter() for _ in names]
    for cell in given.agents:
        if cell.reason is not None:
            reasons[code[cell.agent]][cell.reason] += 1
    return tuple(
        AgentRow(
            agent=name,
            credit=float(mean_A[a]) if n_A[a] else None,
            stderr=float(stderr_A[a]) if n_A[a] > 1 else None,
            estimate_stderr=float(estimate_A[a]) if n_A[a] and np.isfinite(estimate_A[a]) else None,
            episodes=int(n_A[a]),
            reasons=dict(reasons[a]) or ({} if n_A[a] else {"no credit was given": len(given.rows.episodes)}),
        )
        for a, name in enumerate(names)
    )


def exact_index(method: str, settings: Mapping[str, Any]) -> str | None:
    """The exact index that a method's credit estimates; None where it estimates none.

    Args:
        method: its name.
        settings: those that differ from the defaults, or all.
    """
    if method not in METHODS:
        return None
    known = METHODS[method]
    return known.index({**settings_dict(known.settings()), **settings})


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high) at 95 %: Wilson's interval where all values are 0 or 1, else Student's t; NaN where unknown."""
    x = np.asarray(values, dtype=np.float64)
    n, mean = len(x), float(x.mean())
    if np.isin(x, (0.0, 1.0)).all():
        z2 = 1.96**2
        centre = (mean + z2 / (2 * n)) / (1 + z2 / n)
        half = np.sqrt(mean * (1 - mean) * z2 / n + z2**2 / (4 * n**2)) / (1 + z2 / n)
        return mean, float(centre - half), float(centre + half)
    half = stdtrit(n - 1, 0.975) * x.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return mean, float(mean - half), float(mean + half)
