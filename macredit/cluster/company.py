"""All actors of one configuration: who they are, which weights they hold, and who takes a dead one's place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from macredit.cluster.away import Away, AwayTrainable
from macredit.cluster.canary import canaries
from macredit.cluster.engine import Engine
from macredit.cluster.learner import AwayLearner, LearnerActor
from macredit.cluster.parts import Card, Parts
from macredit.cluster.scheduler import Scheduler
from macredit.cluster.seat import DiedError, Seat, fetch
from macredit.cluster.settings import RayConfig
from macredit.cluster.worker import Worker
from macredit.errors import OutsideError, UserError
from macredit.learn import LearnerConfig
from macredit.learn.handover import Canary
from macredit.policy import Request
from macredit.rollout import World


class Company:
    """Workers, engines and learners in one placement group; a context that ends them all.

    Args:
        parts: what they build environment and policies from.
        settings: how many there are, and what each takes.
        learns: policies that are to learn.
    """

    def __init__(self, parts: Parts, settings: RayConfig, learns: Iterable[str] = ()) -> None:
        self.parts, self.settings, self.learns = parts, settings, tuple(learns)
        self.workers: list[Seat] = []
        self.engines: list[Seat] = []
        self.learners: dict[str, AwayLearner] = {}
        self.quiet = threading.RLock()
        """Held by whoever plays, and by whoever changes weights."""
        self._weights: dict[str, tuple[str, Any]] = {}
        """Policy → version and reference of the weights handed over last."""
        self._home: dict[str, int] = {}
        """Task → the engine that speaks in it."""
        self._canaries: dict[str, list[Canary]] = {}

    def __enter__(self) -> Self:
        s = self.settings
        self._group = self._placed(s.bundles(len(self.learns)))
        try:
            self.engines = [self._engine(i) for i in range(s.engines)]
            self.workers = [self._worker(i) for i in range(s.workers)]
            begun = [seat.ready() for seat in (*self.engines, *self.workers)]
            self.world, self.solo = self._worlds(begun[0])
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        learners = (learner.seat for learner in self.learners.values())
        for seat in (*self.workers, *self.engines, *learners):
            seat.end()
        remove_placement_group(self._group)

    # -- who speaks -----------------------------------------------------------------------------------------------

    @property
    def speakers(self) -> list[Seat]:
        """Those that hold weights and speak."""
        return self.engines or self.workers

    def cards(self, names: Iterable[str]) -> list[Card]:
        """Whom a play needs, with the versions it is to speak as."""
        return [Card.of(self.world.policies[name]) for name in names]

    def distribution(self, name: str, request: Request) -> Mapping[str, float] | None:
        """The chances of a policy's replies, where it knows them."""
        found: Mapping[str, float] | None = fetch(self.speakers[0].actor.speakers.remote("distribution", name, request))
        return found

    def has_model(self, name: str) -> bool:
        """Whether a policy has a model that a critic of one process would read."""
        return bool(fetch(self.speakers[0].actor.speakers.remote("has_model", name)))

    def publish(self, name: str, version: str, weights: Any) -> None:
        """Give everyone who speaks a policy's new weights; one copy in the object store serves them all."""
        with self.quiet:
            self._weights[name] = version, weights
            self._home.clear()  # what engines had cached is worth nothing now
            told = [(seat, seat.actor.speakers.remote("receive", name, weights)) for seat in self.speakers]
            for seat, ref in told:
                try:
                    fetch(ref)
                except DiedError:
                    seat.replace()
            self.world.policies[name].version = version

    def check(self, name: str) -> dict[str, float]:
        """``canary``: the largest difference, in nats, of the learner and anybody who speaks for a policy.

        Raises:
            UserError: somebody does not compute what the learner does.
        """
        policy, learner = self.world.policies[name], self.learners[name]
        if name not in self._canaries:
            self._canaries[name] = canaries(policy, learner, self.speakers)
        differences = [canary.check() for canary in self._canaries[name]]
        return {"canary": max(differences)} if differences else {}

    def tell(self, seat: Seat) -> None:
        """Give one who speaks all weights handed over so far."""
        self._settle(seat.actor)

    def engine_of(self, task: str) -> Seat | None:
        """The engine that speaks in a task, always the same one while it may have prompts of the task in its cache."""
        if not self.engines:
            return None
        return self.engines[self._home.setdefault(task, len(self._home) % len(self.engines))]

    def replace_engine(self, seat: Seat | None, actor: Any) -> None:
        """Seat another engine, unless that was done since the given one died.

        Raises:
            OutsideError: too many died in a row.
        """
        if seat is None or seat.actor is not actor:
            return
        seat.deaths += 1
        if seat.deaths >= self.settings.tries:
            raise OutsideError(
                f"{seat.what} died {seat.deaths} times before it had played one task to its end; give it more memory, "
                "or look into Ray's logs"
            )
        seat.replace()

    def _settle(self, actor: Any) -> None:
        """Tell a new one who speaks."""
        for name, (_, weights) in self._weights.items():
            fetch(actor.speakers.remote("receive", name, weights))

    # -- who learns -----------------------------------------------------------------------------------------------

    def begin_learning(self, names: Iterable[str], config: LearnerConfig) -> Mapping[str, AwayLearner]:
        """Make the learners of some policies, all at the same time."""
        self.learners = {name: AwayLearner(self.world.policies[name], self._desk(name, config)) for name in names}
        for learner in self.learners.values():
            learner.ready()
        return self.learners

    def _desk(self, name: str, config: LearnerConfig) -> Callable[[Callable[[Any], None]], Seat]:
        """Makes the seat of a learner, given what a new one has to be told."""
        place = self.settings.workers + self.settings.engines + self.learns.index(name)
        what = f"the learner of policy {name!r}"

        def begin(actor: Any) -> Any:
            return actor.begin.remote(self.parts, name, config)

        return lambda restore: self._seat(what, LearnerActor, place, begin, restore)

    # -- places ---------------------------------------------------------------------------------------------------

    def _worlds(self, cards: Mapping[str, Card]) -> tuple[World, World | None]:
        made = {name: (AwayTrainable if name in self.learns else Away)(card, self) for name, card in cards.items()}
        team = World(self.parts.env(), made)
        for name in team.env.team.names:
            team.speaker(name, {})
        world = World(team.env, made, Scheduler(self, "team", team))
        if self.parts.solo is None:
            return world, None
        env = self.parts.solo()
        alone = World(env, {name: made[name] for name in {agent.policy for agent in env.team.agents}})
        return world, World(env, alone.policies, Scheduler(self, "solo", alone))

    def _placed(self, bundles: list[dict[str, float]]) -> Any:
        """Room for all actors.

        Raises:
            UserError: the cluster has none.
        """
        group = placement_group(bundles, strategy=self.settings.placement)
        if group.wait(self.settings.patience):
            return group
        remove_placement_group(group)
        has: Mapping[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        there = {kind: has.get(kind, 0.0) for kind in ("CPU", "GPU")}
        asked = {kind: sum(bundle.get(kind, 0.0) for bundle in bundles) for kind in there}
        raise UserError(
            f"the cluster found no room for {len(bundles)} actors in {self.settings.patience:g} s: they take {asked}, "
            f"it has {there} in all; ask for fewer or smaller ones in [ray], or raise patience"
        )

    def _worker(self, i: int) -> Seat:
        """Speaks for itself where there are no engines."""
        speaks = not self.settings.engines

        def begin(actor: Any) -> Any:
            return actor.begin.remote(self.parts, speaks)

        return self._seat(f"worker {i}", Worker, i, begin, self._settle if speaks else lambda _: None)

    def _engine(self, i: int) -> Seat:
        def begin(actor: Any) -> Any:
            return actor.begin.remote(self.parts)

        return self._seat(f"engine {i}", Engine, self.settings.workers + i, begin, self._settle)

    def _seat(self, what: str, kind: type[Any], place: int, begin: Any, settle: Any) -> Seat:
        resources = self.settings.bundles(len(self.learns))[place]
        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=place)
        options = {
            "num_cpus": resources.get("CPU", 0.0), "num_gpus": resources.get("GPU", 0.0),
            "scheduling_strategy": strategy,
            **({"max_concurrency": 100_000} if kind is Engine else {}),
        }  # fmt: skip
        return Seat(what, kind, options, begin, settle, self.settings.tries)
