"""The one forward pass of learning: log-probabilities of rows, packed and in chunks where the model allows it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from macredit.learn.attention import Layout, inputs_of, packed_attention, why_not_packed
from macredit.learn.batch import TrainRow
from macredit.learn.learner import LearnerConfig
from macredit.learn.pack import Pack, packed
from macredit.learn.resources import multiplied_in, recomputed
from macredit.learn.vocabulary import Scored, ends_in_head, hidden_at, logits_at, of_logits, score


class Scorer:
    """Scores rows under one model.

    A model that cannot be packed computes its rows one by one, and one that changes its logits after its output layer
    computes all of a batch at once: right in both cases, slower in the first, larger in the second, and said once.

    Args:
        module: the model, or any of its like.
        name: of the policy, for warnings.
    """

    def __init__(self, module: Any, name: str) -> None:
        self.device = next(module.parameters()).device
        why, self._chunks = why_not_packed(module), ends_in_head(module)
        self._packs = why is None
        if why is not None:
            warnings.warn(f"policy {name!r} computes its rows one by one, unpacked: {why}", stacklevel=2)
        if not self._chunks:
            warnings.warn(
                f"policy {name!r} computes all logits of a batch at once: its model changes what its last layer gives",
                stacklevel=2,
            )

    @contextmanager
    def ready(self, module: Any, config: LearnerConfig, gradient: bool) -> Iterator[None]:
        """Until the gradient is there, a module computes as a config says."""
        with ExitStack() as stack:
            stack.enter_context(multiplied_in(config.precision, self.device))
            if self._packs:
                stack.enter_context(packed_attention(module))
            if gradient and config.checkpointing:
                stack.enter_context(recomputed(module))
            yield

    def __call__(self, module: Any, rows: Sequence[TrainRow], temperature: float, chunk: int) -> Scored:
        """float[K] log-probabilities of the trained ids, rows one after another, and the entropies where they stand."""
        if self._packs:
            pack = packed(rows)
            return self._score(module, pack, Layout(pack, self.device), temperature, chunk)
        scored = [self._score(module, packed([row]), None, temperature, chunk) for row in rows]
        logps, entropies = zip(*scored, strict=True)
        return torch.cat(logps), torch.cat(entropies)

    def _score(self, module: Any, pack: Pack, layout: Layout | None, temperature: float, chunk: int) -> Scored:
        inputs = inputs_of(pack, layout, self.device)
        places = torch.as_tensor(pack.places, device=self.device)
        targets = torch.as_tensor(np.ascontiguousarray(pack.targets), device=self.device)
        if not self._chunks:
            return of_logits(logits_at(module, places, **inputs), targets, temperature)
        hidden = hidden_at(module, places, **inputs)
        return score(module.get_output_embeddings(), hidden, targets, temperature, chunk)
