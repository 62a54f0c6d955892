"""Exact values against METHODS section 7, their axioms, and strict game files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macredit.errors import UserError
from macredit.values import banzhaf, loo, read_game, shapley, shapley_batch

GOLDEN = json.loads((Path(__file__).parent / "golden" / "worked.json").read_text())["derived"]["coop_games"]


def game(n: int, worth: Callable[[set[int]], float]) -> list[float]:
    return [float(worth({i for i in range(n) if mask >> i & 1})) for mask in range(2**n)]


# METHODS section 7: Shapley | Banzhaf | leave-one-out
TABLE = {
    "glove": (game(3, lambda s: 0 in s and bool(s & {1, 2})), [2 / 3, 1 / 6, 1 / 6], [0.75, 0.25, 0.25], [1, 0, 0]),
    "and3": (game(3, lambda s: len(s) == 3), [1 / 3] * 3, [0.25] * 3, [1] * 3),
    "or3": (game(3, lambda s: len(s) > 0), [1 / 3] * 3, [0.25] * 3, [0] * 3),
    "majority3": (game(3, lambda s: len(s) > 1), [1 / 3] * 3, [0.5] * 3, [0] * 3),
    "saboteur": (game(3, lambda s: 0 in s and 2 not in s), [0.5, 0, -0.5], [0.5, 0, -0.5], [0, 0, -1]),
    "airport": (game(3, lambda s: max(s, default=-1) + 1), [1 / 3, 5 / 6, 11 / 6], [0.25, 0.75, 1.75], [0, 0, 1]),
    "additive": (game(3, lambda s: sum([0.5, 0.3, 0.2][i] for i in s)), *[[0.5, 0.3, 0.2]] * 3),
    "or2": (game(2, lambda s: len(s) > 0), [0.5, 0.5], [0.5, 0.5], [0, 0]),
    "and2": (game(2, lambda s: len(s) == 2), [0.5, 0.5], [0.5, 0.5], [1, 1]),
    "free_rider": (game(3, lambda s: 0.6 * (0 in s) + 0.4 * (1 in s)), *[[0.6, 0.4, 0]] * 3),
    "never_invoked": (game(3, lambda s: 0.5 * (0 in s) + 0.3 * (1 in s)), *[[0.5, 0.3, 0]] * 3),
}


@pytest.mark.parametrize("name", TABLE)
def test_values_of_the_known_games(name: str) -> None:
    table, *expected = TABLE[name]
    for value, numbers in zip((shapley, banzhaf, loo), expected, strict=True):
        np.testing.assert_allclose(value(table), numbers, atol=1e-14)


def test_weighted_voting_of_the_golden_file() -> None:
    table = game(4, lambda s: sum([4, 2, 1, 1][i] for i in s) >= 5)
    golden = GOLDEN["weighted voting q=5 w=[4,2,1,1]"]
    for value, name in ((shapley, "shapley"), (banzhaf, "banzhaf"), (loo, "LOO(SHARP)")):
        np.testing.assert_allclose(value(table), golden[name], atol=1e-6)


def test_small_games_by_hand() -> None:
    assert shapley([2, 5])[0] == 3.0
    # orders ab and ba: a gets (1 + 4)/2 = 2.5 over v = 1, 2, 3, 7 (a first: 2−1 = 1, a last: 7−3 = 4); b (2 + 5)/2
    np.testing.assert_array_equal(shapley([1, 2, 3, 7]), [2.5, 3.5])


tables = st.integers(1, 5).flatmap(lambda n: st.lists(st.floats(-5, 5), min_size=2**n, max_size=2**n))


@given(tables)
def test_shapley_is_efficient(table: list[float]) -> None:
    assert shapley(table).sum() == pytest.approx(table[-1] - table[0], abs=1e-12)


@given(tables, st.sampled_from([shapley, banzhaf, loo]), st.floats(-3, 3))
def test_values_are_linear_and_ignore_a_dummy(table: list[float], value: Any, a: float) -> None:
    other = np.sin(np.arange(len(table)))
    np.testing.assert_allclose(value(a * np.array(table) + other), a * value(table) + value(other), atol=1e-10)
    # one more player, the last bit, that adds exactly 0.5 to every coalition
    dummy = value(np.concatenate([table, np.array(table) + 0.5]))
    np.testing.assert_allclose(dummy, [*value(table), 0.5], atol=1e-10)


@given(tables, st.sampled_from([shapley, banzhaf, loo]))
def test_values_are_symmetric(table: list[float], value: Any) -> None:
    n = len(table).bit_length() - 1
    swapped = [int(f"{mask:0{n}b}"[::-1], 2) for mask in range(2**n)]  # player i becomes player n−1−i
    np.testing.assert_allclose(value(np.array(table)[swapped]), value(table)[::-1], atol=1e-12)


def test_a_batch_is_coalition_major() -> None:
    names = ["glove", "and3", "airport"]
    tables = np.array([TABLE[name][0] for name in names]).T
    np.testing.assert_allclose(shapley_batch(tables), np.array([TABLE[name][1] for name in names]).T, atol=1e-14)


def test_torch_tensors_keep_their_gradient() -> None:
    torch = pytest.importorskip("torch")
    table = torch.tensor([0.0, 1.0, 1.0, 3.0], dtype=torch.float64, requires_grad=True)
    values = shapley(table)
    values[0].backward()
    assert values.tolist() == [1.5, 1.5]
    # phi_0 = ½ (v1 − v0) + ½ (v3 − v2)
    assert table.grad is not None
    assert table.grad.tolist() == [-0.5, 0.5, -0.5, 0.5]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([1.0, 2.0, 3.0], "a table of 3 numbers was given; expected 2\\*\\*n"),
        ([1.0], "a table of 1 numbers"),
        ([[1.0], [2.0]], r"shape \(2, 1\)"),
        ([0.0, 1.0, math.nan, 2.0], r"coalition \{1\} is not finite"),
        ([0.0, 1.0, 1.0, math.inf], r"coalition \{0, 1\} is not finite"),
        (["a", "b"], "no number"),
    ],
)
def test_tables_that_are_no_game(table: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        shapley(table)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_both_forms_of_a_game_file(tmp_path: Path) -> None:
    named = read_game(written(tmp_path / "a.json", '{"players":["a","b"],"worths":{"":0,"b":1,"a":2,"b, a":3}}'))
    assert named.players == ("a", "b")
    np.testing.assert_array_equal(named.table, [0, 2, 1, 3])
    assert named.coalition(3) == "{a, b}"
    plain = read_game(written(tmp_path / "b.json", '{"n":2,"table":[0,2,1,3]}'))
    assert plain.players == ("0", "1")
    np.testing.assert_array_equal(plain.table, named.table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[1]", r"a game is \[1\]; expected the fields players and worths, or n and table"),
        ('{"players":["a"]}', "a game is an object with players"),
        ('{"n":0,"table":[1]}', "'n' is 0"),
        ('{"n":2,"table":[0,1,2]}', r"'table' holds 3 numbers; expected 2\*\*2 = 4"),
        ('{"n":1,"table":[0,NaN]}', r"coalition \{0\} is nan"),
        ('{"n":1,"table":[0,null]}', r"coalition \{0\} is None"),
        ('{"players":[],"worths":{}}', "at least one name"),
        ('{"players":["a",1],"worths":{}}', "1 stands among the players and is no name"),
        ('{"players":["a","a"],"worths":{}}', "two players share a name"),
        ('{"players":["a,b"],"worths":{}}', "hold no comma"),
        ('{"players":["a"],"worths":{"":0,"b":1}}', "unknown player"),
        ('{"players":["a"],"worths":{"":0,"a,a":1}}', "names 'a' twice"),
        ('{"players":["a","b"],"worths":{"a,b":0,"b,a":1}}', "are the same one"),
        ('{"players":["a"],"worths":{"a":0,"a":1}}', "'a' stands twice"),
        ('{"players":["a","b"],"worths":{"":0,"a":1,"b":1}}', r"3 of 4 coalitions have a worth; \{a, b\} has none"),
        ('{"players":["a"],"worths":{"":0,"a":true}}', r"coalition \{a\} is True"),
        ('{"players":["a"],"worths":[0,1]}', "'worths' is"),
    ],
)
def test_malformed_game_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_game(written(tmp_path / "game.json", text))


def test_a_missing_game_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_game(tmp_path / "none.json")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"n": 1, "table": [0, 1' + "0" * 400 + "]}"])
def test_absurd_games_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "game.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"game\.json"):
        read_game(path)
