"""Choosing the next pairs: the largest drop of total variance, in whole batches, within the budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from macredit.values import choosing
from macredit.values.answers import BoolCN, Plan, answers_of, keys_of, nothing
from macredit.values.estimation import estimate
from macredit.values.odd_kernels import Additive, Joint
from macredit.values.process import Data, Posterior, Prior
from macredit.values.session import Session

N = 5
ALL = np.where(np.arange(2 ** (N - 1))[:, None] >> np.arange(N) & 1, 1.0, -1.0)[1:]  # each pair by one member


def posterior(x: np.ndarray) -> Posterior:
    prior = Prior([Additive(N), Joint(N, 2.0)], np.array([0.0, 0.5, -1.0, 0.4, 0.1, -0.3, 0.8, 0.2, 0.0]))
    return Posterior(prior, Data(x, np.zeros(len(x)), np.zeros(len(x)), 1.0))


def test_each_choice_leaves_the_least_variance() -> None:
    asked = np.vstack([ALL[:2], np.ones(N)])
    order = choosing.chosen(posterior(asked), ALL[2:], 4)
    for best in order:
        left = [posterior(np.vstack([asked, row])).variance.sum() for row in ALL[2:]]
        assert left[best] == pytest.approx(min(left), rel=1e-5)
        asked = np.vstack([asked, ALL[2:][best]])
    assert len(set(order)) == 4


def worths(coalitions: BoolCN) -> Any:
    return coalitions @ np.arange(1.0, 9) + 3.0 * coalitions[:, :3].all(axis=1) - 2.0 * coalitions[:, 4:6].any(axis=1)


def test_batches_spend_the_budget_on_different_pairs() -> None:
    plan, asked = Plan(8, 101), nothing(8)
    batches: list[BoolCN] = []
    while len(batch := choosing.batch(plan, answers_of(asked, worths(asked), len(batches)))):
        batches.append(batch)
        asked = np.concatenate([asked, batch])
    # 49 pairs: 40, 60, 80 and 100 % of them rounded up are 20, 30, 40 and 49; the ends come first
    assert [len(batch) for batch in batches] == [2 + 40, 20, 20, 18]
    assert len(np.unique(keys_of(asked))) == len(asked) == 100
    np.testing.assert_array_equal(asked[2::2], ~asked[3::2])
    np.testing.assert_array_equal(asked[:2].sum(axis=1), [0, 8])


@pytest.mark.parametrize("pairs", [1, 2])
def test_the_smallest_budgets(pairs: int) -> None:
    session = Session(8, 2 + 2 * pairs, method="gaussian")
    while len(batch := session.ask()):
        session.tell(batch, worths(batch))
    assert session.evaluations == 2 + 2 * pairs
    assert session.estimate().values.sum() == pytest.approx(36 + 3 - 2)


def test_missing_ends_are_no_obstacle_to_asking() -> None:
    session = Session(8, 60, method="gaussian", on_nan="drop")
    while len(batch := session.ask()):
        session.tell(batch, np.where(batch.any(axis=1), worths(batch), np.nan))
    assert session.evaluations == 60


@pytest.mark.slow
def test_chosen_pairs_tell_more_than_drawn_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        task = rng.random((24, 12)) < 0.25
        share = rng.dirichlet(np.ones(24))
        truth = (share / np.maximum(task.sum(axis=1), 1)) @ task

        def covered(coalitions: BoolCN) -> Any:
            return (coalitions.astype(int) @ task.T > 0) @ share  # noqa: B023

        error = []
        for most in (choosing.MOST_CHOSEN, 0):
            monkeypatch.setattr(choosing, "MOST_CHOSEN", most)
            error.append(float(((estimate(covered, 12, 90, seed).values - truth) ** 2).sum()))
            monkeypatch.undo()
        ratios.append(error[0] / error[1])
    assert np.exp(np.mean(np.log(ratios))) < 0.7
