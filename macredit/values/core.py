"""Core, least core and nucleolus: shares that no coalition wants to leave, by linear programs in stages.

The excess of a coalition S at shares x is what it could earn on its own beyond its shares,
e(S, x) = v(S) − v(∅) − Σ_{i∈S} x_i, over all S but ∅ and N. Positive: S has a reason to leave. Shares sum to
v(N) − v(∅). In teams: no group of agents created more than it is credited with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import linprog

from macredit.errors import OutsideError, UserError
from macredit.rows import FloatN
from macredit.values.masks import members_of, sums
from macredit.values.structure import Player, Players, named
from macredit.values.table import as_table, not_finite

TOLERANCE = 1e-9
"""Of an excess, relative to the range of the worths."""
FLAT = 1e-7
"""Dual prices and changes below this are none; real ones are larger by far."""


@dataclass(frozen=True, slots=True)
class CoreCheck:
    """Whether shares are in the core; true if so."""

    inside: bool
    coalition: tuple[Player, ...] | None
    """The coalition with the largest excess if it has a reason to leave (all players: the shares miss the total)."""
    excess: float
    """What that coalition is short of; at most the tolerance inside."""

    def __bool__(self) -> bool:
        return self.inside


@dataclass(frozen=True, slots=True)
class LeastCore:
    """The smallest largest excess, and shares that reach it."""

    excess: float
    """ε = min_x max_S e(S, x). At most 0: the core is not empty, and every coalition gets |ε| more than it could earn
    alone. Above 0: the core is empty, and ε would have to be paid to each coalition to keep it. 0 for one player."""
    values: FloatN
    """float[n]: shares that reach ε, one choice where there are several; the nucleolus is the symmetric one."""

    @property
    def subsidy(self) -> float:
        """What it costs to keep every coalition from leaving: max(ε, 0); 0 whenever the core is not empty."""
        return max(self.excess, 0.0)


def in_core(table: Any, values: Any, tolerance: float = TOLERANCE) -> CoreCheck:
    """Whether Σ x_i = v(N) − v(∅) and no coalition could earn more alone: e(S, x) ≤ 0 for all S (Gillies 1959).

    Args:
        table: float[2**n] worths, as in :func:`~macredit.values.shapley`.
        values: float[n] shares.
        tolerance: of an excess, relative to the range of the worths.

    Raises:
        UserError: no game, or not one finite number for every player.
    """
    worths, scale, players = _centred(table)
    shares = np.asarray(values, np.float64) / scale
    if shares.shape != (len(players),) or not np.isfinite(shares).all():
        raise UserError(f"shares {values!r} were given; expected a finite number for each of {len(players)} players")
    missed = float(worths[-1] - shares.sum())
    if abs(missed) > tolerance:
        return CoreCheck(False, players, missed * scale)
    excess = _excess(worths, shares)[:-1]
    worst = int(excess.argmax())
    if excess[worst] <= tolerance:
        return CoreCheck(True, None, float(excess[worst]) * scale)
    return CoreCheck(False, tuple(who for i, who in enumerate(players) if worst >> i & 1), float(excess[worst]) * scale)


def least_core(table: Any) -> LeastCore:
    """The least core: shares with the smallest largest excess, a linear program (Maschler, Peleg and Shapley 1979).

    Args:
        table: float[2**n] worths, as in :func:`~macredit.values.shapley`; up to about 20 players.

    Raises:
        UserError: no game.
    """
    worths, scale, players = _centred(table)
    shares = np.full(len(players), worths[-1] / len(players))
    if len(players) == 1:
        return LeastCore(0.0, shares * scale)
    shares, _ = _lower(worths, shares, _steady(np.ones((1, len(shares)))), None)
    return LeastCore(float(_excess(worths, shares)[1:-1].max()) * scale, shares * scale)


def nucleolus(table: Any) -> FloatN:
    """The nucleolus: of all shares with x_i ≥ v(i) − v(∅), those whose excesses, largest first, are smallest.

    Unique, symmetric, efficient, and in the core whenever there is one (Schmeidler 1969).

    Args:
        table: float[2**n] worths, as in :func:`~macredit.values.shapley`; up to about 20 players.

    Returns:
        float[n].

    Raises:
        UserError: no game, or players who earn more apart than together (then see :func:`prenucleolus`).
    """
    worths, scale, players = _centred(table)
    alone = worths[1 << np.arange(len(players))]
    surplus = worths[-1] - alone.sum()
    if surplus < -TOLERANCE:
        raise UserError(
            f"the players earn {alone.sum() * scale:g} apart and {worths[-1] * scale:g} together, so no shares give "
            "each what it earns alone; use `prenucleolus`, which does not ask for that"
        )
    return scale * _nucleolus(worths, alone + surplus / len(players), alone)


def prenucleolus(table: Any) -> FloatN:
    """The nucleolus among all shares that sum to v(N) − v(∅), even below what a player earns alone (Sobolev 1975).

    Args:
        table: float[2**n] worths, as in :func:`~macredit.values.shapley`; up to about 20 players.

    Returns:
        float[n].

    Raises:
        UserError: no game.
    """
    worths, scale, players = _centred(table)
    return scale * _nucleolus(worths, np.full(len(players), worths[-1] / len(players)), None)


def _nucleolus(worths: FloatN, shares: FloatN, alone: FloatN | None) -> FloatN:
    """Maschler's scheme: lower the largest excess, pin whatever is largest in every solution, go on with the rest."""
    directions = _steady(np.ones((1, len(shares))))
    while directions.shape[1]:
        shares, pinned = _lower(worths, shares, directions, alone)
        directions = directions @ _steady(pinned @ directions)
    return shares


