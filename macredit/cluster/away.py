"""Policies as the driving process knows them: by name and version; whoever asks more is answered by an actor."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from macredit.cluster.parts import Card
from macredit.errors import UserError
from macredit.learn.critic import Reads
from macredit.policy import Request, Said

if TYPE_CHECKING:
    from macredit.cluster.company import Company


class Away:
    """A policy that speaks elsewhere, where whole plays go; here it has a name, a version and, if known, chances."""

    def __init__(self, card: Card, company: Company) -> None:
        self.name, self.version, self.sampling = card.name, card.version, card.sampling
        self._company = company

    def submit(self, requests: Sequence[tuple[int, Request]]) -> None:
        """Never asked.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(f"policy {self.name!r} speaks in another process; plays go there whole")

    def collect(self) -> Sequence[tuple[int, Said | Exception]]:
        """There is nothing to collect."""
        return ()

    def distribution(self, request: Request) -> Mapping[str, float] | None:
        """The chances of its replies, where it knows them."""
        return self._company.distribution(self.name, request)

    def reader(self) -> Reads | None:
        """See :class:`macredit.learn.critic.Readable`."""
        if self._company.has_model(self.name):
            raise UserError(
                f"policy {self.name!r} is frozen and its model in the processes that play, where its critic cannot "
                "read it; train without Ray, or choose settings without a critic (c3: variant=reward_only)"
            )
        return None


class AwayTrainable(Away):
    """A policy that also learns elsewhere; its ``version`` is that of the weights that speak."""

    def hand_over(self) -> dict[str, float]:
        """Send the learner's weights to all who speak, if they are others than those they have; check the canary.

        Returns:
            ``seconds`` in all and, for language models, ``canary``, the largest difference in nats.
        """
        begun = perf_counter()
        learner = self._company.learners[self.name]
        if learner.version != self.version:
            self._company.publish(self.name, learner.version, learner.weights())
        return self._company.check(self.name) | {"seconds": perf_counter() - begun}

    def reader(self) -> Reads | None:
        """See :class:`macredit.learn.critic.Readable`; the model that learns is read."""
        return self._company.learners[self.name].reader()

    def dictate(self, request: Request, text: str) -> Said:
        """What would have been recorded had it said ``text``."""
        return self._company.learners[self.name].dictate(request, text)

    def export(self, folder: str | os.PathLike[str]) -> None:
        """Write the trained policy's folder."""
        self._company.learners[self.name].export(folder)
