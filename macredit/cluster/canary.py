"""After a hand-over the learner's actor and every actor that speaks score one reply; they must agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from macredit.cluster.learner import AwayLearner
from macredit.cluster.seat import Seat
from macredit.learn import TrainRow
from macredit.learn.handover import Canary, Engine
from macredit.learn.learner import Trainable
from macredit.learn.loss import FloatK


class Side:
    """One actor's half of a policy, as a :class:`~macredit.learn.handover.Canary` asks it.

    Args:
        policy: the policy, as it is known here.
        seat: whose actor speaks.
    """

    def __init__(self, policy: Any, seat: Seat) -> None:
        self._policy, self._seat = policy, seat
        self.name: str = policy.name
        self.precision: str = seat.surely(lambda actor: actor.speakers.remote("precision", policy.name))

    @property
    def version(self) -> str:
        """Of the weights handed over last."""
        return str(self._policy.version)

    def score(self, rows: Sequence[TrainRow]) -> list[FloatK]:
        """Log-probabilities under the weights it speaks with."""
        found: list[FloatK] = self._seat.surely(lambda actor: actor.speakers.remote("score", self.name, rows))
        return found


class Learned:
    """The learner's half."""

    def __init__(self, name: str, learner: AwayLearner) -> None:
        self.name, self.logprobs, self.dictate = name, learner.logprobs, learner.dictate


def canaries(policy: Any, learner: AwayLearner, speakers: Sequence[Seat]) -> list[Canary]:
    """One for each actor that speaks; none for a policy without a language model."""
    precisions = learner.seat.surely(lambda actor: actor.precisions.remote())
    found = []
    for seat in speakers if precisions else ():
        sides = cast(Trainable, Learned(policy.name, learner)), cast(Engine, Side(policy, seat))
        canary = Canary(*sides, precisions[0])
        canary.allow(precisions[1])
        found.append(canary)
    return found
