"""What an estimator is given and what it gives back: a plan, the answers so far, and a fit to them.

A method is a module with three functions, ``smallest(n)``, ``batch(plan, answers)`` and ``fit(plan, answers)``; it
keeps no state, so that the same plan and the same answers always give the same values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from macredit.rows import BoolN, FloatN, IntN

BoolCN = npt.NDArray[np.bool_]
"""bool[C, n]: one coalition a row, one player a column."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the user asked for."""

    n: int
    """Players."""
    budget: int
    """The most evaluations, repeated ones included."""
    seed: int = 0
    noise: bool = False
    """Whether a coalition's worth differs from one evaluation to the next."""
    span: float | None = None
    """Highest minus lowest possible worth, where it is known: it bounds every marginal."""
    groups: tuple[tuple[int, ...], ...] = ()
    """Players that join and leave together (method ``grouped``)."""
    blocks: bool = False
    """Whether to ask in blocks, so that a stopping rule can look between them."""


@dataclass(frozen=True)
class Answers:
    """Every answered coalition once, in key order, with the mean of its answers; see :func:`answers_of`."""

    coalitions: BoolCN
    """bool[D, n], distinct."""
    mean: FloatN
    """float[D]: mean worth."""
    count: IntN
    """int[D]: answers per coalition."""
    squares: FloatN
    """float[D]: sum of squared deviations of a coalition's answers from their mean."""
    rounds: int = 0
    """Batches that were asked for and answered so far."""
    keys: npt.NDArray[Any] = field(repr=False, default_factory=lambda: np.zeros(0, np.uint64))
    """:func:`keys_of` the coalitions, ascending."""

    @property
    def evaluations(self) -> int:
        """Answers, repeated ones included."""
        return int(self.count.sum())

    @property
    def noise(self) -> float:
        """Pooled variance of one answer around its coalition's worth, from repeated answers; 0 where none differ."""
        repeats = int((self.count - 1).sum())
        return float(self.squares.sum()) / repeats if repeats else 0.0

    def find(self, coalitions: BoolCN) -> IntN:
        """The row of each coalition in these answers, −1 where it has none."""
        keys = keys_of(coalitions)
        if not len(self.keys):
            return np.full(len(keys), -1)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, at, -1)

    def worths(self, coalitions: BoolCN) -> FloatN:
        """Mean worth of each coalition, NaN where it has no answer."""
        row = self.find(coalitions)
        return np.where(row >= 0, np.append(self.mean, np.nan)[row], np.nan)

    def complements(self) -> IntN:
        """int[D]: the row of each coalition's complement, −1 where it has no answer."""
        mirrored = self.coalitions[::-1]  # complements stand in the opposite order
        if (self.coalitions != mirrored).all():
            return np.arange(len(mirrored))[::-1]
        return self.find(~self.coalitions)

    def ends(self) -> tuple[float, float]:
        """Worths of the empty and of the full coalition, NaN where there is no answer; first and last in key order."""
        if not len(self.mean):
            return math.nan, math.nan
        empty = math.nan if self.coalitions[0].any() else self.mean[0]
        full = self.mean[-1] if self.coalitions[-1].all() else math.nan
        return float(empty), float(full)


class Fit(NamedTuple):
    """Values with their standard errors: 0 exact, NaN not estimated."""

    values: FloatN
    stderr: FloatN
    dof: float = math.inf
    """Degrees of freedom behind the standard errors."""
    samples: FloatN | None = None
    """float[U, n]: independent unbiased samples whose mean is ``values``, where the method has such."""


class Method(Protocol):
    """A way of estimating Shapley values; a module of three functions is one."""

    def smallest(self, n: int) -> int:
        """The least budget that gives an answer for ``n`` players."""

    def batch(self, plan: Plan, answers: Answers) -> BoolCN:
        """bool[C, n]: the coalitions to evaluate next, repeats meant as such; no rows when nothing is left to ask."""

    def fit(self, plan: Plan, answers: Answers) -> Fit:
        """Values and standard errors from the answers so far, the two ends among them."""


def nothing(n: int) -> BoolCN:
    """No coalition at all: the answer of a method that has asked for everything it needs."""
    return np.zeros((0, n), np.bool_)


def keys_of(coalitions: BoolCN) -> npt.NDArray[Any]:
    """One sortable number (n ≤ 64) or byte string a coalition; equal keys mean equal coalitions."""
    count, n = coalitions.shape
    width = -(-n // 8)
    if width > 8:
        return np.packbits(coalitions, axis=1).view(np.dtype((np.void, width))).reshape(count)
    wide = np.zeros((count, 64), np.bool_)
    wide[:, 64 - 8 * width : 64 - 8 * width + n] = coalitions
    return np.packbits(wide).view(">u8").astype(np.uint64)


def answers_of(coalitions: BoolCN, worths: FloatN, rounds: int = 0) -> Answers:
    """Gathers repeated answers; the order in which they came leaves no trace, not even in the last bit."""
    keys = keys_of(coalitions)
    order = np.argsort(keys)
    first = _starts(keys[order])
    if not first.all():
        order = np.argsort(worths, kind="stable")
        order = order[np.argsort(keys[order], kind="stable")]
    keys, worths, coalitions = keys[order], worths[order], coalitions.take(order, axis=0)
    if first.all():
        return Answers(coalitions, worths, np.ones(len(keys), np.int64), np.zeros(len(keys)), rounds, keys)
    at = np.flatnonzero(first)
    count = np.diff(np.append(at, len(keys)))
    mean = np.where(count == 1, worths[at], np.add.reduceat(worths, at) / count)
    squares = np.add.reduceat((worths - mean[np.cumsum(first) - 1]) ** 2, at)
    return Answers(coalitions[at], mean, count, squares, rounds, keys[at])


def _starts(keys: npt.NDArray[Any]) -> BoolN:
    """True where a sorted row differs from the one before it."""
    return np.append(np.ones(min(len(keys), 1), np.bool_), keys[1:] != keys[:-1])
