"""How good a team is on held-out tasks: avg@k and pass@k, with intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import stats

from macredit.episode import Episode
from macredit.errors import UserError
from macredit.rollout import World, play, tasks_of
from macredit.rows import check_scored

HELD_OUT = "held-out-"
"""Prefix of the task names that training never plays."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores of one team on some tasks."""

    tasks: int
    k: int
    """Episodes a task."""
    avg: float
    """avg@k: the mean reward."""
    avg_interval: tuple[float, float] | None
    """95 % t-interval over the means of the tasks; None with one task."""
    passed: float
    """pass@k: share of tasks solved at least once in k."""
    pass_interval: tuple[float, float]
    """95 % Wilson interval."""
    failed: int
    """Episodes that broke; they do not count."""

    def json(self) -> dict[str, Any]:
        """All fields by name."""
        return asdict(self)


def evaluate(
    world: World,
    tasks: int = 32,
    k: int = 4,
    seed: int = 0,
    success: float = 1.0,
    on_end: Callable[[Episode], None] | None = None,
) -> Evaluation:
    """Play ``k`` episodes of each held-out task.

    Args:
        world: environment and policies.
        tasks: how many held-out tasks.
        k: episodes a task.
        seed: draws the tasks, and the replies.
        success: a reward of at least this solves a task.
        on_end: called with each episode as it ends.
    """
    if tasks < 1 or k < 1:
        raise UserError(f"evaluation of {tasks} tasks with {k} episodes each was asked for; expected at least 1 and 1")
    return scored(play(world, tasks_of(seed, tasks, k, HELD_OUT), on_end=on_end), success)


def scored(episodes: list[Episode], success: float = 1.0) -> Evaluation:
    """The evaluation of episodes that were played already.

    Raises:
        UserError: no episode has a reward.
        OutsideError: all failed.
    """
    check_scored(episodes)
    rewards: dict[str, list[float]] = {}
    for episode in episodes:
        if episode.scored and episode.reward is not None:
            rewards.setdefault(episode.task, []).append(episode.reward)
    means = np.array([np.mean(own) for own in rewards.values()])
    solved = sum(max(own) >= success - 1e-9 for own in rewards.values())
    wilson = stats.binomtest(solved, len(means)).proportion_ci(method="wilson")
    return Evaluation(
        tasks=len(means),
        k=max(map(len, rewards.values())),
        avg=float(means.mean()),
        avg_interval=_t_interval(means),
        passed=solved / len(means),
        pass_interval=(float(wilson.low), float(wilson.high)),
        failed=sum(episode.failed for episode in episodes),
    )


def _t_interval(values: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float] | None:
    if len(values) < 2:
        return None
    half = float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    return float(values.mean()) - half, float(values.mean()) + half
