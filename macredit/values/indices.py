"""Every index by its name: what it is of, how it is read from a table, and what it needs of noisy scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from macredit.errors import UserError, unknown
from macredit.values.game import coalition_name
from macredit.values.graph import myerson_weights, position_weights
from macredit.values.linear import Linear
from macredit.values.masks import masks_of
from macredit.values.noisy import Design, design_of, design_of_linear, semivalue_design, shapley_design
from macredit.values.precedence import precedence_weights
from macredit.values.structure import Graph, Precedence, Structure, Unions
from macredit.values.unions import owen_banzhaf_weights, owen_weights

PLAIN = ("shapley", "banzhaf", "loo", "loi", "beta", "weighted")
PAIRS = ("sii", "k-sii", "stii", "fsii", "bii")
STRUCTURED: Mapping[str, type[Structure]] = {
    "owen": Unions, "owen-banzhaf": Unions, "myerson": Graph, "position": Graph, "precedence": Precedence,
}  # fmt: skip
SHARES = ("least-core", "nucleolus", "prenucleolus")
NAMES = (*PLAIN, *STRUCTURED, *PAIRS, "moebius", *SHARES)
"""What ``index_of`` knows; ``beta:16:1`` gives the two parameters of Beta Shapley."""


@dataclass(frozen=True)
class Index:
    """One index of games with given players."""

    name: str
    players: tuple[str, ...]
    read: Callable[[Any], Any] = field(repr=False)
    """Full table float[2**n] → float[n], float[n, n] for interactions, float[2**n] or float[links]."""
    linear: bool
    """Whether values are weighted sums of worths: then they have standard errors."""
    structure: Structure | None = None

    @property
    def labels(self) -> list[str]:
        """What each number of the flattened values is of."""
        if self.name == "position" and isinstance(self.structure, Graph):
            return [f"{a}–{b}" for a, b in self.structure.links()]
        if self.name == "moebius":
            return [coalition_name(self.players, mask) for mask in range(2 ** len(self.players))]
        if self.name in PAIRS:
            return [a if a == b else f"{a} × {b}" for a in self.players for b in self.players]
        return list(self.players)

    @property
    def needs(self) -> int:
        """How many coalitions it reads, at most."""
        if self.structure is not None:
            return len(self.structure.coalitions()) + 1
        return len(self.players) + 1 if self.name in ("loo", "loi") else int(2 ** len(self.players))

    def design(self) -> Design:
        """What it needs: a structure's few coalitions, or all that have a weight.

        Raises:
            UserError: it is not linear.
        """
        if not self.linear:
            raise UserError(f"{self.name!r} is no weighted sum of worths, so it has no standard errors")
        return self._design

    @cached_property
    def _design(self) -> Design:
        if self.structure is not None:
            return design_of_linear(_weights_of(self.name, self.structure))
        n = len(self.players)
        designs: dict[str, Callable[[], Design]] = {
            "shapley": lambda: shapley_design(n),
            "banzhaf": lambda: semivalue_design(n, [0.5 ** (n - 1)] * n),
            "loo": lambda: _one_by_one(n, leave=True),
            "loi": lambda: _one_by_one(n, leave=False),
        }
        return designs[self.name]() if self.name in designs else design_of(self.read, n)


def index_of(
    name: str,
    players: Sequence[str],
    structure: Structure | None = None,
    weights: Mapping[str, float] | None = None,
) -> Index:
    """An index by its name, for games of these players.

    Args:
        name: one of ``NAMES``, or ``beta:ALPHA:BETA``.
        players: their names.
        structure: links, unions or an order, for the indices that need one.
        weights: player → weight, for ``weighted``.

    Raises:
        UserError: an unknown name, or an index that needs a structure or weights that were not given.
    """
    kind, _, parameters = name.partition(":")
    if kind not in NAMES or (parameters and kind != "beta"):
        raise unknown("index", name, NAMES)
    if kind in STRUCTURED and not isinstance(structure, STRUCTURED[kind]):
        needed = {Unions: "unions", Graph: "edges", Precedence: "precedence"}[STRUCTURED[kind]]
        raise UserError(f"the index {kind!r} needs a structure with {needed!r}; give one in a file: --structure FILE")
    read = _reader(kind, parameters, structure, _ordered(weights, players) if kind == "weighted" else [])
    used = structure if kind in STRUCTURED else None
    return Index(name, tuple(players), read, kind not in SHARES, used)


def _reader(kind: str, parameters: str, structure: Any, weights: Sequence[float]) -> Callable[[Any], Any]:
    """Full table → values."""
    from macredit import values

    if kind == "beta":
        alpha, beta = _parameters(parameters)
        return lambda table: values.beta_shapley(table, alpha, beta)
    if kind == "weighted":
        return lambda table: values.weighted_shapley(table, weights)
    if kind in PAIRS:
        return lambda table: values.interactions(table, kind, 2)
    readers: dict[str, Callable[[Any], Any]] = {
        "shapley": values.shapley,
        "banzhaf": values.banzhaf,
        "loo": values.loo,
        "loi": values.loi,
        "owen": lambda table: values.owen(table, structure),
        "owen-banzhaf": lambda table: values.owen_banzhaf(table, structure),
        "myerson": lambda table: values.myerson(table, structure),
        "position": lambda table: np.array(list(values.position(table, structure).values())),
        "precedence": lambda table: values.precedence(table, structure),
        "moebius": values.moebius,
        "least-core": lambda table: values.least_core(table).values,
        "nucleolus": lambda table: values.nucleolus(table),
        "prenucleolus": lambda table: values.prenucleolus(table),
    }
    return readers[kind]


def _one_by_one(n: int, *, leave: bool) -> Design:
    """What each player changes where it leaves all others, v(N) − v(N without i), or joins nobody, v({i}) − v(∅)."""
    alone = np.eye(n, dtype=np.bool_)
    start = np.full((1, n), leave)
    masks = masks_of(np.concatenate([start, alone ^ leave]), n)
    matrix = np.concatenate([np.ones((n, 1)), -np.eye(n)], axis=1) * (1 if leave else -1)
    order = np.argsort(masks)
    return Design(n, masks[order], matrix[:, order])


def _weights_of(name: str, structure: Any) -> Linear:
    weights: dict[str, Callable[[Any], Linear]] = {
        "owen": owen_weights,
        "owen-banzhaf": owen_banzhaf_weights,
        "myerson": myerson_weights,
        "position": position_weights,
        "precedence": precedence_weights,
    }
    return weights[name](structure)


def _ordered(weights: Mapping[str, float] | None, players: Sequence[str]) -> list[float]:
    for name in weights or ():
        if name not in players:
            raise unknown("player", name, players)
    missing = [name for name in players if name not in (weights or {})]
    if weights is None or missing:
        raise UserError(
            f"no weight was given for {', '.join(missing)}; the index 'weighted' needs one for every player"
        )
    return [weights[name] for name in players]


def _parameters(text: str) -> tuple[float, float]:
    try:
        alpha, beta = (float(part) for part in (text or "16:1").split(":"))
    except ValueError:
        raise UserError(f"beta:{text} was given; expected two numbers, such as beta:16:1") from None
    return alpha, beta
