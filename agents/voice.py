"""What a language model's policy needs besides the model: from requests to ids, from sampled ids to what was said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from macredit.errors import UserError
from macredit.policy import Request, Said

from .sample import check_sampling
from .template import History, Template


class Voice:
    """A tokenizer with its chat template, its ends of replies and its room.

    Args:
        tokenizer: a Hugging Face tokenizer.
        config: the model's configuration.
        generation: its generation configuration, where there is one.
        model: what to call it in errors.
        sampling: as recorded, ``max_tokens`` among it.
        template: a Jinja chat template instead of the model's own.
        settings: variables of the template.
        history: see :class:`macredit.agents.template.Template`.
    """

    def __init__(
        self,
        tokenizer: Any,
        config: Any,
        generation: Any,
        model: str,
        sampling: Mapping[str, Any],
        template: str | None = None,
        settings: Mapping[str, Any] | None = None,
        history: History = "grow",
    ) -> None:
        self.tokenizer, self.sampling = tokenizer, sampling
        self.template = Template(tokenizer, model, template, settings, history)
        ends = generation.eos_token_id if generation else None
        ends = ends if isinstance(ends, list) else [ends]
        self.stops = frozenset({*ends, tokenizer.eos_token_id, self.template.end} - {None})
        """Ids that end a reply; the one sampled is part of it."""
        self.context: int = getattr(config, "max_position_embeddings", None) or 1 << 30
        """The most ids of prompt and reply."""
        self.vocabulary = max(len(tokenizer), getattr(config.get_text_config(), "vocab_size", None) or 0)
        """Ids are below it; a model's may be padded beyond its tokenizer's."""

    def room(self, prompt: Sequence[int]) -> int:
        """How many ids a reply may have; below 1: none."""
        return min(int(self.sampling["max_tokens"]), self.context - len(prompt))

    def wanted(self, prompt: Sequence[int], request: Request) -> dict[str, Any] | None:
        """What to ask of an engine that draws its own random numbers, as vLLM calls it; None: no room for a reply."""
        room = self.room(prompt)
        if room < 1:
            return None
        truncation = {key: self.sampling[key] for key in ("top_k", "top_p") if key in self.sampling}
        seed = int(request.rng().integers(2**31))
        return {"max_tokens": room, "seed": seed, "stop_token_ids": sorted(self.stops), **truncation}

    def said(
        self,
        prompt: tuple[int, ...],
        ids: tuple[int, ...] = (),
        logps: tuple[float, ...] = (),
        cached: int | None = None,
    ) -> Said:
        """The record of a reply; ``cached``: prompt ids that the engine had computed before, where it says."""
        usage = {"prompt": len(prompt), "sampled": len(ids)}
        return Said(
            self.tokenizer.decode(ids, skip_special_tokens=True), prompt_ids=prompt, token_ids=ids, logprobs=logps,
            finish="stop" if ids and ids[-1] in self.stops else "length", sampling=self.sampling,
            usage=usage if cached is None else {**usage, "cached": cached},
        )  # fmt: skip

    def dictate(self, request: Request, text: str) -> Said:
        """What would have been recorded had it said ``text``: ids to imitate, without log-probabilities."""
        return Said(text, prompt_ids=self.template.prompt(request), token_ids=self.template.reply(text))


def voice_of(folder: str, model: str, *args: Any) -> Voice:
    """The voice of a model that is not loaded here, from its folder or hub id; the rest as :class:`Voice` takes it."""
    tokenizer, config = AutoTokenizer.from_pretrained(folder), AutoConfig.from_pretrained(folder)
    return Voice(tokenizer, config, GenerationConfig.from_pretrained(folder), model, *args)


def speech(sampling: Mapping[str, Any] | None, max_tokens: int | None, otherwise: int) -> dict[str, Any]:
    """Checked sampling parameters, with the longest reply among them."""
    longest = otherwise if max_tokens is None else max_tokens
    if longest < 1:
        raise UserError(f"max_tokens was given as {max_tokens}; expected 1 or more")
    return {**check_sampling(sampling or {}), "max_tokens": longest}
