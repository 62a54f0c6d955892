"""A model behind any OpenAI-compatible chat server: texts alone, so it is measured or frozen, never trained."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from macredit.errors import OutsideError, UserError, unknown
from macredit.policy import Chat, Request, Said

from .server import ChatError, GarbageError, Server, WrongModelError
from .traffic import Limits, check_number, traffic_to


class ChatServer:
    """Speaks with a model behind a server; each call goes out at once, by a thread of its own.

    ``concurrency`` and ``requests_per_minute`` hold for all chat policies of a process with the same ``url`` and
    ``key_env`` together. Workers on Ray are processes of their own and each keep them: with 4 workers, give a quarter.

    A server has no keyed randomness: each call's seed is drawn from its key and sent, but what comes back is recorded,
    not reproducible, and ``sampling`` says so. ``version`` is the model's name as the server reports it.

    Args:
        model: its name on the server.
        url: the base URL, up to ``/v1``.
        key_env: the environment variable that holds the key (never the key itself); None: the server wants none.
        max_tokens: the longest reply; None: as the server has it.
        sampling: ``temperature`` (default 1) and ``top_p``.
        extra: further fields of the request, such as ``chat_template_kwargs`` or ``max_completion_tokens``.
        concurrency: calls under way at once.
        requests_per_minute: the most requests sent in a minute, retries included, evenly spaced; None: no limit.
        timeout: seconds until a request without a whole answer is given up.
        retries: how often a request is repeated, with growing pauses, after a timeout, a lost connection, 429 or 5xx.
        price_in: price of a million prompt tokens, in any currency.
        price_out: price of a million sampled tokens; where a price is given, ``usage`` has ``micros``, the cost of the
            call in millionths of that currency.
        name: the policy's name.

    Raises:
        UserError: a setting out of range, no key under ``key_env``, or other limits than another policy's there.
        OutsideError: the server is down, refuses the key, does not know the model or does not speak the protocol. It is
            asked for one word when the policy is made, before anything is played.
    """

    def __init__(
        self,
        model: str,
        url: str,
        key_env: str | None = None,
        max_tokens: int | None = None,
        sampling: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
        concurrency: int = 16,
        requests_per_minute: float | None = None,
        timeout: float = 120.0,
        retries: int = 4,
        price_in: float = 0.0,
        price_out: float = 0.0,
        name: str = "",
    ) -> None:
        for setting, given, least, whole in (
            ("max_tokens", max_tokens, 1, True), ("price_in", price_in, 0, False), ("price_out", price_out, 0, False),
        ):  # fmt: skip
            check_number(setting, given, least, whole)
        _check_sampling(sampling or {})
        _check_extra(extra or {})
        self.name = name
        traffic = traffic_to(url, key_env, Limits(concurrency, requests_per_minute))
        self._server = Server(url, model, key_env, timeout, retries, traffic)
        self._prices = price_in, price_out
        self._fields = {"temperature": 1.0, **(sampling or {}), **(extra or {})}
        self._fields |= {} if max_tokens is None else {"max_tokens": max_tokens}
        self.sampling: Mapping[str, Any] = {**self._fields, "reproducible": False}
        self.version = self._reported()

    def submit(self, requests: Sequence[tuple[int, Request]]) -> None:
        """Send the requests, as many at once as ``concurrency`` allows."""
        self._server.submit(requests, self._say)

    def collect(self) -> Sequence[tuple[int, Said | Exception]]:
        """The answers that are there, by ticket; a failed call is a :class:`ChatError`."""
        return self._server.collect()

    # -- one call --------------------------------------------------------------------------------------------------

    def _say(self, request: Request) -> Said:
        seed = int(request.rng().integers(2**31))
        model, said = self._complete(request.messages, {**self._fields, "seed": seed})
        if model != self.version:
            raise WrongModelError(
                f"{self._server.url} answers with the model {model!r}; it began with {self.version!r}"
            )
        return said

    def _complete(self, messages: Iterable[Chat], fields: Mapping[str, Any]) -> tuple[str, Said]:
        """The model's name as reported, and what it said."""
        body = {"model": self._server.model, "messages": [chat._asdict() for chat in messages], **fields}
        answer = self._server.post("/chat/completions", body)
        match answer:
            case {"model": str(model), "choices": [{"message": {"content": str() | None as text}, **choice}, *_]}:
                finish = "length" if choice.get("finish_reason") == "length" else "stop"
                said = Said(_well_formed(text or ""), finish=finish, sampling=self.sampling, usage=self._usage(answer))
                return model, said
        raise GarbageError(f"{self._server.url} answers {self._server.shown(answer)}; expected a chat completion")

    def _usage(self, answer: Mapping[str, Any]) -> dict[str, int] | None:
        """Tokens and cost, where the server counts tokens.

        Raises:
            GarbageError: it counts what cannot be.
        """
        usage = self._server.usage(answer)
        if not {"prompt", "sampled"} <= usage.keys():
            return None
        if any(self._prices):
            usage["micros"] = round(self._prices[0] * usage["prompt"] + self._prices[1] * usage["sampled"])
        return usage

    def _reported(self) -> str:
        """The model's name by the server, which has said a word."""
        short = {"max_tokens": 1} if "max_tokens" in self._fields else {}
        try:
            model, _ = self._complete([Chat("user", "Say ok.")], {**self._fields, **short})
        except WrongModelError as error:
            raise OutsideError(f"policy {self.name!r}: {error}; {self._server.served()}") from None
        except ChatError as error:
            raise OutsideError(f"policy {self.name!r}: {error}") from None
        return model


def _well_formed(text: str) -> str:
    """The text, if it can be written down: JSON can carry halves of characters that cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise GarbageError(f"the reply holds half a character ({error})") from None
    return text


def _check_sampling(sampling: Mapping[str, Any]) -> None:
    for name, value in sampling.items():
        if name not in ("temperature", "top_p"):
            raise unknown("sampling parameter of a chat policy", name, ("temperature", "top_p"))
        check_number(name, value, 0)


def _check_extra(extra: Mapping[str, Any]) -> None:
    try:
        json.dumps(extra, allow_nan=False)
    except (TypeError, ValueError) as error:  # TOML has dates, NaN and infinities
        raise UserError(f"extra was given as {dict(extra)!r:.80}; expected what JSON can hold ({error})") from None
