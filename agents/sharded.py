"""A Hugging Face policy held by several processes together, for a model that outgrows a GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from macredit.learn import LearnerConfig, Objective, State, TrainRow
from macredit.learn.fsdp import Ranks, Shard
from macredit.learn.learner import Metrics
from macredit.learn.loss import FloatK
from macredit.policy import BatchPolicy, Request, Said

from .hf import HF


class ShardedHF(Shard, HF):
    """One rank's part."""


class Sharded(BatchPolicy):
    """Speaks and learns as :class:`HF` does; every call is made by all its ranks.

    It shares its base with no other policy. With ``device`` ``cuda`` its ranks take the first GPUs.

    Args:
        settings: of an hf policy.
        shards: how many ranks.
        name: the policy's name.

    Raises:
        UserError: as :class:`HF` does; or fewer than two ranks, or more than there are GPUs.
    """

    def __init__(self, settings: Mapping[str, Any], shards: int, name: str = "") -> None:
        self._settings = {**settings, "name": name, "device": "cpu"}
        cuda = str(settings.get("device", "cpu")).startswith("cuda")
        self._ranks = Ranks(name, partial(ShardedHF, **self._settings), shards, cuda)
        version, sampling = self._ranks("facts")
        self._config = LearnerConfig()
        self._whole: HF | None = None
        self._moved = False
        """Whether the ranks hold other weights than ``_whole``."""
        super().__init__(name, version, sampling)

    def say(self, batch: Sequence[Request]) -> list[Said]:
        """One reply a request."""
        said: list[Said] = self._ranks("say", batch)
        return said

    def prepare(self, config: LearnerConfig) -> None:
        """Each rank keeps its shard of weights, gradients and moments from now on."""
        self._config = config
        self._ranks("prepare", config)

    def logprobs(self, rows: Sequence[TrainRow], reference: bool = False) -> list[FloatK]:
        """float[L] a row, 0 where the mask is False."""
        found: list[FloatK] = self._ranks("logprobs", rows, reference)
        return found

    def update(self, rows: Sequence[TrainRow], loss: Objective) -> Metrics:
        """One optimiser step of all ranks."""
        metrics: Metrics = self._ranks("update", rows, loss)
        self._changed()
        return metrics

    def state(self) -> State:
        """Whole: one process may go on from it, and this policy from that of one process."""
        state: State = self._ranks("state")
        return state

    def load(self, state: State) -> None:
        """The inverse of :meth:`state`."""
        self._ranks("load", state)
        self._changed()

    def _changed(self) -> None:
        self.version, _ = self._ranks("facts")
        self._moved = True

    def dictate(self, request: Request, text: str) -> Said:
        """Ids to imitate."""
        said: Said = self._ranks("dictate", request, text)
        return said

    def export(self, folder: str | os.PathLike[str]) -> None:
        """Write the folder that one process would."""
        self._up_to_date().export(folder)

    @property
    def module(self) -> Any:
        """The whole model as it is now, in this process and on the CPU: what is handed over to an engine."""
        return self._up_to_date().module

    @property
    def precision(self) -> str:
        """The dtype of its weights, as one process holds them."""
        return self._up_to_date().precision

    @property
    def adapter(self) -> str | None:
        """Which part of it learns; None: all."""
        return self._up_to_date().adapter

    def _up_to_date(self) -> HF:
        """The policy in one process; made when first asked for."""
        self._whole = self._whole or HF(**self._settings)
        if self._moved:
            state = self.state()
            weights = {name: array for name, array in state.tensors.items() if name.startswith("weight/")}
            self._whole.prepare(self._config)
            self._whole.load(state._replace(tensors=weights))
            self._moved = False
        return self._whole

    def close(self) -> None:
        """End the ranks; they also end with this process."""
        self._ranks.close()
