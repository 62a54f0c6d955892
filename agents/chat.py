"""A model behind any OpenAI-compatible chat server: texts alone, so it is measured or frozen, never trained."""

from __future__ import annotations

import json
import os
import re
import time
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

import openai

from macredit.errors import OutsideError, UserError, unknown
from macredit.policy import Chat, Request, Said
from macredit.rollout import attempt


class ChatError(RuntimeError):
    """A call that failed; only its episode fails with it."""


class TimedOutError(ChatError):
    """No answer in time."""


class KeyRefusedError(ChatError):
    """The server wants a key, or another one."""


class WrongModelError(ChatError):
    """The server does not know the model, or answers with another one."""


class GarbageError(ChatError):
    """What came back is no chat completion."""


class ChatServer:
    """Speaks with a model behind a server; each call goes out at once, by a thread of its own.

    A server has no keyed randomness: each call's seed is drawn from its key and sent, but what comes back is recorded,
    not reproducible, and ``sampling`` says so. ``version`` is the model's name as the server reports it.

    Args:
        model: its name on the server.
        url: the base URL, up to ``/v1``.
        key_env: the environment variable that holds the key (never the key itself); None: the server wants none.
        max_tokens: the longest reply; None: as the server has it.
        sampling: ``temperature`` (default 1) and ``top_p``.
        extra: further fields of the request, such as ``chat_template_kwargs`` or ``max_completion_tokens``.
        concurrency: this policy's calls under way at once.
        requests_per_minute: the most requests sent in a minute, retries included, evenly spaced; None: no limit.
        timeout: seconds without an answer until a request is given up.
        retries: how often a request is repeated, with growing pauses, after a timeout, a lost connection, 429 or 5xx.
        price_in: price of a million prompt tokens, in any currency.
        price_out: price of a million sampled tokens; where a price is given, ``usage`` has ``micros``, the cost of the
            call in millionths of that currency.
        name: the policy's name.

    Raises:
        UserError: a setting out of range, or no key under ``key_env``.
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
            ("max_tokens", max_tokens, 1, True), ("concurrency", concurrency, 1, True), ("retries", retries, 0, True),
            ("requests_per_minute", requests_per_minute, 1, False), ("timeout", timeout, 0.1, False),
            ("price_in", price_in, 0, False), ("price_out", price_out, 0, False),
        ):  # fmt: skip
            _check_number(setting, given, least, whole)
        _check_sampling(sampling or {})
        self.name, self.model, self.url = name, model, _checked_url(url)
        self.concurrency, self.timeout, self.retries = concurrency, timeout, retries
        self._prices = price_in, price_out
        self._fields = {"temperature": 1.0, **(sampling or {}), **(extra or {})}
        self._fields |= {} if max_tokens is None else {"max_tokens": max_tokens}
        self.sampling: Mapping[str, Any] = {**self._fields, "reproducible": False}
        self._key_env, self._key = key_env, _key(key_env)
        http = openai.DefaultHttpxClient(event_hooks={"request": [_Pace(requests_per_minute)]})
        weakref.finalize(self, http.close)
        self._client = openai.OpenAI(
            api_key=self._key or "none", base_url=self.url, timeout=timeout, max_retries=retries, http_client=http
        )
        self._lock, self._speaking = Lock(), 0
        self._waiting: deque[tuple[int, Request]] = deque()
        self._answers: SimpleQueue[tuple[int, Said | Exception]] = SimpleQueue()
        self.version = self._reported()

    # -- many calls at once ----------------------------------------------------------------------------------------

    def submit(self, requests: Sequence[tuple[int, Request]]) -> None:
        """Send the requests, as many at once as ``concurrency`` allows."""
        with self._lock:
            self._waiting.extend(requests)
            new = min(self.concurrency - self._speaking, len(requests))
            self._speaking += new
        for _ in range(new):
            Thread(target=self._speak, daemon=True).start()  # an interrupted run does not wait for it

    def collect(self) -> Sequence[tuple[int, Said | Exception]]:
        """The answers that are there, by ticket; a failed call is a :class:`ChatError`."""
        answers = [self._answers.get()]
        while not self._answers.empty():
            answers.append(self._answers.get())
        return answers

    def _speak(self) -> None:
        """Answer request after request until none waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._speaking -= 1
                    return
                ticket, request = self._waiting.popleft()
            self._answers.put((ticket, attempt(lambda: self._say(request))))  # noqa: B023 (called at once)

    # -- one call --------------------------------------------------------------------------------------------------

    def _say(self, request: Request) -> Said:
        seed = int(request.rng().integers(2**31))
        model, said = self._complete(request.messages, {**self._fields, "seed": seed})
        if model != self.version:
            raise WrongModelError(f"{self.url} answers with the model {model!r}; it began with {self.version!r}")
        return said

    def _complete(self, messages: Iterable[Chat], fields: Mapping[str, Any]) -> tuple[str, Said]:
        """The model's name as reported, and what it said."""
        body = {"model": self.model, "messages": [chat._asdict() for chat in messages], **fields}
        try:
            answer: Any = self._client.post("/chat/completions", cast_to=object, body=body)
        except openai.OpenAIError as error:
            raise self._failure(error) from None
        except ValueError as error:
            raise GarbageError(f"{self.url} answers what is no JSON ({error})") from None
        match answer:
            case {"model": str(model), "choices": [{"message": {"content": str() | None as text}, **choice}, *_]}:
                finish = "length" if choice.get("finish_reason") == "length" else "stop"
                said = Said(_well_formed(text or ""), finish=finish, sampling=self.sampling, usage=self._usage(answer))
                return model, said
        raise GarbageError(f"{self.url} answers {self._shown(answer)}; expected a chat completion")

    def _usage(self, answer: Mapping[str, Any]) -> dict[str, int] | None:
        """Tokens and cost, where the server counts tokens."""
        match answer.get("usage"):
            case {"prompt_tokens": int(prompt), "completion_tokens": int(sampled), **more}:
                usage = {"prompt": prompt, "sampled": sampled}
            case _:
                return None
        match more.get("prompt_tokens_details"):
            case {"cached_tokens": int(cached)}:
                usage["cached"] = cached
        if any(self._prices):
            usage["micros"] = round(self._prices[0] * prompt + self._prices[1] * sampled)
        return usage

    # -- what goes wrong -------------------------------------------------------------------------------------------

    def _reported(self) -> str:
        """The model's name by the server, which has said a word."""
        short = {"max_tokens": 1} if "max_tokens" in self._fields else {}
        try:
            model, _ = self._complete([Chat("user", "Say ok.")], {**self._fields, **short})
        except WrongModelError as error:
            raise OutsideError(f"policy {self.name!r}: {error}; {self._served()}") from None
        except ChatError as error:
            raise OutsideError(f"policy {self.name!r}: {error}") from None
        return model

    def _served(self) -> str:
        """What models the server lists."""
        try:
            answer = self._client.get("/models", cast_to=object)
        except (openai.OpenAIError, ValueError):
            answer = None
        match answer:
            case {"data": [*models]}:
                return f"it serves {', '.join(str(m.get('id')) for m in models if isinstance(m, dict)) or 'none'}"
        return "it lists no models either: a base URL usually ends in /v1"

    def _failure(self, error: openai.OpenAIError) -> ChatError:
        """The error as one sentence, without the key."""
        match error:
            case openai.APITimeoutError():
                return TimedOutError(f"{self.url} gave no answer within {self.timeout:g} s ({self.retries} retries)")
            case openai.APIConnectionError():
                return ChatError(
                    f"{self.url} cannot be reached ({self._shown(str(error.__cause__))}); is the server up?"
                )
            case openai.APIStatusError(status_code=401 | 403 as status):
                wanted = f"refuses the key in {self._key_env}" if self._key_env else "wants a key; name it by key_env"
                return KeyRefusedError(f"{self.url} {wanted} ({status})")
            case openai.NotFoundError():
                return WrongModelError(f"{self.url} does not know the model {self.model!r}")
            case openai.APIStatusError(status_code=status, response=response):
                return ChatError(f"{self.url} answers {status}: {self._shown(response.text)}")
        return ChatError(f"{self.url}: {self._shown(str(error))}")

    def _shown(self, answer: object) -> str:
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return (text.replace(self._key, "***") if self._key else text)[:300]