def _lower(worths: FloatN, shares: FloatN, directions: FloatN, alone: FloatN | None) -> tuple[FloatN, FloatN]:
    """Moves shares along ``directions`` until the largest excess that can change is smallest.

    The linear program starts with few coalitions; those above its solution enter it until there are none.

    Returns:
        float[n] shares, and float[K, n] groups of players whose sum is the same in every solution: those with a
        positive dual price.
    """
    n, everyone = len(shares), len(worths) - 1
    free = np.flatnonzero(sum(sums(column) ** 2 for column in directions.T) > FLAT**2)
    excess = _excess(worths, shares)
    asked, above = np.zeros(0, np.int64), free[np.argsort(-excess[free], kind="stable")]
    while len(above):
        new = above[: 4 * n]
        asked = np.union1d(asked, np.concatenate([new, everyone - new]))  # complements keep the program bounded
        groups, limits = members_of(asked, n).astype(np.float64), -excess[asked]
        if alone is not None:
            groups, limits = np.vstack([groups, np.eye(n)]), np.concatenate([limits, np.maximum(shares - alone, 0)])
        move, level, price = _program(groups @ directions, limits, len(asked))
        moved = shares + directions @ move
        now, rest = _excess(worths, moved), np.setdiff1d(free, asked)
        rest = rest[now[rest] > level + TOLERANCE]
        above = rest[np.argsort(-now[rest], kind="stable")]
    return moved, groups[price > FLAT]


def _program(gains: FloatN, limits: FloatN, coalitions: int) -> tuple[FloatN, float, FloatN]:
    """Minimises ε over moves y: −gains y ≤ limits + ε for the first rows, the coalitions; ≤ limits for the others.

    Returns:
        y, ε, and the dual price of every row.
    """
    eps = (np.arange(len(gains)) < coalitions)[:, None]
    solved = linprog(
        np.eye(gains.shape[1] + 1)[-1],
        A_ub=-np.hstack([gains, eps]),
        b_ub=limits,
        bounds=(None, None),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if solved.x is None:
        raise OutsideError(f"the linear program of the core failed: {solved.message}")
    return solved.x[:-1], float(solved.x[-1]), -solved.ineqlin.marginals


def _excess(worths: FloatN, shares: FloatN) -> FloatN:
    return np.asarray(worths - sums(shares))


def _steady(rows: FloatN) -> FloatN:
    """float[n, r]: directions in which no row's sum changes."""
    return null_space(rows, rcond=FLAT)


def _centred(table: Any) -> tuple[FloatN, float, Players]:
    """Worths with v(∅) = 0 and range 1, the range, and the players."""
    game = as_table(table)
    worths = np.asarray(game.worths if game.native else [float(worth) for worth in game.worths], np.float64)
    if not np.isfinite(worths).all():
        raise not_finite(game)
    scale = float(np.ptp(worths)) or 1.0
    return (worths - worths[0]) / scale, scale, named(game.names or game.n)
