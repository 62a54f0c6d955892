"""The two sides of a measurement: ours in this process, the rivals in theirs, timed in turn."""

from __future__ import annotations

import math
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, NamedTuple

from values_rows import Limits, Row, Show, seconds

CLOCK = 0.01
"""Seconds over which a call is repeated for one time of it."""


class RivalError(RuntimeError):
    """A rival raised, or there is none."""


class Rivals:
    """The worker in the rivals' interpreter; see :mod:`values_worker`."""

    def __init__(self, python: Path) -> None:
        self._ours, theirs = Pipe()
        worker = [str(python), str(Path(__file__).with_name("values_worker.py")), str(theirs.fileno())]
        silent = subprocess.DEVNULL
        self._process = subprocess.Popen(worker, pass_fds=[theirs.fileno()], stdout=silent, stderr=silent)
        theirs.close()

    def __call__(self, name: str, *arguments: Any) -> Any:
        """What the worker's function of that name returns.

        Raises:
            RivalError: it raised.
        """
        self._ours.send((name, arguments))
        try:
            answered, result = self._ours.recv()
        except EOFError:
            raise RivalError(f"the rivals' process ended in {name}") from None
        if not answered:
            raise RivalError(f"{name}: {result}")
        return result

    def close(self) -> None:
        """End the worker."""
        self._ours.close()
        self._process.wait()


@dataclass
class Bench:
    """What every group of rows is given."""

    python: Path | None
    """The rivals' interpreter, if there is one."""
    quick: bool
    """Small sizes, and the least of several times instead of the median: it may run beside other work."""
    seed: int
    repeats: int
    """Games a cell."""
    verbose: bool

    @cached_property
    def rivals(self) -> Rivals | None:
        """The worker, started when it is first asked for."""
        return Rivals(self.python) if self.python else None

    def theirs(self, name: str, *arguments: Any) -> Any:
        """A call to a rival; see :class:`Rivals`."""
        if self.rivals is None:
            raise RivalError("no rivals: run with --setup first")
        return self.rivals(name, *arguments)


def row(
    what: str, show: Show, must: Limits | None, stretch: Limits | None, measure: Callable[[], tuple[float, str]]
) -> Row:
    """A row from a measurement (number, how); a rival that fails or is missing leaves it open and says why."""
    try:
        measured, how = measure()
    except RivalError as error:
        return Row(what, show, must, stretch, None, str(error))
    return Row(what, show, must, stretch, measured, how)


class Pair(NamedTuple):
    """Median seconds of a call on both sides, taken in turn, and what each last returned."""

    ours: float
    theirs: float
    our_values: Any
    their_values: Any

    @property
    def ratio(self) -> float:
        """How many times faster ours is."""
        return self.theirs / self.ours

    @property
    def how(self) -> str:
        """Both times."""
        return f"{seconds(self.ours)} against {seconds(self.theirs)}"


def in_turn(ours: Callable[[], Any], theirs: Callable[[], tuple[float, Any]], rounds: int) -> Pair:
    """Ours, theirs, ours, theirs, …; theirs times itself."""
    values = ours()
    mine, other = [], []
    for _ in range(rounds):
        mine.append(seconds_of(ours))
        spent, result = theirs()
        other.append(spent)
    return Pair(statistics.median(mine), statistics.median(other), values, result)


def seconds_of(run: Callable[[], Any], least: bool = False) -> float:
    """Seconds a call after the first: the median of five, or the least, each over enough calls for the clock."""
    run()
    start = time.perf_counter()
    run()
    calls = max(1, round(CLOCK / max(time.perf_counter() - start, 1e-9)))
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        taken.append((time.perf_counter() - start) / calls)
    return min(taken) if least else statistics.median(taken)


def geometric_mean(numbers: Iterable[float]) -> float:
    """The exponential of the mean logarithm."""
    return math.exp(statistics.fmean(math.log(x) for x in numbers))
