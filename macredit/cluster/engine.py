"""The actor that speaks: requests of all workers that wait for one policy are answered together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from macredit.cluster.parts import Card, Parts
from macredit.cluster.worker import Speakers
from macredit.errors import OutsideError, UserError
from macredit.policy import Request, Said
from macredit.rollout import attempt

GATHER = 0.002
"""Seconds in which the first requests of a round come together."""

Answer = Said | Exception


class Engine:
    """Speaks for every policy. One thread computes; requests gather while it does."""

    def begin(self, parts: Parts) -> dict[str, Card]:
        """Build the policies; their cards."""
        parts.find_modules()
        self._speakers = Speakers(parts.speaks(parts.env()))
        self._new: dict[str, list[tuple[int, Request]]] = {}
        self._waiting: dict[str, dict[int, asyncio.Future[Answer]]] = {name: {} for name in self._speakers.policies}
        self._ticket = 0
        self._rounds: asyncio.Task[None] | None = None
        return self._speakers.cards()

    def speakers(self, what: str, *given: Any) -> Any:
        """Call a method of :class:`~macredit.cluster.worker.Speakers`, while nobody waits for an answer."""
        return getattr(self._speakers, what)(*given)

    async def say(self, card: Card, request: Request) -> Answer:
        """The reply to one request.

        Raises:
            StaleError: it holds other weights.
        """
        self._speakers.check([card])
        self._ticket += 1
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[card.name][self._ticket] = answer
        self._new.setdefault(card.name, []).append((self._ticket, request))
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._answer_all())
        return await answer

    async def _answer_all(self) -> None:
        """Rounds of answers until nobody waits."""
        await asyncio.sleep(GATHER)
        while any(self._waiting.values()):
            new, self._new = self._new, {}
            who = max(self._waiting, key=lambda name: len(self._waiting[name]))
            try:
                answers = await asyncio.to_thread(self._ask, new, who, list(self._waiting[who]))
            except (UserError, OutsideError) as error:  # nobody's episode, but the whole run's end
                answers = [(name, ticket, error) for name, waiting in self._waiting.items() for ticket in waiting]
                self._new = {}
            for name, ticket, answer in answers:
                waiting = self._waiting[name].pop(ticket)
                if isinstance(answer, UserError | OutsideError):
                    waiting.set_exception(answer)
                else:
                    waiting.set_result(_portable(answer) if isinstance(answer, Exception) else answer)

    def _ask(
        self, new: Mapping[str, Sequence[tuple[int, Request]]], who: str, tickets: Sequence[int]
    ) -> list[tuple[str, int, Answer]]:
        """Submit what is new, and take answers from one policy; whatever it raises answers all who wait for it."""
        refused: list[tuple[str, int, Answer]] = []
        for name, requests in new.items():
            error = attempt(lambda: self._speakers.policies[name].submit(requests))  # noqa: B023 (called at once)
            if isinstance(error, Exception):
                refused += [(name, ticket, error) for ticket, _ in requests]
        if refused:
            return refused
        said = attempt(self._speakers.policies[who].collect)
        if isinstance(said, Exception):
            return [(who, ticket, said) for ticket in tickets]
        return [(who, ticket, answer) for ticket, answer in said]


def _portable(error: Exception) -> Exception:
    """An exception of the same name and text that any process can read, whatever the original's class needs."""
    kind: type[Exception] = type(type(error).__name__, (Exception,), {})
    return kind(str(error))
