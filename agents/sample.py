"""Sampling token by token with keyed noise: one uniform a token, through the inverse of the cumulative distribution."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import DynamicCache

from macredit.bounds import is_number
from macredit.errors import UserError
from macredit.learn.torch_policy import cache_argument

Sampled = tuple[list[int], list[float]]
"""Ids and their log-probabilities."""


@torch.inference_mode()
def sample(
    module: Any,
    prompts: Sequence[tuple[int, ...]],
    uniforms: Sequence[npt.NDArray[np.float64]],
    stops: Collection[int],
    sampling: Mapping[str, Any],
    pad: int,
) -> list[Sampled]:
    """One reply a prompt; equal prompts are computed once, finished rows leave the batch when half of it has finished.

    Args:
        module: a causal model.
        prompts: B sequences of ids.
        uniforms: float[at most so many tokens] for each prompt, from [0, 1).
        stops: ids that end a reply; the one sampled is part of it.
        sampling: ``temperature``, and where given ``top_k``, ``top_p``.
        pad: any id, for padding.
    """
    device = next(module.parameters()).device
    unique = list(dict.fromkeys(prompts))
    live = [unique.index(prompt) for prompt in prompts]
    inputs = _left_padded(unique, pad, device)
    cache = DynamicCache()
    with_cache = {cache_argument(module): cache, "use_cache": True}
    logits = module(**inputs, **with_cache, logits_to_keep=1).logits[live, -1]
    cache.batch_select_indices(torch.tensor(live, device=device))
    mask = inputs["attention_mask"][live]

    replies: list[Sampled] = [([], []) for _ in prompts]
    live = list(range(len(prompts)))  # which prompt each row of the batch belongs to
    while True:
        tokens, logps = _draw(log_probabilities(logits, sampling), [_noise(uniforms[b], replies[b]) for b in live])
        going = []
        for row, (b, token, logp) in enumerate(zip(live, tokens.tolist(), logps.tolist(), strict=True)):
            ids, found = replies[b]
            if _open(ids, uniforms[b], stops):
                ids.append(token)
                found.append(logp)
            if _open(ids, uniforms[b], stops):
                going.append(row)
        if not going:
            return replies
        if len(going) <= len(live) // 2:
            kept = torch.tensor(going, device=device)
            cache.batch_select_indices(kept)
            mask, tokens, live = mask[kept], tokens[kept], [live[row] for row in going]
        position = mask.sum(-1, keepdim=True)
        mask = torch.cat([mask, mask.new_ones(len(live), 1)], dim=-1)
        step = module(input_ids=tokens[:, None], attention_mask=mask, position_ids=position, **with_cache)
        logits = step.logits[:, -1]


def _left_padded(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> dict[str, Tensor]:
    """Ids, attention mask and positions (int[B, L] each) of rows that end together."""
    longest = max(len(row) for row in rows)
    ids = torch.tensor([[pad] * (longest - len(row)) + list(row) for row in rows], device=device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=device)
    return {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}


def _open(ids: Sequence[int], uniforms: npt.NDArray[np.float64], stops: Collection[int]) -> bool:
    """Whether a reply goes on."""
    return len(ids) < len(uniforms) and not (ids and ids[-1] in stops)


def _noise(uniforms: npt.NDArray[np.float64], reply: Sampled) -> float:
    return float(uniforms[min(len(reply[0]), len(uniforms) - 1)])


def _draw(logp: Tensor, uniforms: Sequence[float]) -> tuple[Tensor, Tensor]:
    """int[B] ids and float[B] log-probabilities: the first id whose cumulative probability exceeds the uniform."""
    below = logp.double().exp().cumsum(-1)
    at = torch.tensor(uniforms, dtype=torch.float64, device=logp.device)[:, None] * below[:, -1:]
    tokens = torch.searchsorted(below, at, right=True).clamp(max=logp.shape[-1] - 1)
    return tokens[:, 0], logp.gather(-1, tokens)[:, 0]


def log_probabilities(logits: Tensor, sampling: Mapping[str, Any]) -> Tensor:
    """float[B, V]: log-probabilities in float32 under the sampling parameters; temperature 0 is the argmax alone.

    ``top_k`` keeps the k likeliest ids (and ties), ``top_p`` the fewest likeliest ids with at least that probability
    (nucleus sampling, Holtzman et al. 2020, arXiv 1904.09751); both renormalise.
    """
    logits, temperature = logits.float(), float(sampling["temperature"])
    if temperature == 0:
        best = torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1])
        return best.float().log() + 0 * logits.amax(-1, keepdim=True)  # what is no number stays none
    logp = torch.log_softmax(logits / temperature, dim=-1)
    if sampling.get("top_k"):
        worst = logp.topk(min(sampling["top_k"], logp.shape[-1]), dim=-1).values[:, -1:]
        logp = torch.log_softmax(logp.masked_fill(logp < worst, -torch.inf), dim=-1)
    if sampling.get("top_p"):
        ordered, place = logp.sort(dim=-1, descending=True, stable=True)
        before = ordered.exp().cumsum(-1) - ordered.exp()
        out = torch.zeros_like(before, dtype=torch.bool).scatter(-1, place, before >= sampling["top_p"])
        logp = torch.log_softmax(logp.masked_fill(out, -torch.inf), dim=-1)
    return logp


def check_sampling(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling parameters with the default temperature 1, untruncated.

    Raises:
        UserError: an unknown parameter or a value out of range.
    """
    checked = {"temperature": 1.0, **sampling}
    ranges: dict[str, tuple[str, Callable[[Any], bool]]] = {
        "temperature": ("0 or more", lambda x: x >= 0),
        "top_p": ("above 0, at most 1", lambda x: 0 < x <= 1),
        "top_k": ("a whole number above 0", lambda x: isinstance(x, int) and x > 0),
    }
    for key, value in checked.items():
        if key not in ranges:
            raise UserError(f"sampling parameter {key!r} is not known; expected one of {', '.join(ranges)}")
        expected, holds = ranges[key]
        if not (is_number(value) and holds(value)):
            raise UserError(f"sampling parameter {key!r} was given as {value!r}; expected {expected}")
    return checked
