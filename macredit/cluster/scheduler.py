"""Plays plans on a company's workers: a task at a time each, results whole or not at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray

from macredit.cluster.jobs import Job, Played, by_task
from macredit.cluster.seat import DiedError, Seat, fetch
from macredit.cluster.worker import EngineLostError, StaleError
from macredit.episode import Episode
from macredit.learn import LearnerConfig, TrainRow
from macredit.ledger import Ledger
from macredit.rollout import Memory, Plan, World

if TYPE_CHECKING:
    from macredit.cluster.company import Company
    from macredit.cluster.learner import AwayLearner


@dataclass(frozen=True)
class _Sent:
    """A job under way, by whom, and which engine speaks there."""

    job: Job
    worker: Seat
    engine: Seat | None
    actor: Any
    """Who sat at the engine's place then."""


class Scheduler:
    """What a :class:`~macredit.rollout.World` finds elsewhere.

    Args:
        company: the actors.
        env: ``team`` or ``solo``: which environment of theirs it is.
        world: environment and policies, as they are named here.
    """

    def __init__(self, company: Company, env: str, world: World) -> None:
        self._company, self._env, self._world = company, env, world

    def learners_of(self, policies: Iterable[str], config: LearnerConfig) -> Mapping[str, AwayLearner]:
        """The learners of some policies, by name."""
        return self._company.begin_learning(policies, config)

    def learn(self, rows: Mapping[str, Sequence[TrainRow]]) -> dict[str, dict[str, float]]:
        """One update of each policy, all at the same time; metrics by policy."""
        learners = self._company.learners
        for name, own in rows.items():
            learners[name].start("update", own)
        return {name: learners[name].finish() for name in rows}

    def play(
        self, plans: Sequence[Plan], ledger: Ledger, memory: Memory | None, on_end: Callable[[Episode], None] | None
    ) -> list[Episode]:
        """Play on the workers; a worker or engine that dies is replaced, and its task played again.

        Raises:
            OutsideError: an engine dies again and again.
        """
        ended: dict[int, Episode] = {}
        with ledger.timed(), self._company.quiet:
            for job, played in self._results(by_task(plans), memory):
                ledger.add(played.cost)
                for name, said in played.said.items():
                    if memory is not None:
                        memory.keep(name, said)
                for place, episode in zip(job.places, played.episodes, strict=True):
                    ended[place] = episode
                    if on_end is not None:
                        on_end(episode)
        return [ended[place] for place in range(len(plans))]

    def _results(self, jobs: Sequence[Job], memory: Memory | None) -> Iterator[tuple[Job, Played]]:
        """Each job with what it came to, as they end."""
        waiting, idle = deque(jobs), deque(self._company.workers)
        running: dict[Any, _Sent] = {}
        while waiting or running:
            while waiting and idle:
                ref, sent = self._send(waiting.popleft(), idle.popleft(), memory)
                running[ref] = sent
            ready, _ = ray.wait(list(running), num_returns=1)
            sent = running.pop(ready[0])
            played = self._received(ready[0], sent)
            idle.append(sent.worker)
            if played is None:
                waiting.appendleft(sent.job)
            else:
                yield sent.job, played

    def _send(self, job: Job, worker: Seat, memory: Memory | None) -> tuple[Any, _Sent]:
        engine = self._company.engine_of(job.task)
        actor = engine.actor if engine is not None else None
        said = None if memory is None else memory.of(job.task)
        cards = self._company.cards(self._world.policies)
        return worker.actor.play.remote(self._env, job.plans, cards, said, actor), _Sent(job, worker, engine, actor)

    def _received(self, ref: Any, sent: _Sent) -> Played | None:
        """What a job came to; None: somebody was replaced or told, and it is to be played again."""
        tries = self._company.settings.tries
        try:
            played: Played = fetch(ref)
        except DiedError:
            sent.worker.replace()
            sent.job.deaths += 1
            if sent.job.deaths < tries:
                return None
            return Played(sent.job.failed(self._world), Ledger(), {})
        except EngineLostError:
            self._company.replace_engine(sent.engine, sent.actor)
            return None
        except StaleError:
            sent.job.refused += 1
            if sent.job.refused >= tries:
                raise
            self._company.tell(sent.engine or sent.worker)
            return None
        if sent.engine is not None:
            sent.engine.deaths = 0
        return played
