"""Games in JSON, CSV, NPY and Parquet, and what bad files get."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from macredit.errors import UserError
from macredit.values.exact import shapley
from macredit.values.game_file import read_game_file


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_the_same_game_in_every_form(tmp_path: Path) -> None:
    table = [0.0, 1.0, 2.0, 5.0]
    pairs = 'coalition,worth\n,0\na,1\nb,2\n"a,b",5\n'
    games = [
        read_game_file(written(tmp_path / "g.json", '{"players":["a","b"],"worths":{"":0,"a":1,"b":2,"a,b":5}}')),
        read_game_file(written(tmp_path / "g.csv", pairs)),
        read_game_file(written(tmp_path / "bom.csv", "\ufeff" + pairs.replace("coalition", "Coalition"))),
    ]
    for game in games:
        assert game.players == ("a", "b")
        np.testing.assert_array_equal(game.table, table)
    column = read_game_file(written(tmp_path / "c.csv", "worth\n0\n1\n2\n5\n"))
    bare = read_game_file(written(tmp_path / "d.csv", "0\n1\n2\n5\n"))
    np.save(tmp_path / "g.npy", table)
    stored = read_game_file(tmp_path / "g.npy")
    for game in (column, bare, stored):
        assert game.players == ("0", "1")
        np.testing.assert_array_equal(game.table, table)
    assert isinstance(stored.table, np.memmap)
    np.testing.assert_array_equal(shapley(stored.table), [2, 3])


def test_integers_in_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "g.npy", np.array([0, 1, 2, 5], np.int32))
    np.testing.assert_array_equal(shapley(read_game_file(tmp_path / "g.npy").table), [2, 3])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("g.csv", "", "is empty"),
        ("g.csv", "a,b,c\n1,2,3\n", "the columns are a, b, c"),
        ("g.csv", "coalition,worth\n,0\na,1\nb,2\na,b,5\n", 'row 5 has 3 cells; expected 2: quote .* "a,b",3'),
        ("g.csv", "coalition,worth\n,0\na,x\n", r"coalition \{a\} is 'x'; expected a finite number"),
        ("g.csv", "coalition,worth\n,0\na,nan\n", r"coalition \{a\} is nan"),
        ("g.csv", "coalition,worth\n,0\na,1\na,2\n", "the coalition 'a' stands twice"),
        ("g.csv", 'coalition,worth\n,0\na,1\nb,1\n"a,b",1\n"b,a",1\n', "are the same one"),
        ("g.csv", "coalition,worth\n,0\na,1\nb,1\n", "3 of 4 coalitions have a worth"),
        ("g.csv", "coalition,worth\n,0\n", "no coalition names a player"),
        ("g.csv", "0\n1\n2\n", r"3 worths were given; expected 2\*\*n"),
        ("g.csv", "0\n1\n2\nx\n", "worth 3 is 'x'; expected a number"),
        ("g.csv", 'coalition,worth\n"a,0\n', "not CSV"),
        ("g.npy", "text", "not a plain NPY array"),
        ("g.txt", "", "unknown form of a game file '.txt'; expected one of .csv, .json, .npy, .parquet"),
        ("game", "", "unknown form of a game file 'game'"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_game_file(written(tmp_path / name, text))


def test_missing_files_and_folders(tmp_path: Path) -> None:
    for name in ("none.csv", "none.npy", "none.json"):
        with pytest.raises(UserError, match=name):
            read_game_file(tmp_path / name)
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(UserError, match="is no file"):
        read_game_file(tmp_path / "folder.npy")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "g.npy", np.array([0, None]), allow_pickle=True)
    with pytest.raises(UserError, match="not a plain NPY array"):
        read_game_file(tmp_path / "g.npy")
    (tmp_path / "p.npy").write_bytes(pickle.dumps([0.0, 1.0]))
    with pytest.raises(UserError, match="not a plain NPY array"):
        read_game_file(tmp_path / "p.npy")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 1)), r"float64 of shape \(4, 1\) was given"),
        (np.zeros(4, complex), "complex128"),
        (np.zeros(3), r"3 worths were given; expected 2\*\*n"),
        (np.zeros(1), "1 worths were given"),
    ],
)
def test_arrays_that_are_no_game(tmp_path: Path, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "g.npy", array)
    with pytest.raises(UserError, match=message):
        read_game_file(tmp_path / "g.npy")


def test_an_archive_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "g.npy").open("wb") as file:
        np.savez(file, a=np.zeros(2))
    with pytest.raises(UserError, match="an archive was given"):
        read_game_file(tmp_path / "g.npy")


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "g.parquet"
    parquet.write_table(pyarrow.table({"coalition": ["", "a", "b", "a,b"], "worth": [0, 1, 2, 5]}), path)
    assert read_game_file(path).table.tolist() == [0, 1, 2, 5]
    parquet.write_table(pyarrow.table({"coalition": [[], ["a"], ["b"], ["b", "a"]], "worth": [0, 1, 2, 5]}), path)
    assert read_game_file(path).table.tolist() == [0, 1, 2, 5]
    parquet.write_table(pyarrow.table({"worth": [0, 1, 2, 5]}), path)
    assert read_game_file(path).players == ("0", "1")
    parquet.write_table(pyarrow.table({"worth": [0], "x": [1], "y": [2]}), path)
    with pytest.raises(UserError, match="the columns are worth, x, y"):
        read_game_file(path)
    with pytest.raises(UserError, match="not Parquet"):
        read_game_file(written(path, "text"))


def test_parquet_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UserError, match=r'pip install "macredit\[tables\]"'):
        read_game_file(written(tmp_path / "g.parquet", ""))
