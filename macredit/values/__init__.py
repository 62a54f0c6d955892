"""Values of cooperative games: what each player of a coalition game is worth.

Exact from a table of 2^n worths, from just the coalitions that a structure needs, or estimated from a budget of
evaluations; noise allowed.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from macredit.values.exact import banzhaf, beta_shapley, loi, loo, semivalue, shapley, shapley_batch
from macredit.values.game import Game, read_game
from macredit.values.game_file import read_game_file
from macredit.values.graph import myerson, position
from macredit.values.interactions import interactions
from macredit.values.moebius import moebius, worths_of
from macredit.values.precedence import precedence
from macredit.values.price import price
from macredit.values.structure import Graph, Precedence, Unions, required_coalitions
from macredit.values.structure_file import read_structure
from macredit.values.table import as_table
from macredit.values.unions import owen, owen_banzhaf
from macredit.values.weighted import weighted_shapley

if TYPE_CHECKING:
    from macredit.values.core import in_core, least_core, nucleolus, prenucleolus
    from macredit.values.estimation import estimate
    from macredit.values.log import LogFile, read_log
    from macredit.values.scoring import values_from_log
    from macredit.values.session import Estimate, Session
    from macredit.values.stopping import Ranking, Sign, Width

__all__ = [
    "Estimate",
    "Game",
    "Graph",
    "LogFile",
    "Precedence",
    "Ranking",
    "Session",
    "Sign",
    "Unions",
    "Width",
    "as_table",
    "banzhaf",
    "beta_shapley",
    "estimate",
    "exact_values",
    "in_core",
    "interactions",
    "least_core",
    "loi",
    "loo",
    "moebius",
    "myerson",
    "nucleolus",
    "owen",
    "owen_banzhaf",
    "position",
    "precedence",
    "prenucleolus",
    "price",
    "read_game",
    "read_game_file",
    "read_log",
    "read_structure",
    "required_coalitions",
    "semivalue",
    "shapley",
    "shapley_batch",
    "values_from_log",
    "weighted_shapley",
    "worths_of",
]


_WHEN_USED = {
    "in_core": "core", "least_core": "core", "nucleolus": "core", "prenucleolus": "core", "estimate": "estimation",
    "LogFile": "log", "read_log": "log", "values_from_log": "scoring", "Estimate": "session", "Session": "session",
    "Ranking": "stopping", "Sign": "stopping", "Width": "stopping",
}  # fmt: skip
"""Name → file; SciPy's statistics and linear programs and Numba take seconds to load."""


def __getattr__(name: str) -> Any:
    if name not in _WHEN_USED:
        raise AttributeError(f"module 'macredit.values' has no attribute {name!r}")
    return getattr(importlib.import_module(f"macredit.values.{_WHEN_USED[name]}"), name)


def exact_values(players: Sequence[str], table: Any) -> dict[str, dict[str, float]]:
    """``shapley``, ``banzhaf`` and ``loo`` of a table: index → player → value; empty without players."""
    indices = {"shapley": shapley, "banzhaf": banzhaf, "loo": loo} if players else {}
    return {name: dict(zip(players, map(float, index(table)), strict=True)) for name, index in indices.items()}
