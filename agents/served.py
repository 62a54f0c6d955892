"""Who speaks and who learns may be two things: an engine speaks, its Hugging Face twin learns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import perf_counter

from macredit.errors import UserError
from macredit.learn import LearnerConfig, Objective, State, TrainRow
from macredit.learn.handover import Canary, Engine
from macredit.learn.learner import Metrics
from macredit.learn.loss import FloatK
from macredit.policy import Request, Said

from .hf import HF
from .weights import weights_of


class Served:
    """A policy of two halves: until weights are handed over, the engine speaks with the old ones.

    ``version`` is that of the weights that speak.

    Both begin with the same weights, which is checked when the policy is made, before anything is played.

    Args:
        learner: the half that learns.
        engine: the half that speaks; ``sampling`` is its own.

    Raises:
        UserError: the engine does not compute what the learner does, or at temperature 0 there is nothing to learn.
    """

    def __init__(self, learner: HF, engine: Engine) -> None:
        if learner.sampling["temperature"] == 0:
            raise UserError(
                f"policy {learner.name!r} has an engine because it learns, and its temperature is 0, where nothing can "
                "be learned; give it a temperature above 0, or leave engine out"
            )
        self.name, self.learner, self.engine = learner.name, learner, engine
        self.version, self.sampling = engine.version, engine.sampling
        self._canary = Canary(learner, engine, learner.precision)
        self.hand_over()

    # -- the half that speaks --------------------------------------------------------------------------------------

    def submit(self, requests: Sequence[tuple[int, Request]]) -> None:
        """Ask the engine."""
        self.engine.submit(requests)

    def collect(self) -> Sequence[tuple[int, Said | Exception]]:
        """The engine's answers."""
        return self.engine.collect()

    def hand_over(self) -> dict[str, float]:
        """Send the learner's weights to the engine if they are others than it has; check the canary in any case.

        Returns:
            ``seconds`` in all, and ``canary``, the largest difference in nats.

        Raises:
            UserError: the engine does not compute what the learner does.
        """
        begun = perf_counter()
        if self.engine.version != self.learner.version:
            self.engine.receive(weights_of(self.learner))
            self.version = self.engine.version
        return {"canary": self._canary.check(), "seconds": perf_counter() - begun}

    # -- the half that learns --------------------------------------------------------------------------------------

    def prepare(self, config: LearnerConfig) -> None:
        """Make the learner's optimiser."""
        self.learner.prepare(config)
        self._canary.allow(config.precision)

    def logprobs(self, rows: Sequence[TrainRow], reference: bool = False) -> list[FloatK]:
        """The learner's log-probabilities."""
        return self.learner.logprobs(rows, reference)

    def update(self, rows: Sequence[TrainRow], loss: Objective) -> Metrics:
        """One optimiser step of the learner."""
        return self.learner.update(rows, loss)

    def state(self) -> State:
        """The learner's: a run may go on with another engine, or none."""
        return self.learner.state()

    def load(self, state: State) -> None:
        """The inverse of :meth:`state`; the engine hears of it at the next hand-over."""
        self.learner.load(state)

    def dictate(self, request: Request, text: str) -> Said:
        """Ids to imitate."""
        return self.learner.dictate(request, text)

    def export(self, folder: str | os.PathLike[str]) -> None:
        """Write the learner's folder."""
        self.learner.export(folder)
