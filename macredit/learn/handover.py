"""From those that learn to those that speak: new weights change hands between a learner and its engine.

Nothing is taken on trust: after every hand-over both sides score the same recorded reply, the canary. The engine must
agree with the learner within a stated tolerance, and must have moved if the learner has: after a small step an engine
that still holds the old weights agrees well enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from macredit.errors import UserError
from macredit.learn.batch import TrainRow, row_of
from macredit.learn.learner import Trainable
from macredit.learn.loss import FloatK
from macredit.policy import Chat, Policy, Request
from macredit.seeds import Key

TOLERANCE = {"float32": 1e-3, "float16": 0.02, "bfloat16": 0.15}
"""How far two engines may differ on one id of the canary, in nats, by the coarser precision of the two."""
STILL = 1e-4
"""A learner whose canary moved by more than this, in nats on one id, must have moved its engine."""
_CANARY = (
    "Two carts leave the mill with 17 and 26 sacks; each loses 3 of them on the way. How many sacks arrive?",
    "37",
)
"""Longer than the block of any prefix cache, and a short reply: engines compute each of its ids as they sample."""


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of one policy, as its learner holds them."""

    version: str
    """The learner's version; the engine takes it over."""
    tensors: Mapping[str, Any]
    """Torch tensors under the names that Hugging Face files (an adapter: PEFT files) give them."""
    lora: Mapping[str, Any] | None = None
    """PEFT's adapter settings as JSON values; None: these are the weights of a whole model."""


@runtime_checkable
class Engine(Policy, Protocol):
    """A policy whose weights come from a learner elsewhere."""

    precision: str
    """What it computes in: a key of ``TOLERANCE``."""

    def receive(self, weights: Weights) -> None:
        """Speak with these weights from now on, under their version, and forget what was computed with others."""
        ...

    def score(self, rows: Sequence[TrainRow]) -> list[FloatK]:
        """float[L] a row, 0 where the mask is False: log-probabilities under the weights it speaks with."""
        ...


@runtime_checkable
class HandsOver(Protocol):
    """A policy in which an engine speaks and another model learns."""

    def hand_over(self) -> dict[str, float]:
        """Send the learned weights to the engine; seconds it took, and how far both sides differ on the canary.

        Raises:
            UserError: the engine does not compute what the learner does.
        """
        ...


class Canary:
    """One recorded reply that a learner and its engine both score.

    Args:
        learner: what learns.
        engine: what speaks.
        precision: what the learner computes in.
    """

    def __init__(self, learner: Trainable, engine: Engine, precision: str) -> None:
        self._learner, self._engine = learner, engine
        self.tolerance = 0.0
        for one in (precision, engine.precision):
            self.allow(one)
        self._row = canary_row(learner)
        self._seen: tuple[FloatK, FloatK] | None = None

    def allow(self, precision: str) -> None:
        """Widen the tolerance to that of a coarser precision."""
        self.tolerance = max(self.tolerance, TOLERANCE[precision])

    def check(self) -> float:
        """The largest difference of an id's log-probability on both sides, in nats.

        Raises:
            UserError: it is above the tolerance, or the learner moved since the last check and the engine did not.
        """
        learned, spoken = self._score(self._learner.logprobs), self._score(self._engine.score)
        at = int(np.argmax(np.abs(learned - spoken)))
        who = f"policy {self._learner.name!r}: after the hand-over of version {self._engine.version}"
        difference = float(abs(learned[at] - spoken[at]))
        if not difference <= self.tolerance:  # NaN among them
            raise UserError(
                f"{who} the engine gives id {at} of the canary the log-probability {spoken[at]:.6g} and the learner "
                f"{learned[at]:.6g}; expected a difference of at most {self.tolerance:g}; give both the same model, "
                "adapter and precision"
            )
        if self._seen is not None:
            self._check_moved(who, learned - self._seen[0], spoken - self._seen[1])
        self._seen = learned, spoken
        return difference

    def _check_moved(self, who: str, learner: FloatK, engine: FloatK) -> None:
        at = int(np.argmax(np.abs(learner)))
        if abs(learner[at]) > STILL and not engine.any():
            raise UserError(
                f"{who} the learner's log-probability of id {at} of the canary moved by {learner[at]:.3g} and the "
                f"engine's by {engine[at]:.3g}; expected both to move: the engine still holds the old weights, or its "
                "precision is too coarse for the step"
            )

    def _score(self, score: Any) -> FloatK:
        """float[K]: of the canary's reply alone."""
        return np.asarray(score([self._row])[0][self._row.mask], dtype=np.float64)


def canary_row(learner: Trainable) -> TrainRow:
    """The canary in a learner's own ids."""
    prompt, reply = _CANARY
    said = learner.dictate(Request("canary", (Chat("user", prompt),), Key(0, "canary")), reply)
    return row_of(said.prompt_ids or (), said.token_ids or ())
