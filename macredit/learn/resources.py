"""Time for memory, and memory for time: half precision, recomputed layers, moments in main memory, compiled layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from macredit.errors import UserError


def layers(module: Any) -> list[Any]:
    """The blocks a transformer is a stack of."""
    return [layer for layer in module.modules() if isinstance(layer, GradientCheckpointingLayer)]


@contextmanager
def multiplied_in(precision: str, device: torch.device) -> Iterator[None]:
    """Matrices are multiplied in a precision; weights and their gradients stay in their own."""
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16"):
        yield


@contextmanager
def recomputed(module: Any) -> Iterator[None]:
    """What is inside a layer is forgotten and computed again for the gradient (Chen et al. 2016, arXiv 1604.06174)."""
    stack = layers(module)
    for layer in stack:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)
    try:
        yield
    finally:
        for layer in stack:
            del layer.forward  # the instance's: that of its class remains


def compile_layers(module: Any, backend: str = "inductor") -> None:
    """Each layer compiled where it stands, for packs of any length."""
    for layer in layers(module):
        layer.compile(dynamic=True, backend=backend)


def move_moments(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Put an optimiser's moments elsewhere."""
    for moments in optimizer.state.values():
        for name, value in moments.items():
            if isinstance(value, Tensor) and value.dim():  # step counts stay where AdamW keeps them
                moments[name] = value.to(device)


@contextmanager
def named_when_memory_is_out(policy: str, batch: Sequence[Sized], lower: str) -> Iterator[None]:
    """A device out of memory is the user's to settle.

    Args:
        policy: whose batch it is.
        batch: ids of its rows.
        lower: what to do about it.

    Raises:
        UserError: with the policy, the batch, and what to lower.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        longest = max(len(ids) for ids in batch)
        raise UserError(
            f"policy {policy!r} ran out of memory on a batch of {len(batch)} rows of up to {longest} tokens "
            f"({str(error).splitlines()[0]}); {lower}"
        ) from None
