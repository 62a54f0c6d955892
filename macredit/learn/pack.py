"""Rows as one flat sequence in which nothing is padded and nothing that rows begin with alike is computed twice.

Rows that share a beginning form a tree of segments: a turn of a conversation goes on where an earlier turn ended, and
members of a group share their prompt. Under causal attention an id depends on the ids before it alone, so the tree
computes what its rows compute one by one: conversations of T turns cost their last turn, not T²/2 turns.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from macredit.learn.batch import TrainRow, by_sequence
from macredit.learn.loss import IntK

_SHORTEST = 16
"""Rows that share fewer ids than this do not share a segment."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Ids that stand together in the flat sequence; they see themselves, up to where they are, and their path."""

    start: int
    stop: int
    path: tuple[int, ...]
    """Indices of the segments before it, first to last."""


@dataclass(frozen=True, slots=True)
class Pack:
    """A batch of rows, flat: N ids to compute, K trained ids."""

    rows: tuple[TrainRow, ...]
    ids: IntK
    """int[N]."""
    positions: IntK
    """int[N]: how many ids stand before each in its row."""
    segments: tuple[Segment, ...]
    places: IntK
    """int[K]: where the id before each trained id stands, rows one after another."""
    targets: IntK
    """int[K]: the trained ids."""


def packed(rows: Sequence[TrainRow]) -> Pack:
    """Rows as a tree of segments."""
    distinct = {_key(_needed(row)): _needed(row) for row in rows}
    tree = _Tree([distinct[key] for key in sorted(distinct)])
    tree.grow(0, len(distinct), 0, ())
    places, targets = [], []
    for row in rows:
        path = tree.paths[_key(_needed(row))]
        flat = np.concatenate([np.arange(tree.segments[s].start, tree.segments[s].stop) for s in path])
        trained = np.flatnonzero(row.mask)
        places.append(flat[trained - 1])
        targets.append(row.ids[trained])
    return Pack(
        tuple(rows), np.concatenate(tree.ids), np.concatenate(tree.positions), tuple(tree.segments),
        np.concatenate(places), np.concatenate(targets),
    )  # fmt: skip


class _Tree:
    """Segments while they grow; ``rows``: the ids to compute of each row, sorted."""

    def __init__(self, rows: list[IntK]) -> None:
        self.rows = rows
        self.alike = [*(_alike(one, two) for one, two in pairwise(rows)), 0]
        self.segments: list[Segment] = []
        self.ids: list[IntK] = []
        self.positions: list[IntK] = []
        self.paths: dict[bytes, tuple[int, ...]] = {}
        self._length = 0

    def grow(self, first: int, last: int, start: int, path: tuple[int, ...]) -> None:
        """Segments of the rows from ``first`` to before ``last``, which agree before ``start``, where ``path`` ends."""
        while first < last and len(self.rows[first]) == start:
            self.paths[_key(self.rows[first])] = path
            first += 1
        while first < last:
            stop = first + 1
            while stop < last and self.alike[stop - 1] >= start + _SHORTEST:
                stop += 1
            end = min(self.alike[first : stop - 1], default=len(self.rows[first]))
            self.grow(first, stop, end, (*path, self._segment(self.rows[first], start, end, path)))
            first = stop

    def _segment(self, row: IntK, start: int, end: int, path: tuple[int, ...]) -> int:
        self.segments.append(Segment(self._length, self._length + end - start, path))
        self.ids.append(row[start:end])
        self.positions.append(np.arange(start, end))
        self._length += end - start
        return len(self.segments) - 1


def packs(rows: Iterable[TrainRow], batch_tokens: int) -> list[list[TrainRow]]:
    """Rows in groups that pack into at most ``batch_tokens`` ids each; sequences stay whole, like beginnings together.

    Counted while a group grows: up to ``_SHORTEST - 1`` ids a row, too few to be worth a segment, may be missed.
    A sequence that needs more on its own is a group of its own.
    """
    units = sorted(by_sequence(rows), key=lambda unit: min(_key(row.ids) for row in unit))
    groups: list[list[TrainRow]] = []
    filling = _Filling()
    for unit in units:
        if not groups or filling.add(unit) > batch_tokens:
            groups.append([])
            filling = _Filling()
            filling.add(unit)
        groups[-1].extend(unit)
    return groups


class _Filling:
    """How many ids the rows so far need when packed."""

    def __init__(self) -> None:
        self.tokens = 0
        self._keys: list[bytes] = []
        self._rows: list[IntK] = []

    def add(self, unit: Iterable[TrainRow]) -> int:
        """The number with the rows of ``unit``: each brings what it does not share with a neighbour in sorted order."""
        for row in unit:
            needed = _needed(row)
            at = bisect(self._keys, _key(needed))
            near = [_alike(needed, other) for other in self._rows[max(at - 1, 0) : at + 1]]
            shared = max(near, default=0)
            self.tokens += len(needed) - (shared if shared >= _SHORTEST else 0)
            self._keys.insert(at, _key(needed))
            self._rows.insert(at, needed)
        return self.tokens


def _needed(row: TrainRow) -> IntK:
    """The ids of a row to compute: those before its last trained id."""
    return row.ids[: int(np.flatnonzero(row.mask)[-1])]


def _key(ids: IntK) -> bytes:
    """Sorts as the ids do."""
    return ids.astype(">i8").tobytes()


def _alike(one: IntK, two: IntK) -> int:
    """How many ids two rows begin with alike."""
    length = min(len(one), len(two))
    differs = one[:length] != two[:length]
    return int(differs.argmax()) if differs.any() else length
