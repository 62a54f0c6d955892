"""Values of cooperative games: what each player of a coalition game is worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from macredit.errors import unknown
from macredit.values.exact import banzhaf, loo, shapley, shapley_batch
from macredit.values.game import Game, read_game

__all__ = ["INDICES", "Game", "banzhaf", "loo", "read_game", "shapley", "shapley_batch", "values_of"]

INDICES: dict[str, Callable[[Any], Any]] = {"shapley": shapley, "banzhaf": banzhaf, "loo": loo}


def values_of(index: str, table: Any) -> list[float]:
    """Values of a table of worths by the name of an index.

    Raises:
        UserError: an unknown index, or a table that is no game.
    """
    if index not in INDICES:
        raise unknown("index", index, INDICES)
    return [float(value) for value in INDICES[index](table)]
