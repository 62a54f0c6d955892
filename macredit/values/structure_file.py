"""A structure read from a file: links, unions or an order between the players of a game."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from macredit.errors import UserError
from macredit.values.game import read_json
from macredit.values.structure import Graph, Player, Precedence, Structure, Unions

FIELDS: dict[str, type[Structure]] = {"edges": Graph, "unions": Unions, "precedence": Precedence}
"""What a structure file may hold."""


def read_structure(path: str | os.PathLike[str], players: Sequence[Player]) -> Structure:
    """A structure from ``{"edges": [["a", "b"], …]}``, ``{"unions": [["a", "b"], ["c"]]}`` or ``{"precedence": […]}``.

    ``["boss", "a"]`` in ``precedence`` says that boss must be there before a.

    Raises:
        UserError: the file is missing, is not JSON, or does not fit the players; links must join all of them.
    """
    return read_json(path, "structure", lambda data: structure_from_json(data, players))


def structure_from_json(data: Any, players: Sequence[Player]) -> Structure:
    """A structure from its JSON object; see :func:`read_structure`."""
    if not isinstance(data, Mapping) or len(data) != 1 or not set(data) <= set(FIELDS):
        given = f"the fields {', '.join(data) or 'none'}" if isinstance(data, Mapping) else repr(data)[:60]
        raise UserError(f"a structure holds {given}; expected an object with exactly one of {', '.join(FIELDS)}")
    field, value = next(iter(data.items()))
    if not isinstance(value, list):
        raise UserError(f"{field!r} is {repr(value)[:60]}; expected a list of lists of players")
    structure = FIELDS[field].of(value, players)
    if isinstance(structure, Graph) and len(parts := structure.parts()) > 1:
        raise UserError(
            f"no links lead from {parts[0][0]!r} to {parts[1][0]!r}, so what all players earn together would count for "
            "nothing; add a link, or value each part as a game of its own"
        )
    return structure