class _Pace:
    """Holds each request until its minute has room for it."""

    def __init__(self, per_minute: float | None) -> None:
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._lock, self._next = Lock(), 0.0

    def __call__(self, _: object) -> None:
        with self._lock:
            now = time.monotonic()
            turn = max(now, self._next)
            self._next = turn + self._gap
        time.sleep(turn - now)


def _well_formed(text: str) -> str:
    """The text, if it can be written down: JSON can carry halves of characters that cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise GarbageError(f"the reply holds half a character ({error})") from None
    return text


def _key(key_env: str | None) -> str | None:
    if key_env is None:
        return None
    if not re.fullmatch(r"[A-Za-z_]\w*", key_env):  # not shown: it may be the key
        raise UserError(
            "key_env is no name of an environment variable; give the name, such as OPENAI_API_KEY, never the key"
        )
    key = os.environ.get(key_env, "").strip()
    if not key:
        raise UserError(f"key_env names {key_env!r}, and the environment has no such variable; set it to the key")
    if not (key.isascii() and key.isprintable()):
        raise UserError(f"the key in {key_env} holds characters that no key has; set it to the key alone")
    return key


def _checked_url(url: str) -> str:
    if "@" in url:  # not shown: it may hold a password
        raise UserError("url holds a user name; give the bare URL, and the key by key_env")
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number
        whole = False
    if not whole:
        raise UserError(f"url was given as {url!r}; expected a base URL such as http://localhost:8000/v1")
    return url


def _check_sampling(sampling: Mapping[str, Any]) -> None:
    for name, value in sampling.items():
        if name not in ("temperature", "top_p"):
            raise unknown("sampling parameter of a chat policy", name, ("temperature", "top_p"))
        _check_number(name, value, 0)


def _check_number(name: str, value: Any, least: float, whole: bool = False) -> None:
    if value is not None and not (isinstance(value, int if whole else (int, float)) and value >= least):
        raise UserError(
            f"{name} was given as {value!r}; expected a {'whole ' if whole else ''}number of at least {least:g}"
        )
