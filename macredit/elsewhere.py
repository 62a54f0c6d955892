"""What a run asks of other processes, whatever they are: to play plans, and to let policies learn."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from macredit.learn import LearnerConfig, TrainRow
from macredit.policy import Request, Said

if TYPE_CHECKING:
    from macredit.episode import Episode
    from macredit.ledger import Ledger
    from macredit.rollout import Memory, Plan


class Learnt(Protocol):
    """A policy that learns, here or elsewhere: what is asked of it besides."""

    def dictate(self, request: Request, text: str) -> Said:
        """What would have been recorded had it said ``text``."""
        ...

    def export(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder from which the trained policy can be made anywhere."""
        ...


class Learns(Protocol):
    """A learner, here or elsewhere (:class:`macredit.learn.Learner`)."""

    @property
    def policy(self) -> Learnt:
        """What it trains."""
        ...

    def update(self, rows: Sequence[TrainRow]) -> dict[str, float]:
        """Learn from one rollout."""
        ...

    def imitate(self, rows: Sequence[TrainRow]) -> dict[str, float]:
        """Raise the likelihood of recorded replies."""
        ...

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a checkpoint."""
        ...

    def load(self, folder: str | os.PathLike[str]) -> None:
        """Go on from one."""
        ...


class Elsewhere(Protocol):
    """Other processes, which come to the same result."""

    def play(
        self, plans: Sequence[Plan], ledger: Ledger, memory: Memory | None, on_end: Callable[[Episode], None] | None
    ) -> list[Episode]:
        """See :func:`macredit.rollout.play`."""
        ...

    def learners_of(self, policies: Iterable[str], config: LearnerConfig) -> Mapping[str, Learns]:
        """The learners of some policies, by name."""
        ...

    def learn(self, rows: Mapping[str, Sequence[TrainRow]]) -> dict[str, dict[str, float]]:
        """One update of each policy, all at the same time; metrics by policy."""
        ...
