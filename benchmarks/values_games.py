"""Families of games whose Shapley values are known exactly at any number of players; NumPy alone, for any interpreter.

Every worth lies near [0, 1] or sums a few numbers of that size. ``CELLS`` are the settings estimators are compared in.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

FloatN = npt.NDArray[np.float64]
BoolCN = npt.NDArray[np.bool_]
WorthsOf = Callable[[BoolCN], FloatN]

CELLS = ((10, 100), (10, 500), (16, 100), (16, 1_000), (16, 10_000), (30, 100), (30, 1_000), (30, 10_000))
"""(players, budget); times three families: 24 cells."""


class Game:
    """A game that counts its evaluations and the seconds they took, with its exact values."""

    def __init__(self, n: int, worths_of: WorthsOf, shapley: FloatN) -> None:
        self.n, self.shapley = n, shapley
        self.evaluations, self.seconds = 0, 0.0
        self._worths_of = worths_of

    def __call__(self, coalitions: Any) -> FloatN:
        """Worths float[C] of coalitions bool[C, n]; one coalition bool[n] counts as C = 1."""
        start = time.perf_counter()
        rows = np.atleast_2d(np.asarray(coalitions)).astype(np.bool_)
        worths = self._worths_of(rows)
        self.evaluations += len(rows)
        self.seconds += time.perf_counter() - start
        return worths

    def error(self, values: Any) -> float:
        """Squared error of an estimate relative to the squared length of the values."""
        return float(((np.asarray(values) - self.shapley) ** 2).sum() / (self.shapley**2).sum())


def make(family: str, n: int, seed: int) -> Game:
    """One game of a family."""
    return FAMILIES[family](n, np.random.default_rng([seed, n, *family.encode()]))


def table_of(game: Game) -> FloatN:
    """float[2**n]: all worths; bit i of the index says whether player i is in."""
    return np.concatenate([game(rows) for rows in np.array_split(coalitions_of(game.n), max(1, 2**game.n >> 14))])


def coalitions_of(n: int) -> BoolCN:
    """bool[2**n, n] in the order of a table."""
    return (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(np.bool_)


def unanimity(n: int, rng: np.random.Generator) -> Game:
    """v(S) = Σ_k a_k [T_k ⊆ S] of 3 n random teams T_k: each member of a team gets a_k / |T_k|."""
    teams, weight = _teams(n, 3 * n, rng), rng.uniform(-1, 1, 3 * n)
    size = teams.sum(axis=1)
    return Game(n, lambda rows: (rows @ teams.T >= size) @ weight, (weight / size) @ teams)


def coverage(n: int, rng: np.random.Generator) -> Game:
    """v(S) = Σ_k a_k [T_k ∩ S ≠ ∅] over 3 n tasks with a few able players each: they share a_k equally."""
    teams, weight = _teams(n, 3 * n, rng), rng.dirichlet(np.ones(3 * n))
    return Game(n, lambda rows: np.minimum((rows @ teams.T > 0) @ weight, 1.0), (weight / teams.sum(axis=1)) @ teams)


def curve(n: int, rng: np.random.Generator) -> Game:
    """Success rises with the sum of skills, some negative, along a logistic curve."""
    skill = rng.integers(1, 21, n)
    skill = np.where(rng.random(n) < 0.2, -(skill // 2), skill)
    total = max(skill[skill > 0].sum(), 1)
    return _of_sums(n, skill, lambda x: 1 / (1 + np.exp(-(x - 0.5 * total) / (0.12 * total))))


def vote(n: int, rng: np.random.Generator) -> Game:
    """A weighted vote: 1 once the weights reach 60 % of all."""
    weight = rng.integers(1, 21, n)
    return _of_sums(n, weight, lambda x: (x >= 0.6 * weight.sum()).astype(float))


def any_of(n: int, rng: np.random.Generator) -> Game:
    """v(S) = 1 − Π_{i∈S} (1 − p_i): somebody solves it. φ_i = ∫ p_i Π_{j≠i} (1 − t p_j) dt, a polynomial in t."""
    chance = rng.beta(1, 4, n)
    at, weight = _nodes(n)
    missed = 1 - at[:, None] * chance
    shapley = chance * (weight[:, None] * missed.prod(axis=1, keepdims=True) / missed).sum(axis=0)
    return Game(n, lambda rows: 1 - np.where(rows, 1 - chance, 1.0).prod(axis=1), shapley)


def pairs(n: int, rng: np.random.Generator) -> Game:
    """Solver and checker: a pair k succeeds with chance p_k if both are there; v(S) is the chance that some pair does.

    φ_i = ∫ p_k t Π_{l≠k} (1 − p_l t²) dt for both of pair k; without a partner a player adds nothing.
    """
    order, chance = rng.permutation(n), rng.beta(1, 2, n // 2)
    first, second = order[0 : n - 1 : 2], order[1::2]
    at, weight = _nodes(n)
    missed = 1 - at[:, None] ** 2 * chance
    each = chance * ((weight * at)[:, None] * missed.prod(axis=1, keepdims=True) / missed).sum(axis=0)
    shapley = np.zeros(n)
    shapley[first] = shapley[second] = each
    return Game(n, lambda rows: 1 - np.where(rows[:, first] & rows[:, second], 1 - chance, 1.0).prod(axis=1), shapley)


def team(n: int, rng: np.random.Generator) -> Game:
    """Sub-teams of at most 16 that must all succeed; each logistic in skills, pairs and teams of three to six.

    The multilinear extension of a product over disjoint sub-teams is the product of theirs, so that
    φ_i = ∫ ∂f_k/∂x_i (t) Π_{l≠k} f_l(t) dt for a player i of sub-team k, and each factor comes from 2^16 worths.
    """
    parts = np.array_split(np.arange(n), -(-n // 16))
    chances = [_logistic(len(part), rng) for part in parts]
    at, weight = _nodes(n)
    extended = [_diagonal(chance, len(part), at) for chance, part in zip(chances, parts, strict=True)]
    product = np.prod([level for level, _ in extended], axis=0)
    shapley = np.concatenate([slope @ (weight * product / level) for level, slope in extended])

    def worths(rows: BoolCN) -> FloatN:
        won = [chance(rows[:, part]) for chance, part in zip(chances, parts, strict=True)]
        return np.asarray(np.prod(won, axis=0))

    return Game(n, worths, shapley)


FAMILIES: dict[str, Callable[[int, np.random.Generator], Game]] = {
    "any_of": any_of,
    "coverage": coverage,
    "curve": curve,
    "pairs": pairs,
    "team": team,
    "unanimity": unanimity,
    "vote": vote,
}
MAIN = ("unanimity", "curve", "team")
OTHERS = ("coverage", "vote", "pairs")


def _teams(n: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """float[count, n] of 0 and 1: random members, sizes spread evenly from 1 to n."""
    rank = rng.random((count, n)).argsort(axis=1).argsort(axis=1)
    return (rank < rng.integers(1, n + 1, count)[:, None]).astype(float)


def _nodes(n: int) -> tuple[FloatN, FloatN]:
    """Points and weights on [0, 1] that integrate a polynomial of degree n exactly."""
    at, weight = np.polynomial.legendre.leggauss(n // 2 + 1)
    return (at + 1) / 2, weight / 2


def _logistic(n: int, rng: np.random.Generator) -> WorthsOf:
    """1 / (1 + exp(−z)) with skills, one of them 0, pair effects, and n bonuses for teams of three to six."""
    skill = rng.normal(0.6, 0.6, n)
    skill[rng.integers(n)] = 0.0
    pair = np.triu(rng.normal(0, 0.5, (n, n)) * (rng.random((n, n)) < 0.3), 1)
    size = rng.integers(min(3, n), min(6, n) + 1, n)
    teams = (rng.random((n, n)).argsort(axis=1).argsort(axis=1) < size[:, None]).astype(float)
    bonus = rng.normal(0, 1, n)
    base = -0.5 * (skill.sum() + pair.sum() / 2)

    def chance(rows: BoolCN) -> FloatN:
        x = rows.astype(float)
        z = base + x @ skill + ((x @ pair) * x).sum(axis=1) + (x @ teams.T >= size) @ bonus
        return np.asarray(1 / (1 + np.exp(-z)))

    return chance


def _diagonal(chance: WorthsOf, n: int, at: FloatN) -> tuple[FloatN, FloatN]:
    """f(t, …, t) float[T] and every ∂f/∂x_i there float[n, T], f the expected worth when each is in with chance t."""
    rows = coalitions_of(n)
    worth, size = chance(rows), rows.sum(axis=1)
    by_size = np.bincount(size, worth, n + 1)
    with_i = np.stack([np.bincount(size[rows[:, i]], worth[rows[:, i]], n + 1) for i in range(n)])
    power = at[:, None] ** np.arange(n + 1) * (1 - at)[:, None] ** np.arange(n, -1, -1)  # one coalition of each size
    level = power @ by_size
    inside = with_i @ (power / at[:, None]).T
    outside = (by_size - with_i) @ (power / (1 - at)[:, None]).T
    return level, inside - outside


def _of_sums(n: int, weight: npt.NDArray[np.int64], worth: Callable[[Any], FloatN]) -> Game:
    """v(S) = worth(Σ_{i∈S} w_i) for whole weights: φ from counts of coalitions by (size, sum)."""
    low, high = int(weight[weight < 0].sum()), int(weight[weight > 0].sum())
    at = worth(np.arange(low, high + 1).astype(float))
    share = np.array([1 / (n * math.comb(n - 1, size)) for size in range(n)])
    shapley = np.empty(n)
    for i in range(n):
        count = np.zeros((n, len(at)))
        count[0, -low] = 1
        for w in np.delete(weight, i):
            count[1:] += _shifted(count[:-1], int(w))
        shapley[i] = share @ count @ (_shifted(at, -int(weight[i])) - at)
    return Game(n, lambda rows: worth(rows @ weight.astype(float)), shapley)


def _shifted(x: FloatN, by: int) -> FloatN:
    """Entries moved ``by`` places to the right; what comes in from the edge meets counts of 0 only."""
    return np.roll(x, by, axis=-1)
