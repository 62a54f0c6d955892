"""Critics: what a message is worth, learned from the returns of episodes that went through messages like it.

A critic answers q(context, message) for a :class:`Move`. What was never said is asked about like what was; a critic of
contexts alone is one that learns from moves without a reply. Here are the contract, and a critic in numpy alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from macredit.learn.learner import State
from macredit.moves import Move, Values
from macredit.rows import BoolN, FloatN, IntN

Quality = dict[str, float | None]
"""``loss`` and ``explained_variance`` of predictions made before their returns were seen."""

FloatND = npt.NDArray[np.float64]
Ids = tuple[int, ...]
MEMORY = 0.9
"""What a return counts for at each later fit: the policies that earned it move on."""


@runtime_checkable
class Modelled(Protocol):
    """A policy with a model of this process to read."""

    module: Any
    """A Hugging Face causal model, or a PEFT model around one."""
    adapter: str | None
    """The policy's own adapter on it; None: the whole module is the policy's."""


class Reads(Protocol):
    """Reads a policy's model, here or in another process."""

    @property
    def width(self) -> int:
        """Of its hidden states."""

    @property
    def known(self) -> int:
        """How many ids it knows."""

    def states(self, asked: Sequence[Ids]) -> FloatND:
        """float[A, width]: the last hidden state at the last id of each of A different sequences."""
        ...


@runtime_checkable
class Readable(Protocol):
    """A policy that is in another process."""

    def reader(self) -> Reads | None:
        """Reads its model; None: its critic is a table.

        Raises:
            UserError: it has a model that cannot be read.
        """
        ...


class Critic(Values, Protocol):
    """Values that are learned."""

    def fit(self, moves: Sequence[Move], returns: FloatN, weight: FloatN) -> Quality:
        """Learn from float[M] mean returns of moves through which float[M] episodes went."""
        ...

    def state(self) -> State:
        """A copy of everything that fitting changes."""
        ...

    def load(self, state: State) -> None:
        """The inverse of :meth:`state`."""
        ...


def model_of(policy: object) -> Modelled | None:
    """The policy with a model to read, of this process: itself, or behind an engine the half that learns."""
    half = getattr(policy, "learner", policy)
    return half if isinstance(half, Modelled) else None


def quality(predicted: FloatN, returns: FloatN, weight: FloatN) -> Quality:
    """Mean squared error, and 1 − Var(r − q) / Var(r): None where all returns are equal. Unknown predictions are 0."""
    error = returns - np.nan_to_num(predicted)
    spread = _variance(returns, weight)
    explained = None if spread <= 1e-12 else 1.0 - _variance(error, weight) / spread
    return {"loss": float(np.average(error**2, weights=weight)), "explained_variance": explained}


def _variance(x: FloatN, weight: FloatN) -> float:
    return float(np.average((x - np.average(x, weights=weight)) ** 2, weights=weight))


class TableCritic:
    """Means of returns, the finer shrunk towards the coarser: for teams whose messages and contexts come again.

    Levels, each a refinement of the one before: everything; the agent; its message; said to the same prompt; after the
    same transcript; on the same task. With n episodes of mean r̄ at a level, q = (n r̄ + k q') / (n + k), q' the value
    of the level before and k = ``PRIOR`` (empirical Bayes with a fixed ratio of variances; James & Stein 1961). Older
    returns fade by ``MEMORY`` at each fit, and what has faded away is forgotten, so that the table stays bounded.
    """

    PRIOR = 2.0
    FORGOTTEN = 0.05

    def __init__(self) -> None:
        self._keys: IntN = np.empty(0, dtype=np.int64)
        self._count: FloatN = np.empty(0)
        self._total: FloatN = np.empty(0)

    def predict(self, moves: Sequence[Move]) -> FloatN:
        """See :class:`Values`."""
        everything, *finer = _levels(moves).T
        count, total = self._read(everything)
        value: FloatN = np.divide(total, count, out=np.full(len(moves), np.nan), where=count > 0)
        for keys in finer:
            count, total = self._read(keys)
            value = (total + self.PRIOR * value) / (count + self.PRIOR)
        return value

    def _read(self, keys: IntN) -> tuple[FloatN, FloatN]:
        """Episodes and summed returns under some keys; 0 where there are none."""
        found: BoolN = np.isin(keys, self._keys)
        count, total = np.zeros(len(keys)), np.zeros(len(keys))
        at = np.searchsorted(self._keys, keys[found])
        count[found], total[found] = self._count[at], self._total[at]
        return count, total

    def fit(self, moves: Sequence[Move], returns: FloatN, weight: FloatN) -> Quality:
        """See :class:`Critic`."""
        shown = quality(self.predict(moves), returns, weight)
        levels = _levels(moves)
        keys, place = np.unique(np.concatenate([self._keys, levels.ravel()]), return_inverse=True)

        def faded(old: FloatN, new: FloatN) -> FloatN:
            """Sums by key, the new ones at every level of their move."""
            every = np.concatenate([MEMORY * old, np.repeat(new, levels.shape[1])])
            return np.asarray(np.bincount(place, every), dtype=np.float64)

        count, total = faded(self._count, weight), faded(self._total, weight * returns)
        kept = count >= self.FORGOTTEN
        self._keys, self._count, self._total = keys[kept], count[kept], total[kept]
        return shown

    def state(self) -> State:
        """The table."""
        tensors = {"keys": self._keys, "count": self._count, "total": self._total}
        return State({name: array.copy() for name, array in tensors.items()}, {}, {"kind": "table"})

    def load(self, state: State) -> None:
        """Go on from a table."""
        self._keys, self._count, self._total = (np.array(state.tensors[name]) for name in ("keys", "count", "total"))


def _levels(moves: Sequence[Move]) -> IntN:
    """int[M, 6]: the key of each move at each level, coarse to fine."""
    keys = np.empty((len(moves), 6), dtype=np.int64)
    for m, move in enumerate(moves):
        digest = hashlib.blake2b(digest_size=8)
        for level, part in enumerate(("", move.agent, move.text, move.prompt_ids, move.before, move.task)):
            digest.update(json.dumps(part).encode() + b"\n")
            keys[m, level] = int.from_bytes(digest.copy().digest(), "big", signed=True)
    return keys
