"""A cooperative game read from a file: player names and a full table of worths."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from macredit.errors import UserError, unknown
from macredit.rows import FloatN

T = TypeVar("T")
MOST_PLAYERS = 32
"""A table of 2**32 worths fills 32 GiB."""


class Game(NamedTuple):
    """Players and what every coalition of them is worth."""

    players: tuple[str, ...]
    table: FloatN
    """float[2**n]; bit i of the index says whether player i is in."""

    def coalition(self, mask: int) -> str:
        """The coalition of an index as readable text."""
        return coalition_name(self.players, mask)


def coalition_name(players: tuple[str, ...], mask: int) -> str:
    """``{a, b}`` for the players whose bits are set."""
    return "{" + ", ".join(name for i, name in enumerate(players) if mask >> i & 1) + "}"


def read_game(path: str | os.PathLike[str]) -> Game:
    """A game from ``{"players": […], "worths": {"": 0, "a": 1, …}}`` or ``{"n": …, "table": [2**n numbers]}``.

    Raises:
        UserError: the file is missing, is not JSON, or does not hold exactly one number for every coalition.
    """
    return read_json(path, "game", game_from_json)


def read_json(path: str | os.PathLike[str], kind: str, meaning: Callable[[Any], T]) -> T:
    """What a JSON file means.

    Args:
        path: the file.
        kind: what it holds, in errors.
        meaning: what the data mean.

    Raises:
        UserError: the file is missing or is not JSON, a field stands twice, or ``meaning`` refuses it; names the file.
    """
    try:
        return meaning(json.loads(Path(path).read_text("utf-8"), object_pairs_hook=_no_repeats))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); expected a {kind} file (JSON)") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error}); expected a {kind} object") from None


def game_from_json(data: Any) -> Game:
    """A game from its JSON object; see :func:`read_game`."""
    if isinstance(data, Mapping) and set(data) == {"players", "worths"}:
        return _from_worths(data["players"], data["worths"])
    if isinstance(data, Mapping) and set(data) == {"n", "table"}:
        return _from_table(data["n"], data["table"])
    given = f"an object with {', '.join(data) or 'no fields'}" if isinstance(data, Mapping) else repr(data)[:60]
    raise UserError(f"a game is {given}; expected the fields players and worths, or n and table")


def _no_repeats(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON keeps the last of two equal keys silently; here a coalition has one worth, and a structure one field."""
    once: dict[str, Any] = {}
    for name, value in fields:
        if name in once:
            raise UserError(f"{name!r} stands twice in one object; expected it once")
        once[name] = value
    return once


def _from_worths(players: Any, worths: Any) -> Game:
    if not isinstance(players, list) or not players:
        raise UserError(f"'players' is {repr(players)[:60]}; expected a list of at least one name")
    for player in players:
        if not isinstance(player, str):
            raise UserError(f"{repr(player)[:60]} stands among the players and is no name; put names in quotes")
    names = tuple(p.strip() for p in players)
    if len(set(names)) != len(names):
        raise UserError(f"two players share a name in {list(names)}; give each its own name")
    if any("," in name or not name for name in names):
        raise UserError(f"players are {list(names)}; expected names that are not empty and hold no comma")
    if len(names) > MOST_PLAYERS:
        raise UserError(
            f"{len(names)} players were given; expected at most {MOST_PLAYERS}, each coalition with a worth"
        )
    if not isinstance(worths, Mapping):
        raise UserError(f"'worths' is {repr(worths)[:60]}; expected an object from coalitions such as 'a,b' to numbers")
    table = np.full(2 ** len(names), np.nan)
    seen: dict[int, str] = {}
    for key, worth in worths.items():
        mask = _mask(key, names)
        if mask in seen:
            raise UserError(f"coalitions {seen[mask]!r} and {key!r} are the same one; expected one worth for each")
        seen[mask] = key
        table[mask] = _worth(worth, coalition_name(names, mask))
    missing = [mask for mask in range(len(table)) if mask not in seen]
    if missing:
        raise UserError(
            f"{len(seen)} of {len(table)} coalitions have a worth; {coalition_name(names, missing[0])} has none; "
            "add the missing ones"
        )
    return Game(names, table)


def _mask(key: str, names: tuple[str, ...]) -> int:
    members = [part.strip() for part in key.split(",")] if key.strip() else []
    for member in members:
        if member not in names:
            raise unknown(f"player (in coalition {key!r})", member, names)
        if members.count(member) > 1:
            raise UserError(f"coalition {key!r} names {member!r} twice; expected each player once")
    return sum(1 << names.index(member) for member in members)


def _from_table(n: Any, table: Any) -> Game:
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MOST_PLAYERS:
        raise UserError(f"'n' is {n!r}; expected a number of players from 1 to {MOST_PLAYERS}")
    if not isinstance(table, list) or len(table) != 2**n:
        given = f"{len(table)} numbers" if isinstance(table, list) else repr(table)[:60]
        raise UserError(f"'table' holds {given}; expected 2**{n} = {2**n} of them")
    names = tuple(str(i) for i in range(n))
    return Game(names, np.array([_worth(worth, coalition_name(names, mask)) for mask, worth in enumerate(table)]))


def _worth(worth: Any, coalition: str) -> float:
    if not isinstance(worth, int | float) or isinstance(worth, bool) or not abs(worth) <= sys.float_info.max:
        raise UserError(f"the worth of coalition {coalition} is {repr(worth)[:60]}; expected a finite number")
    return float(worth)
