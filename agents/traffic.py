"""How many calls one server gets at once and a minute: a limit is the server's and the key's, not a policy's."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from importlib import import_module
from threading import Lock, Thread
from typing import Any, TypeVar

import openai

from macredit.bounds import is_number
from macredit.errors import UserError

T = TypeVar("T")
Call = Callable[[], None]
"""Makes one call and keeps the answer; raises nothing."""
_HTTPX: Any = import_module(openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0])
"""httpx or its successor: whichever the client is built on."""
_MOST = 1 << 24
"""Bytes of an answer: a reply of 100,000 tokens with log-probabilities has fewer."""


class TooLongError(openai.OpenAIError):
    """An answer of more bytes than any reply has; it is not read to its end."""

    def __init__(self) -> None:
        super().__init__(f"expected at most {_MOST >> 20} MiB")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server or its owner allows.

    Raises:
        UserError: less than 1.
    """

    concurrency: int
    """Calls under way at once."""
    requests_per_minute: float | None = None
    """The most requests sent in a minute, retries included, evenly spaced; None: no limit."""

    def __post_init__(self) -> None:
        check_number("concurrency", self.concurrency, 1, whole=True)
        check_number("requests_per_minute", self.requests_per_minute, 1)

    def __str__(self) -> str:
        return f"concurrency = {self.concurrency} and requests_per_minute = {self.requests_per_minute}"


class Traffic:
    """Calls on their way, each by a thread of its own, over one pool of connections.

    The pool is served by an event loop in one more thread: there a call that takes too long can be ended.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.http = _Pool(limits.requests_per_minute)
        self._loop = asyncio.new_event_loop()
        Thread(target=_serve, args=(self._loop,), daemon=True).start()
        weakref.finalize(self, _close, self.http, self._loop).atexit = False
        self._lock, self._speaking = Lock(), 0
        self._waiting: deque[Call] = deque()

    def send(self, calls: Iterable[Call]) -> None:
        """Make the calls, as many at once as there may be; returns at once."""
        with self._lock:
            self._waiting.extend(calls)
            new = min(self.limits.concurrency - self._speaking, len(self._waiting))
            self._speaking += new
        for _ in range(new):
            Thread(target=self._speak, daemon=True).start()  # an interrupted run does not wait for it

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """What a call over :attr:`http` answers; raises what it raises."""
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def _speak(self) -> None:
        """Make call after call until none waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._speaking -= 1
                    return
                call = self._waiting.popleft()
            call()


_UNDER_WAY: weakref.WeakValueDictionary[tuple[str, str | None], Traffic] = weakref.WeakValueDictionary()
"""(base URL, key variable) → the traffic of this process's policies, for as long as one of them lives."""
_LOCK = Lock()


def traffic_to(url: str, key_env: str | None, limits: Limits) -> Traffic:
    """The one traffic that this process has with a server under a key.

    Raises:
        UserError: other limits than those of the policies before.
    """
    place = url.rstrip("/"), key_env
    with _LOCK:
        traffic = _UNDER_WAY.get(place)
        if traffic is None:
            traffic = _UNDER_WAY[place] = Traffic(limits)
    if traffic.limits != limits:
        raise UserError(
            f"a policy on {url} was given {limits}, and one before it {traffic.limits}; limits hold for all policies "
            "with the same url and key_env together: give each the same"
        )
    return traffic


class _Pool(openai.DefaultAsyncHttpxClient):
    """Connections over which each request waits for its turn, and is answered in time and briefly or not at all."""

    def __init__(self, per_minute: float | None) -> None:
        super().__init__()
        self._gap, self._next = 60.0 / per_minute if per_minute else 0.0, 0.0

    async def send(self, request: Any, **how: Any) -> Any:
        """The whole answer.

        Raises:
            ReadTimeout: it is not there within the request's time-out, which the client itself measures from one piece
                of the answer to the next.
            TooLongError: it does not end.
        """
        now = time.monotonic()
        turn = max(now, self._next)
        self._next = turn + self._gap
        await asyncio.sleep(turn - now)
        try:
            request.headers["Accept-Encoding"] = "gzip"  # others make more of a few bytes
            async with asyncio.timeout(request.extensions["timeout"]["read"]):
                response = await super().send(request, **{**how, "stream": True})
                try:
                    body = await _read(response)
                finally:
                    await response.aclose()
        except TimeoutError:
            raise _HTTPX.ReadTimeout("", request=request) from None
        unpacked = [(name, value) for name, value in response.headers.raw if name.lower() != b"content-encoding"]
        about: dict[str, Any] = {"headers": unpacked, "extensions": response.extensions}
        return type(response)(response.status_code, content=body, request=request, **about)


async def _read(response: Any) -> bytes:
    """Unpacked piece by piece, so that a small answer cannot become a large one."""
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > _MOST:
            raise TooLongError
    return bytes(body)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _close(http: _Pool, loop: asyncio.AbstractEventLoop) -> None:
    closed = asyncio.run_coroutine_threadsafe(http.aclose(), loop)
    closed.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))


def check_number(name: str, value: object, least: float, whole: bool = False) -> None:
    """Hold a setting to its range; None is within any.

    Raises:
        UserError: it is out of it.
    """
    if value is not None and not (is_number(value) and value >= least and (isinstance(value, int) or not whole)):
        raise UserError(
            f"{name} was given as {value!r}; expected a {'whole ' if whole else ''}number of at least {least:g}"
        )
