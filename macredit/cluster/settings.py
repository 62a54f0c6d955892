"""Where a run is computed: how many actors of which kind, and what each of them takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from macredit.bounds import Within


@dataclass(frozen=True)
class RayConfig:
    """The ``[ray]`` table."""

    address: str = ""
    """HOST:PORT of a cluster, or ``auto`` for the one this machine is part of; empty: one for this run alone."""
    workers: Annotated[int, Within(1)] = 2
    """Rollout workers; each plays one task's episodes at a time."""
    engines: Annotated[int, Within(0)] = 0
    """Replicas that speak for every policy; 0: each worker speaks for itself."""
    worker_cpus: Annotated[float, Within(0)] = 1.0
    """CPUs of a rollout worker."""
    worker_gpus: Annotated[float, Within(0)] = 0.0
    """GPUs of a rollout worker; only workers that speak for themselves can use one."""
    engine_cpus: Annotated[float, Within(0)] = 1.0
    """CPUs of an engine."""
    engine_gpus: Annotated[float, Within(0)] = 0.0
    """GPUs of an engine; a fraction lets engines share one."""
    learner_cpus: Annotated[float, Within(0)] = 1.0
    """CPUs of a learner; there is one for each policy that learns."""
    learner_gpus: Annotated[float, Within(0)] = 0.0
    """GPUs of a learner; a fraction lets learners share one."""
    placement: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"
    """Ray's placement strategy: on as few machines as can be, or on as many."""
    patience: Annotated[float, Within(0)] = 60.0
    """Seconds that a cluster may take to find room for all actors."""
    tries: Annotated[int, Within(1)] = 3
    """Workers that may die over one task before its episodes end as ``failed:worker``; so with engines and learners."""

    def bundles(self, learners: int) -> list[dict[str, float]]:
        """What the actors take, in Ray's words: workers first, then engines, then learners."""
        worker = _resources(self.worker_cpus, self.worker_gpus)
        engine = _resources(self.engine_cpus, self.engine_gpus)
        learner = _resources(self.learner_cpus, self.learner_gpus)
        return [worker] * self.workers + [engine] * self.engines + [learner] * learners


def _resources(cpus: float, gpus: float) -> dict[str, float]:
    """A bundle; Ray wants at least one resource in it, and names none of which there is nothing."""
    found = {name: amount for name, amount in (("CPU", cpus), ("GPU", gpus)) if amount}
    return found or {"CPU": 0.001}
