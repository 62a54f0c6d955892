"""A model behind ``vllm serve`` as a policy, and as the engine before one that learns: ids in, ids out.

The server is started with ``--logprobs-mode processed_logprobs --enable-prompt-tokens-details``, on a CPU also with
``--no-enable-chunked-prefill`` (a request with a seed whose prompt is computed in pieces ends vLLM 0.32 there). To take
new weights it also needs ``VLLM_SERVER_DEV_MODE=1`` and, for adapters, ``VLLM_ALLOW_RUNTIME_LORA_UPDATING=1
--enable-lora --max-lora-rank R --max-loras N``; for whole models macredit installed beside it and
``--weight-transfer-config '{"backend": "macredit"}'``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from macredit.bounds import is_number
from macredit.errors import OutsideError
from macredit.learn import TrainRow
from macredit.learn.handover import Weights
from macredit.learn.loss import FloatK
from macredit.policy import Request, Said

from .models import plain_folder
from .server import ChatError, GarbageError, Server, WrongModelError
from .template import History
from .traffic import Limits, Traffic
from .voice import speech, voice_of
from .weights import Outbox

_ROUNDING = 1e-3
"""A log-probability may be above 0 by so much."""
_DEV = "start it with VLLM_SERVER_DEV_MODE=1 (see agents/vllm_server.py for what else new weights need)"


class VLLMServer:
    """Speaks with a model behind a server. Recorded, not reproducible, and ``sampling`` says so.

    Args:
        model: the model that is served, as files that this machine has too: its tokenizer is needed here.
        url: the base URL, up to ``/v1``.
        sampling: ``temperature`` (default 1) and ``top_k``, ``top_p`` (default: untruncated).
        max_tokens: the longest reply; None: 64.
        template: a Jinja chat template instead of the model's own.
        template_settings: variables of the template.
        history: ``grow``, or ``render`` for templates that rewrite history.
        dtype: what the server computes in.
        served: the id or root by which the server lists it, where that is not ``model``; ``*``: whatever is served, as
            before a learner, to whose numbers it is held.
        folder: where new weights are written for the server to read; None: a temporary folder of this machine.
        key_env: the environment variable that holds the key (never the key itself); None: the server wants none.
        concurrency: this policy's calls under way at once.
        timeout: seconds until a request without a whole answer is given up.
        retries: how often a request is repeated, with growing pauses, after a timeout, a lost connection, 429 or 5xx.
        name: the policy's name.

    Raises:
        UserError: a setting out of range, or no key under ``key_env``.
        OutsideError: the server is down, refuses the key, serves another model or several, or returns no token ids or
            log-probabilities. It is asked for one token when the policy is made, before anything is played.
    """

    def __init__(
        self,
        model: str,
        url: str,
        sampling: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        template: str | None = None,
        template_settings: Mapping[str, Any] | None = None,
        history: History = "grow",
        dtype: str = "float32",
        served: str | None = None,
        folder: str | None = None,
        key_env: str | None = None,
        concurrency: int = 64,
        timeout: float = 120.0,
        retries: int = 4,
        name: str = "",
    ) -> None:
        self.name, self.precision = name, dtype
        self.sampling: Mapping[str, Any] = {**speech(sampling, max_tokens, 64), "reproducible": False}
        self._server = Server(url, model, key_env, timeout, retries, Traffic(Limits(concurrency)))
        self._root = self._server.url.removesuffix("/").removesuffix("/v1")
        self._outbox = Outbox(folder)
        files = plain_folder(model, self._outbox.folder / "model")
        self.voice = voice_of(files, model, self.sampling, template, template_settings, history)
        self._agreed = False
        with self._named():
            self._base, room = self._listed(served or model)
            self.voice.context = min(self.voice.context, room)
            self._speaks = self.version = self._base
            self._complete(self.voice.template.reply("ok"), {"max_tokens": 1})

    def _listed(self, served: str) -> tuple[str, int]:
        """The id of the model that is served, and the most ids it takes."""
        answer = self._server.get("/models")
        match answer:
            case {"data": [*models]} if all(_is_listed(m) for m in models):
                bases = [m for m in models if not m.get("parent")]
            case _:
                raise GarbageError(
                    f"{self._server.url} answers {self._server.shown(answer)}; expected a list of models, each "
                    "with an id and, if at all, a max_model_len of at least 1"
                )
        if len(bases) != 1:
            raise WrongModelError(f"{self._server.served()}; expected one base model, of {self._server.model}")
        name, root = (str(bases[0].get(key)) for key in ("id", "root"))
        if not {"*", name, root} & {served, str(Path(served).resolve())}:
            raise WrongModelError(
                f"{self._server.url} serves {name!r} (root {root!r}); expected {served!r}; name the model that is "
                f"served, or, if it is the same one, give served = {name!r}"
            )
        return name, bases[0].get("max_model_len") or 1 << 30

    # -- Policy ----------------------------------------------------------------------------------------------------

    def submit(self, requests: Sequence[tuple[int, Request]]) -> None:
        """Send the requests, as many at once as ``concurrency`` allows."""
        self._server.submit(requests, self._say)

    def collect(self) -> Sequence[tuple[int, Said | Exception]]:
        """The answers that are there, by ticket; a failed call is a ``ChatError``."""
        return self._server.collect()

    def _say(self, request: Request) -> Said:
        prompt = self.voice.template.prompt(request)
        wanted = self.voice.wanted(prompt, request)
        if wanted is None:
            return self.voice.said(prompt)
        choice, cached = self._complete(prompt, wanted)
        return self.voice.said(prompt, tuple(choice["token_ids"]), tuple(choice["logprobs"]["token_logprobs"]), cached)

    def _complete(self, prompt: Sequence[int], settings: Mapping[str, Any]) -> tuple[Any, int | None]:
        """Token ids and log-probabilities by the very model that was asked for, and how much of the prompt was cached.

        Raises:
            ChatError: the answer is none, or no such one.
        """
        wanted = {"logprobs": 1, "return_token_ids": True, "return_tokens_as_token_ids": True}
        about = {"model": self._speaks, "prompt": list(prompt), "temperature": self.sampling["temperature"]}
        answer = self._server.post("/completions", {**about, **wanted, **settings})
        match answer:
            case {"model": str(model), "choices": [{"token_ids": [*ids], "logprobs": {"token_logprobs": [*logps]}}]}:
                if model != self._speaks:
                    raise WrongModelError(f"{self._server.url} answers with {model!r}; {self._speaks!r} was asked")
                self._check_reply(ids, logps, settings["max_tokens"])
                return answer["choices"][0], self._server.usage(answer, len(prompt)).get("cached")
            case {"choices": [{"text": str()}, *_]}:
                raise GarbageError(
                    f"{self._server.url} returns no token ids with log-probabilities; expected vllm serve 0.32 or newer"
                )
        raise GarbageError(f"{self._server.url} answers {self._server.shown(answer)}; expected a completion")

    def _check_reply(self, ids: Sequence[object], logps: Sequence[object], most: int) -> None:
        if not 0 < len(ids) == len(logps) <= most:
            raise GarbageError(
                f"{self._server.url} answers with {len(ids)} ids and {len(logps)} log-probabilities; expected 1 to "
                f"{most}, one each"
            )
        for found in ids:
            if not (type(found) is int and 0 <= found < self.voice.vocabulary):
                raise GarbageError(
                    f"{self._server.url} answers with the id {found!r:.40}; expected 0 to {self.voice.vocabulary - 1}"
                )
        for logp in logps:
            self._check_logp(logp)

    def _check_logp(self, logp: object) -> None:
        if not (isinstance(logp, float) and is_number(logp) and logp <= _ROUNDING):
            raise GarbageError(
                f"{self._server.url} answers with the log-probability {logp!r:.40}; expected a finite number of at "
                "most 0"
            )

    # -- Engine ----------------------------------------------------------------------------------------------------

    def score(self, rows: Sequence[TrainRow]) -> list[FloatK]:
        """Each id as a reply of one id after all that is before it: the very way it would be sampled."""
        scores = [np.zeros(len(row.ids)) for row in rows]
        with self._named():
            for row, score in zip(rows, scores, strict=True):
                for at in np.flatnonzero(row.mask):
                    token = int(row.ids[at])
                    wanted = {"max_tokens": 1, "logprob_token_ids": [token], "seed": 0}
                    score[at] = self._scored(self._complete(row.ids[:at].tolist(), wanted)[0], token)
        return scores

    def _scored(self, choice: Any, token: int) -> float:
        """The log-probability of an id that was asked for."""
        name = f"token_id:{token}"
        match choice["logprobs"]:
            case {"top_logprobs": [dict(found)]} if name in found:
                self._check_logp(found[name])
                return float(found[name])
            case other:
                raise GarbageError(
                    f"{self._server.url} answers {self._server.shown(other)}; expected top_logprobs with {name!r}"
                )

    def receive(self, weights: Weights) -> None:
        """Load an adapter under a new name, or a whole model by vLLM's weight transfer; empty the cache."""
        path = self._outbox.put(weights)
        with self._named():
            if weights.lora is None:
                self._transfer(path, weights.version)
                path.unlink()
            else:
                self._load(path, f"{self.name}@{weights.version}")
                self._outbox.keep(path)
            if self._dev("reset_prefix_cache") != {"success": True}:
                raise ChatError(f"{self._root} does not empty its prefix cache while requests are under way")
        self.version = weights.version

    def _load(self, folder: Path, name: str) -> None:
        """Load an adapter in place of the one before it."""
        self._server.post("/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        if self._speaks != self._base:
            self._server.post("/unload_lora_adapter", {"lora_name": self._speaks})
        self._speaks = name

    def _transfer(self, file: Path, version: str) -> None:
        """Replace the whole model."""
        if not self._agreed:
            self._dev("init_weight_transfer_engine", {"init_info": {"folder": str(self._outbox.folder)}})
            self._agreed = True
        self._dev("start_weight_update")
        self._dev("update_weights", {"update_info": {"file": file.name}})
        self._dev("finish_weight_update", {"weight_version": version})
        found = self._server.get(f"{self._root}/weight_info")
        if found != {"weight_version": version}:
            raise ChatError(f"{self._root} goes on with the weights {found}; version {version!r} was handed over")

    def _dev(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Call one of the server's own routes."""
        try:
            return self._server.post(f"{self._root}/{path}", body or {})
        except WrongModelError:
            raise ChatError(f"{self._root} has no /{path}; {_DEV}") from None

    @contextmanager
    def _named(self) -> Iterator[None]:
        """What goes wrong outside an episode ends the run, by name."""
        try:
            yield
        except ChatError as error:
            raise OutsideError(f"policy {self.name!r}: {error}") from None


def _is_listed(model: object) -> bool:
    """Whether a server lists a model as it should."""
    match model:
        case {"id": str(), **about}:
            room = about.get("max_model_len")
            return room is None or (type(room) is int and room >= 1)
    return False
