"""Attention over a pack: each segment sees its path and, causally, itself; and which models compute that rightly.

It is one more implementation of transformers' attention interface, built from torch's scaled dot product attention.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface

from macredit.learn.batch import TrainRow
from macredit.learn.pack import Pack, packed
from macredit.learn.vocabulary import hidden_at

NAME = "macredit_packed"
_HARMLESS = {"is_causal", "position_ids", "use_cache", "cache_position", "output_attentions", "output_router_logits"}
"""What models hand to their attention that does not change what it computes here."""


class UnpackableError(Exception):
    """A model's attention asks for something that attention over packs does not do."""


class Layout:
    """Where segments lie in the flat sequence, and what each may see."""

    def __init__(self, pack: Pack, device: torch.device) -> None:
        self.lengths = [segment.stop - segment.start for segment in pack.segments]
        self.seen = [(*segment.path, n) for n, segment in enumerate(pack.segments)]
        self.windows: set[int] = set()
        """Sliding windows that were asked for."""
        self._device = device
        self._masks: dict[tuple[int, int], Tensor] = {}

    def mask(self, segment: int, window: int | None) -> Tensor | None:
        """bool[ids, ids seen]: who sees whom; None: the segment is a beginning, and each id sees all before it."""
        ids, seen = self.lengths[segment], sum(self.lengths[s] for s in self.seen[segment])
        if window is not None:
            self.windows.add(window)
        window = window if window is not None and window < seen else 0
        if ids == seen and not window:
            return None
        key = (segment, window)
        if key not in self._masks:
            at = torch.arange(seen - ids, seen, device=self._device)[:, None]
            other = torch.arange(seen, device=self._device)[None, :]
            self._masks[key] = (other <= at) & (other > at - window) if window else other <= at
        return self._masks[key]


def attend(
    _layer: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *,
    scaling: float | None = None, dropout: float = 0.0, sliding_window: int | None = None,
    layout: Layout | None = None, **asked: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """What an attention layer computes on a pack.

    Args:
        _layer: what the interface hands over; not used.
        query: float[1, heads, N, d].
        key: float[1, key heads, N, d].
        value: float[1, key heads, N, d].
        attention_mask: None.
        scaling: of the dot products.
        dropout: 0, since models stay in evaluation mode.
        sliding_window: how many ids, itself included, an id sees; None: all before it.
        layout: of the pack.
        asked: whatever else the model's layer asks for.

    Returns:
        float[1, N, heads, d], and no attention weights.

    Raises:
        UnpackableError: the layer asks for more than this.
    """
    unknown = sorted(name for name, what in asked.items() if name not in _HARMLESS and what is not None)
    if unknown or layout is None or attention_mask is not None:
        raise UnpackableError(f"its attention uses {', '.join(unknown) or 'a mask of its own'}")
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    queries, keys, values = (torch.split(each, layout.lengths, dim=2) for each in (query, key, value))
    out = []
    for n, (ids, seen) in enumerate(zip(queries, layout.seen, strict=True)):
        mask = layout.mask(n, sliding_window)
        k, v = (torch.cat([each[s] for s in seen], dim=2) if len(seen) > 1 else each[n] for each in (keys, values))
        out.append(
            torch.nn.functional.scaled_dot_product_attention(
                ids, k, v, attn_mask=mask, dropout_p=dropout, is_causal=mask is None, scale=scaling
            )
        )
    return torch.cat(out, dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, torch.compiler.disable(attend))  # type: ignore[no-untyped-call]


@contextmanager
def packed_attention(module: Any) -> Iterator[None]:
    """A model attends over packs; outside of this, as it did before."""
    inner = plain_model(module)
    before = inner.config._attn_implementation
    inner.set_attn_implementation(NAME)
    try:
        yield
    finally:
        inner.set_attn_implementation(before)


def plain_model(module: Any) -> Any:
    """The Hugging Face model inside a PEFT model, or the model itself."""
    return module.get_base_model() if hasattr(module, "get_base_model") else module


def inputs_of(pack: Pack, layout: Layout | None, device: torch.device) -> dict[str, Any]:
    """What a forward pass gets; without a layout the pack is one row, which any causal model computes."""
    ids = torch.as_tensor(pack.ids, device=device)[None]
    if layout is None:
        return {"input_ids": ids}
    return {"input_ids": ids, "position_ids": torch.as_tensor(pack.positions, device=device)[None], "layout": layout}


# -- which models ---------------------------------------------------------------------------------------------------


def why_not_packed(module: Any) -> str | None:
    """Why a model's rows must be computed one by one; None: they can be packed.

    What a configuration says is read: layers other than full or sliding attention, and positions whose scale depends on
    the longest row, are out. Whatever else a model may do is found by computing two short rows, packed and alone.
    """
    config = plain_model(module).config.get_text_config()
    kinds = {*(getattr(config, "layer_types", None) or ())} - {"full_attention", "sliding_attention"}
    if kinds:
        return f"it has layers of {', '.join(sorted(kinds))}"
    rope = str(getattr(config, "rope_parameters", None))  # one dict, or one for each kind of layer
    if "'dynamic'" in rope or "'longrope'" in rope:
        return "its positions are scaled by the longest row"
    parameters = inspect.signature(plain_model(module).forward).parameters.values()
    if not any(p.kind is p.VAR_KEYWORD for p in parameters) or "position_ids" not in {p.name for p in parameters}:
        return "its forward takes no positions or no settings of attention"
    return _tried(module, config)


@torch.no_grad()
def _tried(module: Any, config: Any) -> str | None:
    """What computing two short rows shows."""
    device = next(module.parameters()).device
    ids = np.random.default_rng(0).integers(0, config.vocab_size, 48)
    beginnings = (ids[:24], np.concatenate([ids[:20], ids[24:]]))
    rows = [TrainRow(row, np.arange(len(row)) >= 1, np.zeros(len(row)), 1.0, 1.0, 0) for row in beginnings]
    alone = [
        hidden_at(module, torch.arange(len(row.ids) - 1, device=device), **inputs_of(packed([row]), None, device))
        for row in rows
    ]
    pack = packed(rows)
    layout = Layout(pack, device)
    places = torch.as_tensor(pack.places, device=device)
    try:
        with packed_attention(module):
            together = hidden_at(module, places, **inputs_of(pack, layout, device))
    except UnpackableError as error:
        return str(error)
    if getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None) and not layout.windows:
        return "it has a sliding window that its attention is not told"
    expected = torch.cat(alone).float()
    allowed = 1e-3 if together.dtype == torch.float32 else 0.1
    if (together.float() - expected).abs().max() > allowed * expected.abs().max():
        return "two rows side by side change each other"
    return None
