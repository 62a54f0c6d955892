"""Which weights a policy starts from: what its checkpoints and versions are checked against."""

from __future__ import annotations

import hashlib
from typing import Any


def of_adapter(key: str, adapter: str | None) -> bool:
    """Whether a parameter belongs to an adapter."""
    return "lora_" in key and f".{adapter}." in key


def origin(module: Any, adapter: str | None) -> str:
    """Names the weights a policy starts from: of every tensor its name, shape and up to 64 values spread over it."""
    digest = hashlib.blake2b(digest_size=4)
    for key, p in module.named_parameters():
        if "lora_" in key and not of_adapter(key, adapter):
            continue  # another policy's adapter on the shared base
        flat = p.detach().flatten()
        digest.update(f"{key}{tuple(p.shape)}".encode())
        digest.update(flat[:: max(1, len(flat) // 64)].float().cpu().numpy().tobytes())
    return digest.hexdigest()
