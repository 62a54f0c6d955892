"""Plans go to workers by task: everything that two plays may share, replies on record above all, is of one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from macredit.episode import Episode
from macredit.errors import OutsideError
from macredit.ledger import Ledger
from macredit.policy import Said
from macredit.rollout import Plan, Scene, World


@dataclass
class Job:
    """The plans of one task."""

    task: str
    places: list[int] = field(default_factory=list)
    """Where their episodes belong."""
    plans: list[Plan] = field(default_factory=list)
    deaths: int = 0
    """Workers that died while they played it."""
    refused: int = 0
    """How often it met weights of another version."""

    def failed(self, world: World) -> list[Episode]:
        """Its episodes, as those of a task that no worker survives."""
        error = OutsideError(f"task {self.task!r} ended the process of its worker {self.deaths} times")
        scenes = [Scene(world, plan) for plan in self.plans]
        for scene in scenes:
            scene.fail("worker", error)
        return [scene.episode() for scene in scenes]


@dataclass(frozen=True)
class Played:
    """What a job came to; it arrives whole or not at all."""

    episodes: Sequence[Episode]
    cost: Ledger
    said: Mapping[tuple[str, ...], Said]
    """Replies that were not on record before."""


def by_task(plans: Sequence[Plan]) -> list[Job]:
    """One job a task, in order of appearance."""
    jobs: dict[str, Job] = {}
    for place, plan in enumerate(plans):
        job = jobs.setdefault(plan.key.task, Job(plan.key.task))
        job.places.append(place)
        job.plans.append(plan)
    return list(jobs.values())
