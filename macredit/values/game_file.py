"""Games from files of any form: JSON, CSV, NPY (memory-mapped, never unpickled) and Parquet."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from macredit.errors import UserError, missing_extra, unknown
from macredit.values.game import MOST_PLAYERS, Game, game_from_json, read_game

FORMS = (".json", ".csv", ".npy", ".parquet")


def read_game_file(path: str | os.PathLike[str]) -> Game:
    """A game by the end of its file's name.

    - ``.json``: see :func:`read_game`.
    - ``.csv``, ``.parquet``: the columns ``coalition`` (players, with commas) and ``worth``, or 2**n worths alone.
    - ``.npy``: float[2**n], bit i of the index says whether player i is in; stays on disk.

    Raises:
        UserError: the file is missing, of another form, or holds no game.
    """
    path = Path(path)
    form = path.suffix.lower()
    if form not in FORMS:
        raise unknown("form of a game file", form or path.name, FORMS)
    if form == ".json":
        return read_game(path)
    if not path.is_file():
        raise UserError(f"{path}: is no file; expected a game file ({form})")
    try:
        return {".csv": _from_csv, ".npy": _from_npy, ".parquet": _from_parquet}[form](path)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); expected a game file ({form})") from None


def _from_csv(path: Path) -> Game:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file, strict=True) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"not CSV ({error}); expected the columns coalition and worth") from None
    if not rows:
        raise UserError("is empty; expected the columns coalition and worth, or one column of 2**n worths")
    header = [name.lower() for name in rows[0]]
    if header == ["coalition", "worth"]:
        return _from_pairs(*_columns(rows[1:]))
    if len(header) == 1:
        named = _number(rows[0][0]) is None
        return _from_worths([row[0] if len(row) == 1 else ",".join(row) for row in rows[named:]])
    raise UserError(f"the columns are {', '.join(rows[0])[:60]}; expected coalition and worth, or one column of worths")


def _columns(rows: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    for number, row in enumerate(rows, start=2):
        if len(row) != 2:
            raise UserError(
                f'row {number} has {len(row)} cells; expected 2: quote a coalition that has commas, "a,b",3'
            )
    return [row[0] for row in rows], [row[1] for row in rows]


def _from_npy(path: Path) -> Game:
    try:
        table = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise UserError(f"not a plain NPY array ({error}); expected float[2**n] written by numpy.save") from None
    if not isinstance(table, np.ndarray) or table.dtype.kind not in "fiu" or table.ndim != 1:
        given = f"{table.dtype} of shape {table.shape}" if isinstance(table, np.ndarray) else "an archive"
        raise UserError(f"{given} was given; expected one row of 2**n numbers")
    return Game(_numbered(len(table)), table)


def _from_parquet(path: Path) -> Game:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        raise missing_extra("pyarrow", "tables") from None
    try:
        columns: Mapping[str, Any] = parquet.read_table(path).to_pydict()
    except ArrowInvalid as error:
        raise UserError(f"not Parquet ({str(error).partition('.')[0]}); expected coalition and worth") from None
    if set(columns) == {"coalition", "worth"}:
        return _from_pairs([_joined(cell) for cell in columns["coalition"]], columns["worth"])
    if len(columns) == 1:
        return _from_worths(next(iter(columns.values())))
    raise UserError(f"the columns are {', '.join(columns)[:60]}; expected coalition and worth, or one column of worths")


def _joined(cell: Any) -> str:
    return cell if isinstance(cell, str) else ",".join(cell or ())


def _from_pairs(coalitions: Sequence[str], worths: Sequence[Any]) -> Game:
    """A game from coalitions by name; players in the order in which they first appear."""
    numbers = [_number(worth) for worth in worths]
    players: dict[str, None] = {}
    table: dict[str, Any] = {}
    for coalition, number, given in zip(coalitions, numbers, worths, strict=True):
        if coalition in table:
            raise UserError(f"the coalition {coalition!r} stands twice; expected one worth for each")
        table[coalition] = given if number is None else number
        players.update(dict.fromkeys(name.strip() for name in coalition.split(",") if name.strip()))
    if not players:
        raise UserError("no coalition names a player; expected all 2**n coalitions, the empty one among them")
    return game_from_json({"players": list(players), "worths": table})


def _from_worths(worths: Sequence[Any]) -> Game:
    names = _numbered(len(worths))
    numbers = [_number(worth) for worth in worths]
    wrong = next((i for i, number in enumerate(numbers) if number is None), None)
    if wrong is not None:
        raise UserError(f"worth {wrong} is {worths[wrong]!r}; expected a number")
    return Game(names, np.array(numbers, np.float64))


def _numbered(length: int) -> tuple[str, ...]:
    """Names 0, 1, … for the players of a table."""
    n = length.bit_length() - 1
    if n < 1 or length != 2**n or n > MOST_PLAYERS:
        raise UserError(f"{length} worths were given; expected 2**n of them for 1 to {MOST_PLAYERS} players")
    return tuple(map(str, range(n)))


def _number(given: Any) -> float | None:
    try:
        return float(given)
    except (TypeError, ValueError):
        return None
