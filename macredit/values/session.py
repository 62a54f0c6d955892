"""Ask and tell: what to evaluate next, so that rollouts can run anywhere, in any order, and resume after a crash.

The whole state is the list of batches asked for and the list of answers; every estimate is computed from those.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from macredit.errors import UserError
from macredit.rows import FloatN, IntN
from macredit.values.answers import Answers, BoolCN, Plan, answers_of, keys_of, nothing
from macredit.values.given import coalitions_of, groups_of, named, span, whole, worths_of
from macredit.values.ladder import METHODS, choose
from macredit.values.stopping import Stop, anytime_interval, student_interval

OnNaN = Literal["raise", "retry", "drop"]


@dataclass(frozen=True)
class Estimate:
    """Values of a game from some of its coalitions."""

    values: FloatN
    """float[n]."""
    stderr: FloatN
    """float[n]: 0 exact, NaN not estimated."""
    evaluations: int
    """Evaluations made, repeated and failed ones included; never more than the budget."""
    distinct: int
    """Different coalitions among them."""
    method: str
    """Which estimator was used."""
    why: str
    """Why that one, in words."""
    dof: float = math.inf
    """Degrees of freedom behind the standard errors."""
    samples: FloatN | None = field(default=None, repr=False)
    """float[U, n]: independent unbiased samples whose mean is ``values``, where the method has such."""
    span: float | None = None
    """Highest minus lowest possible worth, where it was given."""
    looks: int = 1
    """How often the values could have been looked at so far: batches asked for."""

    def interval(self, level: float = 0.95, *, anytime: bool = False) -> FloatN:
        """float[n, 2]: each player's value lies inside with this probability.

        Args:
            level: the probability.
            anytime: whether it must hold however the moment to stop was chosen. With samples and a known range of
                worths this is exact, with samples alone asymptotic; else each look spends its share of the error.
        """
        if anytime and self.samples is not None:
            return anytime_interval(self.samples, self.span, level)
        share = self.looks * (self.looks + 1) if anytime else 1
        return student_interval(self.values, self.stderr, self.dof, 1 - (1 - level) / share)


class Session:
    """One estimation as questions and answers.

    ``while len(batch := session.ask()): session.tell(batch, worths_of(batch))``, then ``session.estimate()``. A batch
    may be answered in parts, in any order, and by an earlier run's answers told before the first question. ``ask``
    called twice gives the same rows again until they are answered.

    Args:
        n: players.
        budget: the most evaluations, repeated ones included.
        seed: fixes every random choice.
        method: a name in ``METHODS``, or ``auto``.
        noise: whether a coalition's worth differs from one evaluation to the next.
        on_nan: what a worth that is NaN or infinite does: ``raise`` names the coalition, ``retry`` asks again within
            the budget, ``drop`` goes on without it.
        stop: when to stop before the budget is spent.
        worth_range: lowest and highest possible worth, where they are known.
        groups: players that join and leave together (method ``grouped``).

    Raises:
        UserError: a setting that cannot be meant, or a budget too small, with the smallest one that will do.
    """

    def __init__(
        self,
        n: int,
        budget: int,
        seed: int = 0,
        *,
        method: str = "auto",
        noise: bool = False,
        on_nan: OnNaN = "raise",
        stop: Stop | None = None,
        worth_range: tuple[float, float] | None = None,
        groups: Any = None,
    ) -> None:
        if on_nan not in ("raise", "retry", "drop"):
            raise UserError(f"on_nan is {on_nan!r}; expected raise, retry or drop")
        self.plan = Plan(
            whole("n", n, 1),
            whole("the budget", budget),
            whole("the seed", seed),
            noise,
            span(worth_range),
            groups_of(groups, n),
            blocks=stop is not None,
        )
        self.method, self.why = choose(method, self.plan)
        self._on_nan, self._stop = on_nan, stop
        self._asked = nothing(n)
        self._rounds = 0
        self._told: list[tuple[BoolCN, FloatN]] = []
        self._gathered: tuple[tuple[int, int, bool], Answers] | None = None
        self.evaluations = 0
        """Answers told so far, failed ones included."""

    def ask(self) -> BoolCN:
        """bool[C, n]: the coalitions to evaluate next; no rows when the session is over."""
        left = self.plan.budget - self.evaluations
        while left > 0:
            waiting = self._waiting()
            if len(waiting):
                return waiting[:left]
            if self._settled():
                break
            batch = METHODS[self.method].batch(self.plan, self._answers(whole_batches=True))
            if not len(batch):
                break
            if len(self._asked) + len(batch) > self.plan.budget:
                raise RuntimeError(f"{self.method} asks for more than its budget of {self.plan.budget}")
            self._asked = np.concatenate([self._asked, batch]) if self._rounds else batch
            self._rounds += 1
        return nothing(self.plan.n)

    def tell(self, coalitions: Any, worths: Any) -> None:
        """Answers: bool[C, n] coalitions and float[C] worths.

        Raises:
            UserError: shapes that do not fit, more answers than the budget, or a worth that is no finite number.
        """
        rows = coalitions_of(coalitions, self.plan.n)
        numbers = worths_of(worths, len(rows))
        if self.evaluations + len(rows) > self.plan.budget:
            raise UserError(
                f"{self.evaluations + len(rows)} answers were told; expected at most the budget of {self.plan.budget}"
            )
        bad = ~np.isfinite(numbers)
        if bad.any() and self._on_nan == "raise":
            first = int(np.flatnonzero(bad)[0])
            raise UserError(
                f"the worth of coalition {named(rows[first])} is {numbers[first]}; expected a finite number, "
                "or on_nan='retry' or 'drop'"
            )
        self.evaluations += len(rows)
        if self._on_nan == "retry":
            rows, numbers = rows[~bad], numbers[~bad]
        self._told.append((rows, numbers))

    def estimate(self) -> Estimate:
        """Values from everything told so far.

        Raises:
            UserError: the worth of nobody or of everybody is still missing.
        """
        answers = self._answers()
        if np.isnan(answers.ends()).any():
            raise UserError("the worth of nobody or of everybody is missing; tell both before asking for an estimate")
        fit = METHODS[self.method].fit(self.plan, answers)
        return Estimate(
            fit.values,
            fit.stderr,
            self.evaluations,
            len(answers.mean),
            self.method,
            self.why,
            fit.dof,
            fit.samples,
            self.plan.span,
            max(self._rounds, 1),
        )

    def _all_told(self) -> tuple[BoolCN, FloatN]:
        if len(self._told) > 1:
            rows, numbers = zip(*self._told, strict=True)
            self._told = [(np.concatenate(rows), np.concatenate(numbers))]
        return self._told[0] if self._told else (nothing(self.plan.n), np.zeros(0))

    def _waiting(self) -> BoolCN:
        """bool[C, n]: the coalitions asked for without an answer; the j-th request takes the j-th answer."""
        rows, _ = self._all_told()
        if self._in_turn(rows):
            return self._asked[len(rows) :].copy()
        before, answers = _ranks(self._asked, rows)
        return self._asked[before >= answers]

    def _answers(self, *, whole_batches: bool = False) -> Answers:
        """Everything told, or only the answers to what was asked (so that extra answers do not steer the design)."""
        rows, numbers = self._all_told()
        fewer = whole_batches and not self._in_turn(rows)
        known = (self.evaluations, self._rounds, fewer)
        if self._gathered is None or self._gathered[0] != known:
            keep = np.isfinite(numbers)
            if fewer:
                before, requests = _ranks(rows, self._asked)
                keep &= before < requests
            if not keep.all():
                rows, numbers = rows[keep], numbers[keep]
            self._gathered = known, answers_of(rows, numbers, self._rounds)
        return self._gathered[1]

    def _in_turn(self, rows: BoolCN) -> bool:
        """Whether the answers told are those to the first coalitions asked for, in their order."""
        return np.array_equal(rows, self._asked[: len(rows)])

    def _settled(self) -> bool:
        return self._stop is not None and self._rounds > 0 and self._stop.settled(self.estimate())


def visits_of(asked: Iterable[Hashable], before: Counter[Hashable]) -> list[int]:
    """How often each was asked for before, counted in ``before`` from batch to batch; 0 at first."""
    visits = []
    for one in asked:
        visits.append(before[one])
        before[one] += 1
    return visits


def _ranks(rows: BoolCN, others: BoolCN) -> tuple[IntN, IntN]:
    """For each row: how many equal rows come before it, and how many of ``others`` equal it."""
    unique, code = np.unique(np.concatenate([keys_of(rows), keys_of(others)]), return_inverse=True)
    mine = code[: len(rows)]
    order = np.argsort(mine, kind="stable")
    starts = np.searchsorted(mine[order], mine[order])
    before = np.empty(len(rows), np.int64)
    before[order] = np.arange(len(rows)) - starts
    return before, np.bincount(code[len(rows) :], minlength=len(unique))[mine]
