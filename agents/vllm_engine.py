"""vLLM in this program as a policy and as the engine before one that learns: ids in, ids out, a seed a request.

Policies with adapters on one base share one engine (:mod:`macredit.agents.vllm_core`), with prefix caching on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from macredit.errors import UserError
from macredit.learn import TrainRow
from macredit.learn.handover import Weights
from macredit.learn.loss import FloatK
from macredit.policy import Request, Said

from .models import LoraTable, base_of, digest, lora_of, rank_of
from .template import History
from .vllm_core import Core
from .voice import speech, voice_of
from .weights import Outbox


class VLLM:
    """Speaks with vLLM. Recorded, not reproducible: sums depend on what else is in the batch, and ``sampling`` says so.

    Scripts that make one need ``if __name__ == "__main__":``, since vLLM starts processes.

    Args:
        model: a hub id, a folder (of a model or of a PEFT adapter), or a ``.gguf`` file.
        lora: ``rank`` (default 16): room for adapters on a base shared with the other policies in ``bases``.
        sampling: ``temperature`` (default 1) and ``top_k``, ``top_p`` (default: untruncated).
        max_tokens: the longest reply; None: 64.
        template: a Jinja chat template instead of the model's own.
        template_settings: variables of the template.
        history: ``grow``, or ``render`` for templates that rewrite history.
        dtype: what it computes in.
        options: further arguments of ``vllm.LLM``, such as ``gpu_memory_utilization`` or ``max_model_len``.
        name: the policy's name.
        bases: engines that policies share.

    Raises:
        UserError: there is no such model, vLLM does not take an option, or is not installed.
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
        options: Mapping[str, Any] | None = None,
        name: str = "",
        bases: dict[Any, Any] | None = None,
    ) -> None:
        self.name, self.precision = name, dtype
        self.sampling: Mapping[str, Any] = {**speech(sampling, max_tokens, 64), "reproducible": False}
        base = base_of(model)
        rank = rank_of(model) if base is not None else None if lora is None else lora_of(lora).rank
        bases = {} if bases is None or rank is None else bases
        source = ("vllm", base or model, dtype)
        if source not in bases:
            bases[source] = Core(base or model, dtype, rank, options or {})
        self._core: Core = bases[source]
        if rank is not None and rank > (self._core.rank or 0):
            raise UserError(
                f"policy {name!r} has an adapter of rank {rank}, and the engine it shares was started for rank "
                f"{self._core.rank}; name the policy with the largest rank first"
            )
        self.voice = voice_of(self._core.folder, model, self.sampling, template, template_settings, history)
        self.voice.context = min(self.voice.context, self._core.context)
        self.version = self._core.version
        self._adapter: Any = None
        self._full: list[tuple[int, Said]] = []
        """Answers to prompts that leave no room for a reply."""
        self._outbox = Outbox()
        if base is not None:
            self._speak_with(Path(model), f"{name}@{digest(model)}")

    # -- Policy ----------------------------------------------------------------------------------------------------

    def submit(self, requests: Sequence[tuple[int, Request]]) -> None:
        """Send the requests to the engine, which begins at once."""
        for ticket, request in requests:
            prompt = self.voice.template.prompt(request)
            wanted = self.voice.wanted(prompt, request)
            if wanted is None:
                self._full.append((ticket, self.voice.said(prompt)))
            else:
                self._ask(ticket, prompt, {"logprobs": 0, **wanted})

    def collect(self) -> Sequence[tuple[int, Said | Exception]]:
        """Answers that are ready, by ticket."""
        if self._full:
            full, self._full = self._full, []
            return full
        return [(ticket, self._said(output)) for ticket, output in self._core.answers(self)]

    def _said(self, output: Any) -> Said:
        """The record of an answer."""
        reply = output.outputs[0]
        logps = tuple(at[i].logprob for i, at in zip(reply.token_ids, reply.logprobs, strict=True))
        prompt, cached = tuple(output.prompt_token_ids), output.num_cached_tokens or 0
        return self.voice.said(prompt, tuple(reply.token_ids), logps, cached)

    # -- Engine ----------------------------------------------------------------------------------------------------

    def receive(self, weights: Weights) -> None:
        """Load an adapter under a new name and number, or a whole model by vLLM's weight transfer; empty the cache."""
        path = self._outbox.put(weights)
        if weights.lora is None:
            self._core.transfer(path, weights.version)
            path.unlink()
        else:
            self._speak_with(path, f"{self.name}@{weights.version}")
            self._outbox.keep(path)
        self.version = weights.version

    def _speak_with(self, folder: Path, name: str) -> None:
        """Load an adapter in place of the one before it."""
        self._adapter = self._core.load(folder, name, instead=self._adapter)
        self.version = name.rpartition("@")[2]

    def score(self, rows: Sequence[TrainRow]) -> list[FloatK]:
        """Each id as the likeliest reply of one id after all that is before it: the very way it would be sampled."""
        places = [(n, int(at)) for n, row in enumerate(rows) for at in np.flatnonzero(row.mask)]
        for ticket, (n, at) in enumerate(places):
            wanted = {"max_tokens": 1, "logprob_token_ids": [int(rows[n].ids[at])], "seed": 0}
            self._ask(ticket, tuple(rows[n].ids[:at].tolist()), wanted)
        scores = [np.zeros(len(row.ids)) for row in rows]
        missing = len(places)
        while missing:
            for ticket, output in self._core.answers(self):
                n, at = places[ticket]
                scores[n][at] = output.outputs[0].logprobs[0][int(rows[n].ids[at])].logprob
                missing -= 1
        return scores

    def _ask(self, ticket: int, prompt: Sequence[int], settings: Mapping[str, Any]) -> None:
        self._core.ask(self, ticket, prompt, self._adapter, {"temperature": self.sampling["temperature"], **settings})
