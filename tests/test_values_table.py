"""Games in every form: one table of worths, no copy where none is needed, one sentence where it is no game."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from macredit.errors import UserError
from macredit.values.game import Game
from macredit.values.table import as_table

WORTHS = [0.0, 1.0, 2.0, 4.0]


class Frame:
    """A data frame as far as it matters: named columns."""

    def __init__(self, **columns: list[Any]) -> None:
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]


@pytest.mark.parametrize(
    "table",
    [
        WORTHS,
        tuple(WORTHS),
        [0, 1, 2, 4],
        np.array(WORTHS),
        np.array([0, 1, 2, 4], np.int16),
        np.array(WORTHS, ">f8"),
        np.array([WORTHS, WORTHS]).T[:, 0],
        Game(("a", "b"), np.array(WORTHS)),
        {"": 0, "a": 1, "b": 2, "b, a": 4},
        {(): 0, ("a",): 1, ("b",): np.float32(2), frozenset("ab"): np.int64(4)},
        {frozenset(): 0, 7: 1, 8: 2, (8, 7): 4},
        Frame(coalition=["a,b", "", "a", "b"], worth=[4, 0, 1, 2]),
        Frame(coalition=[math.nan, ("a",), ["b"], {"a", "b"}], worth=WORTHS),
    ],
)
def test_every_form_of_a_game(table: Any) -> None:
    game = as_table(table)
    assert game.n == 2
    assert game.native
    assert game.worths.dtype == np.float64
    assert game.worths.dtype.isnative
    np.testing.assert_array_equal(game.worths, WORTHS)
    assert as_table(game) is game


def test_players_keep_their_names_in_the_order_of_their_own_coalitions() -> None:
    assert as_table({"z,b": 3, "": 0, "z": 2, "b": 1}).players == ("z", "b")
    assert as_table({(): 0, 11: 1, 2: 1, (2, 11): 3}).players == ("11", "2")
    assert as_table(WORTHS).players == ("0", "1")


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_arrays_and_memory_maps_are_not_copied(tmp_path: Path, kind: type[np.floating[Any]]) -> None:
    array = np.arange(8, dtype=kind)
    assert as_table(array).worths is array
    array.tofile(tmp_path / "worths")
    mapped = np.memmap(tmp_path / "worths", kind, "r")
    assert np.shares_memory(as_table(mapped).worths, mapped)
    assert as_table(mapped).worths.dtype == kind


def test_torch_tensors_stay_what_they_are() -> None:
    torch = pytest.importorskip("torch")
    game = as_table(torch.tensor([0, 1, 2, 4]))
    assert not game.native
    assert game.worths.dtype == torch.float32
    assert as_table(torch.tensor(WORTHS, requires_grad=True)).worths.requires_grad


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([], r"a table of 0 numbers was given; expected 2\*\*n of them for n ≥ 1"),
        ([1.0], "a table of 1 numbers"),
        ([1.0, 2.0, 3.0], "a table of 3 numbers"),
        (np.zeros((4, 1)), r"shape \(4, 1\) was given; expected one row of 2\*\*n numbers"),
        ([[1.0], [2.0, 3.0]], "rows of different lengths"),
        (["a", "b"], "the table holds <U1 and no numbers; expected 2"),
        ([1.0, 2j], "the table holds complex128"),
        ([{}, 1.0], "no number"),
        ({"": 0, "a": 1, "a,b": 2}, "unknown player"),
        ({"": 0, "a": 1, "b": 2}, r"\{a, b\} has none"),
        ({"": 0, "a": 1, ("a",): 2}, "'a' was given twice"),
        ({"": 0, "a": math.inf}, r"coalition \{a\} is inf"),
        (Frame(coalition=["", "a"], value=[0, 1]), r"columns \['coalition', 'value'\].*expected coalition and worth"),
        (Frame(coalition=["", "a", "a"], worth=[0, 1, 2]), "'a' was given twice"),
    ],
)
def test_tables_that_are_no_game(table: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        as_table(table)
