"""Models made on the spot: the shapes of Qwen2.5's 0.5B and 1.5B with random weights, and two toys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.utils.logging import disable_progress_bar

from macredit.agents import make_policy

SIZES = {  # hidden, intermediate, layers, heads, heads of keys and values, vocabulary
    "0.5B": (896, 4864, 24, 14, 2, 151_936),
    "1.5B": (1536, 8960, 28, 12, 2, 151_936),
    "toy": (64, 192, 2, 4, 2, 2048),
    "larger toy": (96, 288, 3, 4, 2, 2048),
    "small": (512, 1536, 4, 8, 2, 8192),
}


def make_folder(folder: Path, size: str, dtype: str, device: torch.device) -> None:
    """Write a model with normal weights (deviation 0.02) and a tokenizer of one token a byte.

    Args:
        folder: where.
        size: a name in :data:`SIZES`.
        dtype: of the weights.
        device: where they are drawn.
    """
    hidden, intermediate, layers, heads, shared, vocabulary = SIZES[size]
    config = Qwen2Config(
        hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=shared, vocab_size=vocabulary, max_position_embeddings=32_768, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=257, pad_token_id=256,
    )  # fmt: skip
    disable_progress_bar()
    with torch.device(device):
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(config).to(getattr(torch, dtype))
    model.save_pretrained(folder)
    tiny: Any = make_policy({"kind": "hf", "model": "tiny"})
    tiny.tokenizer.save_pretrained(folder)
