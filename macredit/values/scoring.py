"""Score a game within a budget, then read every index from the same scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from macredit.errors import UserError
from macredit.rows import FloatN, IntN
from macredit.seeds import generator
from macredit.values.allocation import next_scores, stages, task_of
from macredit.values.crossed import crossed_fit, together
from macredit.values.indices import Index, index_of
from macredit.values.log import MOST_TASKS, Log, LogFile, Question
from macredit.values.masks import masks_of, members_of
from macredit.values.noisy import Design, clustered_fit, complete, linear_fit, summary
from macredit.values.session import Estimate, Session, visits_of

MOST_SCORED = 2**16
"""Coalitions; where an index needs more, not each of them is scored."""


class Scorer(Protocol):
    """Whatever scores coalitions, such as :class:`~macredit.values.command.CommandGame`."""

    def scores(self, questions: Sequence[Question], keep: Callable[[Question, float], Any]) -> None:
        """Hand the score of each question to ``keep``, in any order."""


@dataclass
class Scoring:
    """A game with its players, who scores it, and where the scores are kept."""

    players: tuple[str, ...]
    scorer: Scorer
    seed: int = 0
    tasks: int | None = None
    """How many tasks there are; None: a fresh one for each score of a pair of a coalition and its complement."""
    noise: bool = True
    """Whether a score differs from one evaluation to the next."""
    log: LogFile | None = None
    tick: Callable[[], Any] = lambda: None
    """Called after each evaluation."""
    _known: dict[Question, float] = field(default_factory=dict, init=False, repr=False)

    def estimates(self, indices: Sequence[Index], budget: int) -> dict[str, Estimate]:
        """Index → estimate, from at most ``budget`` evaluations; those in the log count but are not made again.

        Raises:
            UserError: a budget too small for an index, with the smallest that will do.
        """
        least = max(index.needs for index in indices)
        if budget < least or least > MOST_SCORED:
            return {"shapley": self._sampled(indices, budget, least)}
        scores = Log(self.players, {}, self._every(needed(indices), budget))
        return {index.name: estimate_of(index, scores, noise=self.noise) for index in indices}

    def _every(self, design: Design, budget: int) -> dict[Question, float]:
        """Scores of all coalitions of a design; those that matter most get most of them.

        For an odd value coalitions are scored in pairs, and what counts is how much their differences vary.
        """
        found: dict[Question, float] = {}
        times: Counter[Hashable] = Counter()
        units, members = (design.half, 2) if design.odd else (design, 1)
        masks, worths = np.zeros(0, np.int64), np.zeros(0)
        sizes = stages(len(units.masks), budget // members) if self.noise else [len(units.masks)]
        for size in sizes:
            so_far = summary(units, masks, worths)
            more = next_scores(units, so_far, size, self.seed)
            ask = np.repeat(units.masks, more)
            visit = np.array(visits_of(ask.tolist(), times), np.int64)
            both = np.concatenate([ask, 2**design.n - 1 - ask])[: members * len(ask)]
            questions = self._questions(both, np.tile(visit, members), together(design))
            answers = np.array(self._answers(questions))
            found.update(zip(questions, answers.tolist(), strict=True))
            worth = answers[: len(ask)]
            masks = np.append(masks, ask)
            worths = np.append(worths, worth - answers[len(ask) :] if design.odd else worth)
        return found

    def _sampled(self, indices: Sequence[Index], budget: int, least: int) -> Estimate:
        """Shapley values from fewer evaluations than there are coalitions."""
        other = next((index.name for index in indices if index.name != "shapley"), None)
        if other is not None:
            raise UserError(
                f"a budget of {budget:,} was given for {other!r}, which needs each of {least:,} coalitions (at most "
                f"{MOST_SCORED:,}); raise it, or ask for 'shapley' alone, which can be estimated from fewer"
            )
        n = len(self.players)
        session = Session(n, budget, self.seed, noise=self.noise)
        times: Counter[Hashable] = Counter()
        while len(rows := session.ask()):
            masks = masks_of(rows, n)
            questions = self._questions(masks, np.array(visits_of(masks.tolist(), times)))
            session.tell(rows, np.array(self._answers(questions)))
        return session.estimate()

    def _questions(self, masks: IntN, visit: IntN, together: int = 1) -> list[Question]:
        """The evaluation of each visit of a coalition: the same task and replicate bring the same seed to all."""
        n, most = len(self.players), int(visit.max(initial=0)) + 1
        if self.tasks is None and most * 2 ** (n - 1) > MOST_TASKS:
            raise UserError(
                f"{n} players and {most} scores of one coalition were asked for, which has more tasks than can be "
                "numbered; say how many tasks there are (--tasks)"
            )
        tasks, replicates = task_of(masks, visit, n, self.tasks, self.seed, together)
        pairs, at = np.unique(np.stack([tasks, replicates]), axis=1, return_inverse=True)
        seeds = [int(generator("score", self.seed, int(t), int(r)).integers(2**31)) for t, r in pairs.T]
        present = members_of(masks, n)
        return [
            Question(tuple(name for name, there in zip(self.players, row, strict=True) if there), int(t), seeds[i])
            for row, t, i in zip(present, tasks, at.ravel(), strict=True)
        ]

    def _answers(self, questions: Sequence[Question]) -> list[float]:
        """Scores in the order of the questions, from the log where they are there."""
        known = self._known if self.log is None else self.log.known

        def keep(question: Question, score: float) -> None:
            if self.log is None:
                known[question] = score
            else:
                self.log.append(question, score)
            self.tick()

        self.scorer.scores([question for question in questions if question not in known], keep)
        return [known[question] for question in questions]


def needed(indices: Sequence[Index]) -> Design:
    """The coalitions that any of the indices needs (all where one is not linear), weighted as the first linear one is.

    The budget is spent for that one; the others are read from the same scores.
    """
    n = len(indices[0].players)
    designs = [index.design() for index in indices if index.linear]
    masks = np.unique(np.concatenate([design.masks for design in designs])) if designs else np.zeros(0, np.int64)
    if len(designs) < len(indices):
        masks = np.arange(2**n)
    first = designs[0] if designs else Design(n, masks, np.eye(2**n))
    matrix = np.zeros((len(first.matrix), len(masks)))
    matrix[:, np.searchsorted(masks, first.masks)] = first.matrix
    return Design(n, masks, matrix)


def estimate_of(index: Index, log: Log, *, noise: bool) -> Estimate:
    """An index from logged scores, flattened; NaN standard errors where it is not linear.

    Of an odd index whose coalitions share tasks with others it is :func:`crossed_fit`, a little biased; else the mean
    scores are read, without bias, and standard errors are clustered by task.

    Raises:
        UserError: a coalition that is needed has no score.
    """
    n, coalitions = len(log.players), log.coalitions()
    masks, scores = masks_of(coalitions, n), log.scores()
    distinct = len(np.unique(masks))
    if index.needs > max(distinct, MOST_SCORED):
        raise UserError(
            f"{distinct:,} coalitions have a score, and {index.name!r} of {n} players is read from {index.needs:,}; "
            "ask for one that needs fewer, such as 'loo', or estimate 'shapley' with --game and this log"
        )
    how = ("allocated", "scored as often as it matters") if noise else ("exact", "each coalition scored once")
    if index.linear:
        design = index.design()
        complete(design.masks, masks, log.players)
        used = np.isin(masks, design.masks)
        masks, tasks, worths = masks[used], log.tasks()[used], scores[used]
        if noise and (crossed := crossed_fit(design, masks, tasks, worths)) is not None:
            how = ("crossed", "each pair of coalitions scored as often as it matters, compared on shared tasks")
            fit = crossed
        elif noise:
            fit = clustered_fit(design, masks, tasks, worths)
        else:
            fit = linear_fit(design, summary(design, masks, worths), noise=False)
        return Estimate(fit.values, fit.stderr, len(scores), distinct, *how, dof=fit.dof)
    complete(np.arange(2**n), masks, log.players)
    table = np.bincount(masks, scores) / np.bincount(masks)
    values: FloatN = np.asarray(index.read(table), np.float64).ravel()
    stderr = np.full(len(values), np.nan if noise else 0.0)
    return Estimate(values, stderr, len(scores), distinct, *how, dof=np.inf)


def values_from_log(log: Log, index: str | Index = "shapley", *, noise: bool | None = None) -> Estimate:
    """An index of a logged game with standard errors; see :func:`estimate_of`.

    Args:
        log: its evaluations.
        index: a name, or an :func:`index_of` these players where a structure or weights are needed.
        noise: whether scores differ from one evaluation to the next; None: whether any coalition was scored twice.

    Returns:
        Values are flattened where the index has more than one axis.

    Raises:
        UserError: a coalition that the index needs has no score.
    """
    if noise is None:
        noise = len({question.coalition for question in log.answers}) < len(log.answers)
    return estimate_of(index_of(index, log.players) if isinstance(index, str) else index, log, noise=noise)
