"""Any Hugging Face causal model as a policy: ids in, ids out, keyed noise, log-probabilities of the sampled ids."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from macredit.bounds import Within
from macredit.errors import UserError
from macredit.learn.torch_policy import TorchPolicy
from macredit.policy import Request, Said

from .models import LoraTable, base_of, is_tiny, load_adapter, load_model, new_adapter
from .sample import sample
from .template import History
from .voice import Voice, speech

_RATES = {(True, False): 3e-3, (True, True): 1e-2, (False, False): 1e-5, (False, True): 1e-4}
"""Default learning rate by (is it tiny, has it an adapter)."""


class HF(TorchPolicy):
    """Speaks with a causal model, and learns.

    Args:
        model: a hub id, a folder (of a model or of a PEFT adapter), a ``.gguf`` file, ``tiny`` or ``tiny:SEED``.
        lora: ``rank``, ``alpha``, ``targets``: train an adapter on a base shared with the other policies in ``bases``;
            None: a model of its own (an adapter folder: its adapter).
        sampling: ``temperature`` (default 1) and ``top_k``, ``top_p`` (default: untruncated).
        max_tokens: the longest reply; None: 64, and 4 for ``tiny``, which has nothing to say.
        template: a Jinja chat template instead of the model's own.
        template_settings: variables of the template, such as ``enable_thinking``.
        history: ``grow``, or ``render`` for templates that rewrite history.
        dtype: of the weights.
        device: where they are.
        batch_tokens: the most ids, padding and replies included, that are computed at once.
        name: the policy's name.
        bases: models that policies share, by how they were loaded.
    """

    def __init__(
        self,
        model: str,
        lora: LoraTable = None,
        sampling: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        template: str | None = None,
        template_settings: Mapping[str, Any] | None = None,
        history: History = "grow",
        dtype: str = "float32",
        device: str = "cpu",
        batch_tokens: Annotated[int, Within(1)] = 16384,
        name: str = "",
        bases: dict[Any, Any] | None = None,
    ) -> None:
        trained = base_of(model)
        checked = speech(sampling, max_tokens, 4 if is_tiny(trained or model) else 64)
        adapter = None if trained is None and lora is None else f"policy-{name}"  # PEFT confuses names such as "a"
        if adapter is not None and "." in name:
            raise UserError(f"policy name {name!r} has a dot, which an adapter's name may not have; rename the policy")
        if trained is not None and lora is not None:
            raise UserError(f"{model} is a trained adapter, and lora = {dict(lora)} was given; leave lora out")
        source = (trained or model, dtype, device)
        bases = {} if bases is None or adapter is None else bases  # a model of its own is never shared
        module, tokenizer = bases.get(source) or load_model(*source)
        if adapter is not None:
            module = (
                load_adapter(module, adapter, model) if trained else new_adapter(module, adapter, model, lora or {})
            )
            bases[source] = module, tokenizer
        generation = module.generation_config
        self.voice = Voice(tokenizer, module.config, generation, model, checked, template, template_settings, history)
        self._batch_tokens = batch_tokens
        rate = _RATES[is_tiny(source[0]), adapter is not None]
        super().__init__(name, module, tokenizer, adapter, lambda: load_model(*source)[0], checked, rate)

    def say(self, batch: Sequence[Request]) -> list[Said]:
        """One reply a request; prompts of like length are computed together.

        Raises:
            UserError: its weights do not give finite log-probabilities.
        """
        prompts = [self.voice.template.prompt(request) for request in batch]
        said: dict[int, Said] = {b: self.voice.said(prompt) for b, prompt in enumerate(prompts)}
        for group in self._groups(prompts):
            uniforms = [batch[b].rng().random(self.voice.room(prompts[b])) for b in group]
            asked = [prompts[b] for b in group]
            with self.speaking(asked):
                replies = sample(self.module, asked, uniforms, self.voice.stops, self.sampling, self._pad)
            for b, (ids, logps) in zip(group, replies, strict=True):
                self._check_finite(logps)
                said[b] = self.voice.said(prompts[b], tuple(ids), tuple(logps))
        return [said[b] for b in range(len(batch))]

    def dictate(self, request: Request, text: str) -> Said:
        """What would have been recorded had the policy said ``text``: ids to imitate, without log-probabilities."""
        return self.voice.dictate(request, text)

    def _check_finite(self, logps: Sequence[float]) -> None:
        if not all(map(math.isfinite, logps)):
            logp = next(logp for logp in logps if not math.isfinite(logp))
            raise UserError(
                f"policy {self.name!r} ({self.precision}) gives an id that it samples the log-probability {logp}; "
                "expected a finite number: its weights are damaged, or too large for its dtype; give another model "
                "or dtype"
            )

    def _groups(self, prompts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Indices of prompts that are computed at once, short ones first; prompts that leave no room get no reply."""
        group: list[int] = []
        for b in sorted(range(len(prompts)), key=lambda b: len(prompts[b])):
            if self.voice.room(prompts[b]) < 1:
                continue
            if group and (len(group) + 1) * (len(prompts[b]) + self.sampling["max_tokens"]) > self._batch_tokens:
                yield group
                group = []
            group.append(b)
        if group:
            yield group
