"""Rollouts that run ahead of learning, a bounded number of steps, in a thread of their own.

The batch of step n + bound is made while step n is learned, with the weights handed over before it: who sampled what
depends on the bound alone, never on how fast either side is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Makes batches in order, up to ``bound`` steps ahead of the one that is taken; 0: when it is taken, right here.

    Args:
        make: step → its batch.
        first: the first step.
        stop: the step after the last.
        bound: how many steps batches are made ahead.
    """

    def __init__(self, make: Callable[[int], T], first: int, stop: int, bound: int) -> None:
        self._make, self._next, self._stop, self._bound = make, first, stop, bound
        self._pool = ThreadPoolExecutor(1, "rollouts")
        self._coming: deque[Future[T]] = deque()

    def take(self) -> T:
        """The next batch; those up to ``bound`` steps after it are begun."""
        if not self._bound:
            self._next += 1
            return self._make(self._next - 1)
        while len(self._coming) <= self._bound and self._next < self._stop:
            self._coming.append(self._pool.submit(self._make, self._next))
            self._next += 1
        return self._coming.popleft().result()

    def wait(self) -> None:
        """Until nothing is being made: then weights may change hands."""
        wait(self._coming)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
