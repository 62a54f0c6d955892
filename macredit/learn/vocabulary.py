"""From hidden states to log-probabilities, a chunk of tokens at a time, so that K × V logits are never all alive.

A vocabulary is large: 4,000 tokens over 150,000 ids are 2.4 GB of logits, three times over in softmax and gradient. So
each chunk is computed, reduced to one number a token, and computed again for the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Scored = tuple[Tensor, Tensor]
"""float[K] log-probabilities and float[K] entropies."""


def hidden_at(module: Any, places: Tensor, **inputs: Any) -> Tensor:
    """float[K, D]: what the output layer gets at K places of a flat sequence; it computes one logit vector, not N."""
    caught: list[Tensor] = []

    def catch(_: Any, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        caught.append(given[0][0, places])
        return (given[0][:, :1],)

    _run(module, catch, inputs)
    return caught[0]


def logits_at(module: Any, places: Tensor, **inputs: Any) -> Tensor:
    """float[K, V]: the model's logits at K places of a flat sequence; no other logit is computed."""
    logits: Tensor = _run(module, lambda _, given: (given[0][:, places],), inputs)
    return logits[0]


def _run(module: Any, before_head: Callable[[Any, tuple[Tensor, ...]], tuple[Tensor, ...]], inputs: Any) -> Tensor:
    hook = module.get_output_embeddings().register_forward_pre_hook(before_head)
    try:
        logits: Tensor = module(**inputs, use_cache=False).logits
    finally:
        hook.remove()
    return logits


@torch.no_grad()
def ends_in_head(module: Any) -> bool:
    """Whether a model's logits are what its output layer gives, neither scaled nor capped afterwards."""
    raw: list[Tensor] = []
    hook = module.get_output_embeddings().register_forward_hook(lambda _, __, out: raw.append(out))
    try:
        logits = module(input_ids=torch.arange(4, device=module.device)[None], use_cache=False).logits
    finally:
        hook.remove()
    return torch.equal(raw[0].float(), logits.float())


def score(head: Any, hidden: Tensor, targets: Tensor, temperature: float, chunk: int) -> Scored:
    """Log-probabilities of K ids and the entropies where they stand, with at most ``chunk`` × V logits alive.

    Args:
        head: the output layer, hidden states to logits.
        hidden: float[K, D].
        targets: int[K].
        temperature: what logits are divided by.
        chunk: tokens at once.

    Returns:
        Both in float32; the gradient flows through the log-probabilities alone.
    """
    if len(targets) <= chunk:
        return of_logits(head(hidden), targets, temperature)
    parts = zip(torch.split(hidden, chunk), torch.split(targets, chunk), strict=True)
    scored = [
        checkpoint(_of_hidden, head, part, ids, temperature, use_reentrant=False, preserve_rng_state=False)
        for part, ids in parts
    ]
    logps, entropies = zip(*scored, strict=True)
    return torch.cat(logps), torch.cat(entropies)


def _of_hidden(head: Any, hidden: Tensor, targets: Tensor, temperature: float) -> Scored:
    return of_logits(head(hidden), targets, temperature)


def of_logits(logits: Tensor, targets: Tensor, temperature: float) -> Scored:
    """Log-probabilities and entropies from logits (float[K, V]), in float32."""
    with torch.autocast(logits.device.type, enabled=False):
        logp = torch.log_softmax(logits.float() / temperature, dim=-1)
        with torch.no_grad():
            entropy = -(logp.exp() * logp).sum(-1)
        return logp.gather(-1, targets[:, None])[:, 0], entropy
