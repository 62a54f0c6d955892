"""Every index from the same scores: of a log, of few coalitions among many players, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from macredit.errors import UserError
from macredit.values.exact import loi, loo, shapley
from macredit.values.indices import index_of
from macredit.values.log import Log, Question
from macredit.values.scoring import Scoring, values_from_log

PLAYERS = ("a", "b")
TABLE = [0.0, 1.0, 2.0, 5.0]
QUESTIONS = [Question(tuple(p for i, p in enumerate(PLAYERS) if mask >> i & 1), 0, 7) for mask in range(4)]


class Sizes:
    """Worth: the number of players, squared; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Question] = []

    def scores(self, questions: Sequence[Question], keep: Callable[[Question, float], Any]) -> None:
        self.asked += questions
        for question in questions:
            keep(question, float(len(question.coalition) ** 2))


def log_of(repeats: int) -> Log:
    answers = {
        question._replace(task=task): worth + 0.1 * task
        for task in range(repeats)
        for question, worth in zip(QUESTIONS, TABLE, strict=True)
    }
    return Log(PLAYERS, {}, answers)


def test_every_index_is_read_from_a_log() -> None:
    found = values_from_log(log_of(1))
    np.testing.assert_allclose(found.values, shapley(TABLE))
    assert found.stderr.tolist() == [0, 0]
    log = log_of(3)
    # the mean of the repeats: TABLE + 0.1; every task moves all scores alike, which cancels in every value
    for name, expected in {"shapley": [2, 3], "loo": [3, 4], "nucleolus": [2, 3], "sii": [2, 2, 2, 3]}.items():
        np.testing.assert_allclose(values_from_log(log, name).values, expected, atol=1e-9)
    np.testing.assert_allclose(values_from_log(log).stderr, 0, atol=1e-12)
    assert np.isnan(values_from_log(log, "nucleolus").stderr).all()
    assert values_from_log(log).evaluations == 12


@pytest.mark.parametrize("index", ["shapley", "nucleolus"])
def test_an_unfinished_log_names_what_is_missing(index: str) -> None:
    log = Log(PLAYERS, {}, dict(zip(QUESTIONS[:3], TABLE, strict=False)))
    with pytest.raises(UserError, match=r"3 of 4 coalitions that are needed have a score; \{a, b\} has none"):
        values_from_log(log, index)
    assert values_from_log(log, "loi").values.tolist() == [1.0, 2.0]


def test_a_log_with_too_few_of_too_many_coalitions() -> None:
    players = tuple(f"p{i}" for i in range(40))
    log = Log(players, {}, {Question(players[:1], 0, 0): 1.0})
    for index in ("shapley", "moebius", "nucleolus"):
        with pytest.raises(UserError, match=rf"1 coalitions have a score, and {index!r} of 40 players is read from 1,"):
            values_from_log(log, index)
    with pytest.raises(UserError, match=r"1 of 41 coalitions that are needed have a score; \{\} has none"):
        values_from_log(log, "loi")


@pytest.mark.parametrize("n", [1, 2, 5])
def test_leaving_and_joining_alone_agree_with_a_table(n: int) -> None:
    table = np.random.default_rng(n).normal(size=2**n)
    for name, exact in (("loo", loo), ("loi", loi)):
        design = index_of(name, tuple(map(str, range(n)))).design()
        assert (np.diff(design.masks) > 0).all()
        np.testing.assert_allclose(design.matrix @ table[design.masks], exact(table))


@pytest.mark.parametrize("n", [40, 62])
def test_leaving_and_joining_alone_need_few_coalitions(n: int) -> None:
    players, scorer = tuple(f"p{i}" for i in range(n)), Sizes()
    indices = [index_of("loo", players), index_of("loi", players)]
    found = Scoring(players, scorer, noise=False).estimates(indices, 2 * n + 1)
    # n² − (n − 1)² and 1² − 0²; all, none, n with one and n without one
    assert found["loo"].values.tolist() == [2 * n - 1] * n
    assert found["loi"].values.tolist() == [1] * n
    assert len(scorer.asked) == 2 * n + 2


def test_too_many_players_for_masks_and_for_task_numbers() -> None:
    players = tuple(f"p{i}" for i in range(64))
    with pytest.raises(UserError, match="64 players were given; expected at most 62"):
        Scoring(players, Sizes()).estimates([index_of("loo", players)], 1000)
    loo_of_62 = index_of("loo", players[:62])
    with pytest.raises(UserError, match="more tasks than can be numbered"):
        Scoring(players[:62], Sizes()).estimates([loo_of_62], 1000)
    found = Scoring(players[:62], Sizes(), tasks=9).estimates([loo_of_62], 1000)["loo"]
    assert found.values.tolist() == [123] * 62
    assert found.evaluations == 1000
