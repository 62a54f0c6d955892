"""Players that join and leave together share their group's value."""

from __future__ import annotations

from typing import Any

import numpy as np

from macredit.values.answers import BoolCN
from macredit.values.estimation import estimate


def test_groups_by_hand() -> None:
    # groups {0, 3}, {1}, {2}: v = 1 if both of 0 and 3 are there, + 2 if 1 is: their values 1, 2, 0, the first shared
    def game(coalitions: BoolCN) -> Any:
        return coalitions[:, 0] * coalitions[:, 3] + 2.0 * coalitions[:, 1]

    found = estimate(game, 4, 8, groups=[[0, 3], [1], [2]])
    np.testing.assert_allclose(found.values, [0.5, 2, 0, 0.5], atol=1e-12)
    np.testing.assert_array_equal(found.stderr, 0)
    assert (found.method, found.evaluations) == ("grouped", 8)


def test_many_groups_by_the_gaussian_process() -> None:
    groups = [[2 * i, 2 * i + 1] for i in range(40)]

    def game(coalitions: BoolCN) -> Any:
        whole = coalitions[:, 0::2]
        assert (whole == coalitions[:, 1::2]).all()
        return whole @ np.arange(40.0)

    found = estimate(game, 80, 300, groups=groups)
    np.testing.assert_allclose(found.values, np.repeat(np.arange(40.0), 2) / 2, atol=1e-8)


def test_one_group_of_everybody() -> None:
    np.testing.assert_allclose(estimate(lambda c: 3.0 * c.all(axis=1) + 1, 6, 2, groups=[range(6)]).values, 0.5)
