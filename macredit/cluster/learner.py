"""Learners as actors: one a policy, checkpoints as here; who dies is restored, and its updates are repeated."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import ray

from macredit.cluster.parts import Card, Parts
from macredit.cluster.seat import Seat, fetch
from macredit.errors import OutsideError
from macredit.learn import Learner, LearnerConfig, TrainRow
from macredit.learn.critic import FloatND, Ids, Reads
from macredit.learn.handover import Weights
from macredit.learn.loss import FloatK
from macredit.learn.team_critic import reader_of
from macredit.policy import Request, Said
from macredit.run_folder import PART, checkpoints

How = Literal["update", "imitate"]


class LearnerActor:
    """Holds one :class:`macredit.learn.Learner`."""

    def begin(self, parts: Parts, name: str, config: LearnerConfig) -> Card:
        """Build the half of a policy that learns, and its learner; its card."""
        parts.find_modules()
        policy = parts.learns(parts.env(), name)
        policy.name = policy.name or name
        self._weights, self._learner = parts.weights, Learner(policy, config)
        return Card.of(policy)

    def learn(self, how: How, rows: Sequence[TrainRow]) -> tuple[dict[str, float], str]:
        """One update; its metrics, and the version after it."""
        metrics = self._learner.update(rows) if how == "update" else self._learner.imitate(rows)
        return metrics, self._learner.policy.version

    def weights(self) -> tuple[str, Weights]:
        """Version and weights; two results, so that the second can stay where it is."""
        return self._learner.policy.version, self._weights(self._learner.policy)

    def precisions(self) -> tuple[str, ...]:
        """What its model holds and computes in; empty: it has none."""
        held = getattr(self._learner.policy, "precision", None)
        return () if held is None else (held, self._learner.config.precision)

    def logprobs(self, rows: Sequence[TrainRow]) -> list[FloatK]:
        """See :class:`macredit.learn.Trainable`."""
        return self._learner.policy.logprobs(rows)

    def reads(self) -> tuple[int, int] | None:
        """Width and number of ids of its model, for a critic to read; None: it has none."""
        return None if self._reader is None else (self._reader.width, self._reader.known)

    def states(self, asked: Sequence[Ids]) -> FloatND:
        """See :class:`macredit.learn.critic.Reads`."""
        if self._reader is None:
            raise RuntimeError(f"policy {self._learner.policy.name!r} has no model to read")
        return self._reader.states(asked)

    @cached_property
    def _reader(self) -> Reads | None:
        return reader_of(self._learner.policy)

    def save(self, folder: str) -> int:
        """Write a checkpoint; the number of updates in it."""
        self._learner.save(folder)
        return self._learner.rollouts

    def load(self, folder: str) -> tuple[int, str]:
        """Go on from one; the number of updates in it, and the version."""
        self._learner.load(folder)
        return self._learner.rollouts, self._learner.policy.version

    def dictate(self, request: Request, text: str) -> Said:
        """See :class:`macredit.learn.Trainable`."""
        return self._learner.policy.dictate(request, text)

    def export(self, folder: str) -> None:
        """See :class:`macredit.learn.Trainable`."""
        self._learner.policy.export(folder)


class AwayReader(NamedTuple):
    """Reads the model of a learner in an actor; see :class:`macredit.learn.critic.Reads`."""

    width: int
    known: int
    seat: Seat

    def states(self, asked: Sequence[Ids]) -> FloatND:
        """Computed where the model is."""
        return np.asarray(self.seat.surely(lambda actor: actor.states.remote(asked)))


class AwayLearner:
    """A learner in an actor.

    Args:
        policy: the policy as it is known here.
        seat: makes the actor's seat, given what a successor has to be told.
    """

    def __init__(self, policy: Any, seat: Callable[[Callable[[Any], None]], Seat]) -> None:
        self.policy = policy
        self._saved: tuple[Path, int] | None = None
        """The folder of all checkpoints, and the number of updates in the newest."""
        self._since: list[tuple[How, Any]] = []
        """Updates after it, whose rows are in the object store."""
        self._under_way: tuple[How, Any, Any] | None = None
        self.seat = seat(self._restore)
        self.version = ""
        """The learner's; empty until it is :meth:`ready`."""

    def ready(self) -> None:
        """Wait until the actor has begun.

        Raises:
            UserError: the policy cannot learn.
        """
        self.version = self.seat.ready().version

    def update(self, rows: Sequence[TrainRow]) -> dict[str, float]:
        """Learn from one rollout."""
        self.start("update", rows)
        return self.finish()

    def imitate(self, rows: Sequence[TrainRow]) -> dict[str, float]:
        """Raise the likelihood of recorded replies."""
        self.start("imitate", rows)
        return self.finish()

    def start(self, how: How, rows: Sequence[TrainRow]) -> None:
        """Begin an update; :meth:`finish` waits for it."""
        kept = ray.put(list(rows))
        self._under_way = how, kept, self.seat.actor.learn.remote(how, kept)

    def finish(self) -> dict[str, float]:
        """The metrics of the update under way; where its actor dies, the next one repeats it from the state before.

        Raises:
            OutsideError: the update ends its actor again and again.
        """
        if self._under_way is None:
            raise RuntimeError("no update is under way")
        how, rows, ref = self._under_way
        metrics, self.version = self.seat.surely(lambda actor: actor.learn.remote(how, rows), ref)
        self._since.append((how, rows))
        self._under_way = None
        found: dict[str, float] = metrics
        return found

    def weights(self) -> Any:
        """A reference to what is handed over, in the object store of the learner's machine."""
        refs: list[Any] = []

        def call(actor: Any) -> Any:
            refs[:] = actor.weights.options(num_returns=2).remote()
            return refs[0]

        self.seat.surely(call)
        return refs[1]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a checkpoint, into a folder that the learner's machine and this one share.

        Raises:
            OutsideError: they do not share it.
        """
        path = Path(folder).resolve()
        updates = self.seat.surely(lambda actor: actor.save.remote(str(path)))
        if not (path / "state.json").is_file():
            raise OutsideError(
                f"learner {self.policy.name!r} saved {path} on another machine; give -o a folder that all share"
            )
        self._saved, self._since = (path.parents[1], updates), []

    def load(self, folder: str | os.PathLike[str]) -> None:
        """Go on from a checkpoint."""
        path = Path(folder).resolve()
        updates, self.version = self.seat.surely(lambda actor: actor.load.remote(str(path)))
        self._saved, self._since = (path.parents[1], updates), []

    def dictate(self, request: Request, text: str) -> Said:
        """What would have been recorded had the policy said ``text``."""
        said: Said = self.seat.surely(lambda actor: actor.dictate.remote(request, text))
        return said

    def logprobs(self, rows: Sequence[TrainRow]) -> list[FloatK]:
        """float[L] a row: log-probabilities under the learned weights."""
        found: list[FloatK] = self.seat.surely(lambda actor: actor.logprobs.remote(rows))
        return found

    def reader(self) -> AwayReader | None:
        """Reads the model in the actor; None: it has none."""
        shape = self.seat.surely(lambda actor: actor.reads.remote())
        if shape is None:
            return None
        width, known = shape
        return AwayReader(width, known, self.seat)

    def export(self, folder: str | os.PathLike[str]) -> None:
        """Write the trained policy's folder."""
        self.seat.surely(lambda actor: actor.export.remote(str(Path(folder).resolve())))

    def _restore(self, actor: Any) -> None:
        """Bring a new actor to the state of the last: the newest checkpoint, and the updates since."""
        if self._saved is not None:
            fetch(actor.load.remote(str(_checkpoint(*self._saved, self.policy.name))))
        for how, rows in self._since:
            fetch(actor.learn.remote(how, rows))


def _checkpoint(folder: Path, updates: int, policy: str) -> Path:
    """The newest checkpoint of a policy with so many updates in it; a whole one, or one still in the making.

    Raises:
        OutsideError: it is gone.
    """
    for one in (*reversed(checkpoints(folder.parent)), folder / PART):
        about = one / policy / "state.json"
        if about.is_file() and json.loads(about.read_text())["rollouts"] == updates:
            return one / policy
    raise OutsideError(f"the checkpoint of policy {policy!r} with {updates} updates is gone from {folder}")
