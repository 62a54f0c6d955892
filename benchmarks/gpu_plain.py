"""The straightforward loop: pad to the longest row, all logits, autograd through the clipped loss. For comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from macredit.learn import TrainRow

PAD = 256


class Plain:
    """One policy's loop over the parameters of ``module`` that may learn now.

    Args:
        module: a causal model, its adapter active.
        rate: AdamW's.
        batch_tokens: the most ids, padding included, of a micro-batch.
        precision: of the computation.
    """

    def __init__(self, module: Any, rate: float, batch_tokens: int, precision: str) -> None:
        self.module, self.batch_tokens = module, batch_tokens
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=rate, weight_decay=0.0)
        self.norm = 0.0
        """Of the last step's gradient, before it was clipped."""
        device = self.parameters[0].device
        self.cast = torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")

    def step(self, rows: Sequence[TrainRow]) -> float:
        """One optimiser step on the token-mean of the clipped loss; the loss."""
        tokens = sum(int(row.mask.sum()) for row in rows)
        size = max(1, self.batch_tokens // max(len(row.ids) for row in rows))
        total = 0.0
        self.optimizer.zero_grad()
        for start in range(0, len(rows), size):
            loss = self._loss(rows[start : start + size]) / tokens
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        self.norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, 1.0))
        self.optimizer.step()
        return total

    def _loss(self, rows: Sequence[TrainRow]) -> Tensor:
        logp = token_log_probabilities(self.module, rows, self.cast)
        device = logp.device
        mask = _padded([row.mask for row in rows], device)[:, 1:].to(logp.dtype)
        old = _padded([row.logprob for row in rows], device)[:, 1:].to(logp.dtype)
        advantage = torch.tensor([row.advantage for row in rows], dtype=logp.dtype, device=device)[:, None]
        ratio = torch.exp(logp - old)
        return (torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)) * mask).sum()


def token_log_probabilities(module: Any, rows: Sequence[TrainRow], cast: Any) -> Tensor:
    """float[B, L−1]: log-probability of every id but the first, in float32 or finer; rows are padded at their end."""
    device = next(module.parameters()).device
    ids = _padded([row.ids for row in rows], device, PAD)
    attend = _padded([torch.ones(len(row.ids), dtype=torch.long) for row in rows], device)
    with cast:
        logits = module(input_ids=ids, attention_mask=attend, use_cache=False).logits[:, :-1]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None])[..., 0]


def _padded(parts: Sequence[Any], device: torch.device, value: int = 0) -> Tensor:
    return pad_sequence([torch.as_tensor(p) for p in parts], batch_first=True, padding_value=value).to(device)
