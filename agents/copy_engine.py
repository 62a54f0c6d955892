"""The plainest engine: a second Hugging Face module in this process, which speaks while the first one learns."""

from __future__ import annotations

from collections.abc import Sequence

from peft import set_peft_model_state_dict

from macredit.learn import TrainRow
from macredit.learn.handover import Weights
from macredit.learn.loss import FloatK

from .hf import HF


class Copy(HF):
    """An :class:`HF` policy whose weights come from a learner; rollouts and learning may run in two threads."""

    def receive(self, weights: Weights) -> None:
        """Copy the weights; every id is sampled and scored with them from now on."""
        tensors = dict(weights.tensors)
        if self.adapter is None:
            self.module.load_state_dict(tensors)
        else:
            set_peft_model_state_dict(self.module, tensors, adapter_name=self.adapter)
        self.version = weights.version

    def score(self, rows: Sequence[TrainRow]) -> list[FloatK]:
        """Log-probabilities as sampled."""
        return self.logprobs(rows)
