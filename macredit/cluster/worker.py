"""The actor that plays, and a policy that speaks from an engine, as a worker asks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError, RayTaskError

from macredit.cluster.jobs import Played
from macredit.cluster.parts import Card, Parts
from macredit.errors import OutsideError
from macredit.learn import TrainRow
from macredit.learn.critic import model_of
from macredit.learn.handover import Weights
from macredit.learn.loss import FloatK
from macredit.ledger import Ledger
from macredit.policy import Enumerable, Policy, Request, Said
from macredit.rollout import Memory, Plan, World, play


class StaleError(OutsideError):
    """An actor does not hold the weights that it is to speak with."""


class EngineLostError(OutsideError):
    """An engine died under a request."""


class Speakers:
    """The policies of one process, and the weights they hold."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self.policies = policies
        for name, policy in policies.items():
            policy.name = policy.name or name

    def cards(self) -> dict[str, Card]:
        """Everyone's card as of now."""
        return {name: Card.of(policy) for name, policy in self.policies.items()}

    def receive(self, name: str, weights: Weights) -> None:
        """Let a policy speak with these weights."""
        policy: Any = self.policies[name]
        policy.receive(weights)

    def check(self, cards: Iterable[Card]) -> None:
        """Refuse to speak with other weights than those asked for.

        Raises:
            StaleError: names both versions.
        """
        for card in cards:
            if self.policies[card.name].version != card.version:
                raise StaleError(
                    f"policy {card.name!r} is to speak as version {card.version}, and this process holds "
                    f"{self.policies[card.name].version}; send it the weights first"
                )

    def distribution(self, name: str, request: Request) -> Mapping[str, float] | None:
        """The chances of a policy's replies, where it knows them."""
        known: Any = self.policies[name]
        return known.distribution(request) if isinstance(known, Enumerable) else None

    def has_model(self, name: str) -> bool:
        """Whether a critic could read a policy's model in this process."""
        return model_of(self.policies[name]) is not None

    def precision(self, name: str) -> str:
        """What a policy's model computes in."""
        policy: Any = self.policies[name]
        return str(policy.precision)

    def score(self, name: str, rows: Sequence[TrainRow]) -> list[FloatK]:
        """Log-probabilities under the weights that a policy speaks with."""
        policy: Any = self.policies[name]
        found: list[FloatK] = policy.score(rows)
        return found


class Worker:
    """Plays one task at a time; speaks for itself unless it is given an engine."""

    def begin(self, parts: Parts, speaks: bool) -> dict[str, Card]:
        """Build environment and, if it ``speaks``, policies; their cards."""
        parts.find_modules()
        self._envs = {"team": parts.env()}
        if parts.solo is not None:
            self._envs["solo"] = parts.solo()
        self._speakers = Speakers(parts.speaks(self._envs["team"]) if speaks else {})
        return self._speakers.cards()

    def speakers(self, what: str, *given: Any) -> Any:
        """Call a method of :class:`Speakers`."""
        return getattr(self._speakers, what)(*given)

    def play(
        self, env: str, plans: Sequence[Plan], cards: Sequence[Card], said: Mapping[tuple[str, ...], Said] | None,
        engine: ActorHandle[Any] | None,
    ) -> Played:  # fmt: skip
        """Play one task's plans.

        Args:
            env: ``team`` or ``solo``.
            plans: of one task.
            cards: who speaks, with which version.
            said: replies on record; None: nothing is recalled.
            engine: who speaks for everyone; None: this process.

        Raises:
            StaleError: this process or the engine holds other weights.
            EngineLostError: the engine died.
        """
        policies: dict[str, Policy]
        if engine is None:
            self._speakers.check(cards)
            policies = {card.name: self._speakers.policies[card.name] for card in cards}
        else:
            policies = {card.name: Asks(card, engine) for card in cards}
        ledger, memory = Ledger(), None if said is None else Remembers(said)
        episodes = play(World(self._envs[env], policies), plans, ledger=ledger, memory=memory)
        return Played(episodes, ledger, {} if memory is None else memory.new)


class Remembers(Memory):
    """A memory that tells what is new in it."""

    def __init__(self, said: Mapping[tuple[str, ...], Said]) -> None:
        super().__init__()
        for name, reply in said.items():
            super().keep(name, reply)
        self.new: dict[tuple[str, ...], Said] = {}

    def keep(self, name: tuple[str, ...], said: Said) -> None:
        """Put a reply on record."""
        super().keep(name, said)
        self.new[name] = said


class Asks:
    """A policy that speaks from an engine."""

    def __init__(self, card: Card, engine: ActorHandle[Any]) -> None:
        self.name, self.version, self.sampling = card.name, card.version, card.sampling
        self._card, self._engine = card, engine
        self._tickets: dict[Any, int] = {}

    def submit(self, requests: Sequence[tuple[int, Request]]) -> None:
        """Send each request on its own, so that each answer comes when it is ready."""
        for ticket, request in requests:
            self._tickets[self._engine.say.remote(self._card, request)] = ticket

    def collect(self) -> list[tuple[int, Said | Exception]]:
        """All answers that are there; waits for one.

        Raises:
            EngineLostError: the engine died.
        """
        ray.wait(list(self._tickets), num_returns=1)
        ready, _ = ray.wait(list(self._tickets), num_returns=len(self._tickets), timeout=0)
        return [(self._tickets.pop(ref), self._answer(ref)) for ref in ready]

    def _answer(self, ref: Any) -> Said | Exception:
        try:
            said: Said | Exception = ray.get(ref)
        except RayTaskError as error:
            raise error.cause from None
        except RayError as error:
            raise EngineLostError(f"the engine of policy {self.name!r} died ({type(error).__name__})") from None
        return said
