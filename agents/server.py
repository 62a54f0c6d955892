"""Calls to an OpenAI-compatible server: many at once, retried and paced; what goes wrong is named."""

from __future__ import annotations

import json
import os
import re
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

import openai

from macredit.errors import UserError
from macredit.policy import Request, Said
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
    """What came back is not what was asked for."""


class Server:
    """A client of one server; each call goes out at once, by a thread of its own.

    Args:
        url: the base URL, up to ``/v1``.
        model: the model that is asked for, as errors name it.
        say: answers one request, by calls of :meth:`post`.
        key_env: the environment variable that holds the key; None: the server wants none.
        concurrency: calls under way at once.
        requests_per_minute: the most requests sent in a minute, retries included, evenly spaced; None: no limit.
        timeout: seconds without an answer until a request is given up.
        retries: how often a request is repeated, with growing pauses, after a timeout, a lost connection, 429 or 5xx.

    Raises:
        UserError: a setting out of range, or no key under ``key_env``.
    """

    def __init__(
        self,
        url: str,
        model: str,
        say: Callable[[Request], Said],
        key_env: str | None,
        concurrency: int,
        requests_per_minute: float | None,
        timeout: float,
        retries: int,
    ) -> None:
        for setting, given, least, whole in (
            ("concurrency", concurrency, 1, True), ("retries", retries, 0, True),
            ("requests_per_minute", requests_per_minute, 1, False), ("timeout", timeout, 0.1, False),
        ):  # fmt: skip
            check_number(setting, given, least, whole)
        self.url, self.model, self._answer = _checked_url(url), model, say
        self._concurrency, self._timeout, self._retries = concurrency, timeout, retries
        self._key_env, self._key = key_env, _key(key_env)
        http = openai.DefaultHttpxClient(event_hooks={"request": [_Pace(requests_per_minute)]})
        weakref.finalize(self, http.close)
        self._client = openai.OpenAI(
            api_key=self._key or "none", base_url=self.url, timeout=timeout, max_retries=retries, http_client=http
        )
        self._lock, self._speaking = Lock(), 0
        self._waiting: deque[tuple[int, Request]] = deque()
        self._answers: SimpleQueue[tuple[int, Said | Exception]] = SimpleQueue()

    # -- many calls at once ----------------------------------------------------------------------------------------

    def submit(self, requests: Sequence[tuple[int, Request]]) -> None:
        """Send the requests, as many at once as ``concurrency`` allows."""
        with self._lock:
            self._waiting.extend(requests)
            new = min(self._concurrency - self._speaking, len(requests))
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
            self._answers.put((ticket, attempt(lambda: self._answer(request))))  # noqa: B023 (called at once)

    # -- one call --------------------------------------------------------------------------------------------------

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON that answers a POST to a path below the base URL, or to a whole URL.

        Raises:
            ChatError: there is none.
        """
        return self._call(lambda: self._client.post(path, cast_to=object, body=body))

    def get(self, path: str) -> Any:
        """The JSON that answers a GET.

        Raises:
            ChatError: there is none.
        """
        return self._call(lambda: self._client.get(path, cast_to=object))

    def _call(self, call: Callable[[], object]) -> Any:
        try:
            return call()
        except openai.OpenAIError as error:
            raise self._failure(error) from None
        except ValueError as error:
            raise GarbageError(f"{self.url} answers what is no JSON ({error})") from None

    # -- what goes wrong -------------------------------------------------------------------------------------------

    def served(self) -> str:
        """What models the server lists, for an error about one it does not know."""
        try:
            answer = self.get("/models")
        except ChatError:
            answer = None
        match answer:
            case {"data": [*models]}:
                return f"it serves {', '.join(str(m.get('id')) for m in models if isinstance(m, dict)) or 'none'}"
        return "it lists no models either: a base URL usually ends in /v1"

    def _failure(self, error: openai.OpenAIError) -> ChatError:
        """The error as one sentence, without the key."""
        match error:
            case openai.APITimeoutError():
                return TimedOutError(f"{self.url} gave no answer within {self._timeout:g} s ({self._retries} retries)")
            case openai.APIConnectionError():
                return ChatError(
                    f"{self.url} cannot be reached ({self.shown(str(error.__cause__))}); is the server up?"
                )
            case openai.APIStatusError(status_code=401 | 403 as status):
                wanted = f"refuses the key in {self._key_env}" if self._key_env else "wants a key; name it by key_env"
                return KeyRefusedError(f"{self.url} {wanted} ({status})")
            case openai.NotFoundError():
                return WrongModelError(f"{self.url} does not know the model {self.model!r}")
            case openai.APIStatusError(status_code=status, response=response):
                return ChatError(f"{self.url} answers {status}: {self.shown(response.text)}")
        return ChatError(f"{self.url}: {self.shown(str(error))}")

    def shown(self, answer: object) -> str:
        """The beginning of an answer, without the key."""
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


def check_number(name: str, value: Any, least: float, whole: bool = False) -> None:
    """Hold a setting to its range; None is within any.

    Raises:
        UserError: it is out of it.
    """
    if value is not None and not (isinstance(value, int if whole else (int, float)) and value >= least):
        raise UserError(
            f"{name} was given as {value!r}; expected a {'whole ' if whole else ''}number of at least {least:g}"
        )
