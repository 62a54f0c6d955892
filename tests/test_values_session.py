"""Ask and tell: any order, any parts, any restart gives the same estimate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from macredit.errors import UserError
from macredit.values.answers import BoolCN, answers_of, keys_of
from macredit.values.session import Session
from macredit.values.stopping import Width

Game = Callable[[BoolCN], Any]


def wavy(coalitions: BoolCN) -> Any:
    """A game with interactions of every order."""
    return np.cos(coalitions @ np.arange(1.0, coalitions.shape[1] + 1)) + coalitions[:, 0]


def finished(session: Session, game: Game = wavy) -> Session:
    while len(batch := session.ask()):
        session.tell(batch, game(batch))
    return session


@pytest.mark.parametrize("method", ["gaussian", "leverage", "permutation", "stratified"])
def test_parts_in_any_order_give_the_same_estimate(method: str) -> None:
    expected = finished(Session(7, 60, 3, method=method)).estimate()
    rng = np.random.default_rng(0)
    session = Session(7, 60, 3, method=method)
    while len(batch := session.ask()):
        some = rng.permutation(len(batch))[: rng.integers(1, len(batch) + 1)]
        session.tell(batch[some], wavy(batch[some]))
    got = session.estimate()
    np.testing.assert_array_equal(got.values, expected.values)
    np.testing.assert_array_equal(got.stderr, expected.stderr)
    assert got.evaluations == expected.evaluations <= 60


def test_ask_again_gives_the_same_rows_until_they_are_answered() -> None:
    session = Session(6, 20, method="leverage")
    batch = session.ask()
    np.testing.assert_array_equal(session.ask(), batch)
    session.tell(batch[:5], wavy(batch[:5]))
    np.testing.assert_array_equal(session.ask(), batch[5:])


@pytest.mark.parametrize("stop", [None, Width(1e-9)])
def test_a_log_told_first_resumes_where_it_ended(stop: Any) -> None:
    first = Session(7, 100, 1, method="permutation", stop=stop)
    batch = first.ask()
    first.tell(batch[:8], wavy(batch[:8]))
    second = Session(7, 100, 1, method="permutation", stop=stop)
    second.tell(batch[:8], wavy(batch[:8]))
    np.testing.assert_array_equal(second.ask(), first.ask())
    np.testing.assert_array_equal(finished(second).estimate().values, finished(first).estimate().values)


def test_answers_nobody_asked_for_count_and_are_used() -> None:
    session = Session(3, 8)
    everything = np.array([[i & 1, i >> 1 & 1, i >> 2] for i in range(8)], bool)
    session.tell(everything, wavy(everything))
    assert len(session.ask()) == 0
    assert session.estimate().method == "exact"
    assert session.evaluations == 8


def test_more_answers_than_the_budget_are_refused() -> None:
    session = Session(3, 6, method="leverage")
    batch = session.ask()
    session.tell(batch, wavy(batch))
    with pytest.raises(UserError, match="7 answers were told; expected at most the budget of 6"):
        session.tell(batch[:1], wavy(batch[:1]))


def test_repeated_answers_are_averaged_whatever_their_order() -> None:
    rows = np.array([[True, False], [False, True], [True, False], [True, False]])
    worths = np.array([0.1, 5.0, 0.2, 0.4])
    answers = answers_of(rows, worths)
    # {0}: mean (0.1 + 0.2 + 0.4) / 3 = 7/30; squares (4² + 1² + 5²) / 30² = 42/900 = 0.14/3
    np.testing.assert_allclose(answers.worths(rows), [7 / 30, 5.0, 7 / 30, 7 / 30])
    assert answers.noise == pytest.approx(0.14 / 3 / 2)
    assert answers.evaluations == 4
    turned = answers_of(rows[::-1], worths[::-1])
    np.testing.assert_array_equal(turned.mean, answers.mean)
    np.testing.assert_array_equal(turned.squares, answers.squares)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 63, 64, 65, 130])
def test_keys_are_equal_only_for_equal_coalitions(n: int) -> None:
    rows = np.random.default_rng(n).random((200, n)) < 0.5
    same = (rows[:, None] == rows).all(axis=2)
    keys = keys_of(rows)
    np.testing.assert_array_equal(keys[:, None] == keys, same)
    np.testing.assert_array_equal(answers_of(rows, np.arange(200.0)).find(rows) >= 0, True)


def test_an_estimate_needs_both_ends() -> None:
    session = Session(4, 10, method="leverage")
    with pytest.raises(UserError, match="nobody or of everybody is missing"):
        session.estimate()


@pytest.mark.parametrize(
    ("coalitions", "worths", "message"),
    [
        (np.ones((2, 4), bool), [1.0, 2.0], r"shape \(2, 4\).*expected bool\[C, 3\]"),
        (np.full((1, 3), 2), [1.0], r"expected bool\[C, 3\]"),
        (np.ones((2, 3), bool), [1.0], r"an array of shape \(1,\); expected \(2,\)"),
        (np.ones((2, 3), bool), [[1.0], [2.0]], r"an array of shape \(2, 1\); expected \(2,\)"),
        (np.ones((1, 3), bool), ["many"], "expected 1 numbers"),
    ],
)
def test_answers_of_a_wrong_shape_are_named(coalitions: Any, worths: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Session(3, 6, method="leverage").tell(coalitions, worths)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n": 0}, "n is 0; expected a whole number from 1"),
        ({"n": 2.5}, "n is 2.5"),
        ({"budget": 10.0}, r"the budget is 10\.0; expected a whole number"),
        ({"seed": "a"}, "the seed is 'a'"),
        ({"on_nan": "ignore"}, "on_nan is 'ignore'; expected raise, retry or drop"),
        ({"worth_range": (1, 0)}, r"worth_range is \(1, 0\); expected the lowest and the highest"),
        ({"worth_range": 3}, "worth_range is 3"),
        ({"method": "shapely"}, "unknown method 'shapely'"),
        ({"groups": [[0, 1], [1, 2]]}, "expected lists that hold every player 0 to 3 once"),
        ({"method": "grouped"}, "groups and 'grouped' go together"),
        ({"method": "leverage", "groups": [[0, 1], [2, 3]]}, "groups and 'grouped' go together"),
    ],
)
def test_settings_that_cannot_be_meant(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Session(**{"n": 4, "budget": 12, **settings})
