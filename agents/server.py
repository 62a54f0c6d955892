"""Calls to an OpenAI-compatible server, retried; what goes wrong is named."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import openai

from macredit.errors import UserError
from macredit.policy import Request, Said
from macredit.rollout import attempt

from .traffic import TooLongError, Traffic, check_number

_COUNTS = 1 << 53
"""No server counts more tokens."""


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
    """One policy's client of a server.

    Args:
        url: the base URL, up to ``/v1``.
        model: the model that is asked for, as errors name it.
        key_env: the environment variable that holds the key; None: the server wants none.
        timeout: seconds until a request without a whole answer is given up.
        retries: how often a request is repeated, with growing pauses, after a timeout, a lost connection, 429 or 5xx.
        traffic: sends the calls, those of other policies among them or not.

    Raises:
        UserError: a setting out of range, or no key under ``key_env``.
    """

    def __init__(
        self, url: str, model: str, key_env: str | None, timeout: float, retries: int, traffic: Traffic
    ) -> None:
        check_number("retries", retries, 0, whole=True)
        check_number("timeout", timeout, 0.1)
        self.url, self.model = _checked_url(url), model
        self._timeout, self._retries, self._traffic = timeout, retries, traffic
        self._key_env, self._key = key_env, _key(key_env)
        self._client = openai.AsyncOpenAI(
            api_key=self._key or "none", base_url=url, timeout=timeout, max_retries=retries, http_client=traffic.http
        )
        self._answers: SimpleQueue[tuple[int, Said | Exception]] = SimpleQueue()

    # -- many calls at once ----------------------------------------------------------------------------------------

    def submit(self, requests: Sequence[tuple[int, Request]], say: Callable[[Request], Said]) -> None:
        """Have ``say`` answer the requests by calls of :meth:`post`, as many at once as the traffic allows."""
        self._traffic.send([partial(self._answer, ticket, request, say) for ticket, request in requests])

    def collect(self) -> Sequence[tuple[int, Said | Exception]]:
        """The answers that are there, by ticket; a failed call is a :class:`ChatError`."""
        answers = [self._answers.get()]
        while not self._answers.empty():
            answers.append(self._answers.get())
        return answers

    def _answer(self, ticket: int, request: Request, say: Callable[[Request], Said]) -> None:
        self._answers.put((ticket, attempt(lambda: say(request))))

    # -- one call --------------------------------------------------------------------------------------------------

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON that answers a POST to a path below the base URL, or to a whole URL.

        Raises:
            ChatError: there is none.
        """
        return self._call(self._client.post(path, cast_to=object, body=body))

    def get(self, path: str) -> Any:
        """The JSON that answers a GET.

        Raises:
            ChatError: there is none.
        """
        return self._call(self._client.get(path, cast_to=object))

    def _call(self, call: Coroutine[Any, Any, object]) -> Any:
        try:
            return self._traffic.wait(call)
        except openai.OpenAIError as error:
            raise self._failure(error) from None
        except (ValueError, RecursionError) as error:
            raise GarbageError(f"{self.url} answers what is no JSON ({error})") from None

    def usage(self, answer: Mapping[str, Any], prompt: int | None = None) -> dict[str, int]:
        """Tokens as the server counts them, where it does: ``prompt``, ``sampled``, ``cached``.

        Args:
            answer: a completion.
            prompt: how many tokens the prompt has, where that is known.

        Raises:
            GarbageError: it counts what cannot be.
        """
        match answer.get("usage"):
            case None:
                return {}
            case {**said} if isinstance(details := said.get("prompt_tokens_details") or {}, dict):
                found = {"prompt": said.get("prompt_tokens"), "sampled": said.get("completion_tokens")}
                found["cached"] = details.get("cached_tokens")
                counts = {name: n for name, n in found.items() if type(n) is int and 0 <= n <= _COUNTS}
                most = counts.get("prompt", _COUNTS) if prompt is None else prompt
                if all(name in counts or n is None for name, n in found.items()) and counts.get("cached", 0) <= most:
                    return counts
        raise GarbageError(
            f"{self.url} counts tokens as {self.shown(answer['usage'])}; expected whole numbers of at least 0, and no "
            "more cached than prompt tokens"
        )

    # -- what goes wrong -------------------------------------------------------------------------------------------

    def served(self) -> str:
        """What models the server lists, for an error about one it does not know."""
        try:
            answer = self.get("/models")
        except ChatError:
            answer = None
        match answer:
            case {"data": [*models]}:
                names = ", ".join(str(m.get("id")) for m in models if isinstance(m, dict))
                return f"it serves {self.shown(names) or 'none'}"
        return "it lists no models either: a base URL usually ends in /v1"

    def _failure(self, error: openai.OpenAIError) -> ChatError:
        """The error as one sentence, without the key."""
        match error:
            case TooLongError():
                return GarbageError(f"{self.url} answers without end; {error}")
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
        text = answer.encode(errors="backslashreplace").decode() if isinstance(answer, str) else json.dumps(answer)
        return (text.replace(self._key, "***") if self._key else text)[:300]


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
