"""A randomly initialised small Llama with a byte-level tokenizer: the whole path without a download."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

_SPECIAL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte (256 of them), and five special ones."""
    letters = (*sorted(pre_tokenizers.ByteLevel.alphabet()), *_SPECIAL)
    vocabulary = {letter: i for i, letter in enumerate(letters)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=_SPECIAL[0],
        eos_token=_SPECIAL[1],
        additional_special_tokens=list(_SPECIAL[2:]),
        chat_template=_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def tiny_model(seed: int = 0) -> LlamaForCausalLM:
    """Two layers of width 64 (about 0.1 M parameters), the same for the same seed.

    The output layer starts with rows of length 1, so that logits start with spread 1 (replies are diverse) and an
    adapter, which leaves that layer alone, can still make any reply likely.
    """
    config = LlamaConfig(
        vocab_size=256 + len(_SPECIAL), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=8192, tie_word_embeddings=False,
        pad_token_id=256, bos_token_id=None, eos_token_id=257,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        torch.nn.init.normal_(model.lm_head.weight, std=config.hidden_size**-0.5)
    return model
