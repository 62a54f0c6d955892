"""Keyed randomness: every draw has a name, so counterfactuals share random numbers with the original play.

Counter-based (Philox; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), keyed by a BLAKE2b digest
of the parts of the key; no global seed, no ``hash()``. The order of calls and the batch size never matter.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

SamplePath = tuple[int | str, ...]
Continuation = Literal["independent", "common"]
"""What follows a resampled turn: fresh random numbers (C3's setting), or the original's."""


def generator(*parts: object) -> np.random.Generator:
    """A generator that depends on ``parts`` (numbers, strings, tuples of them) and on nothing else."""
    digest = hashlib.blake2b(json.dumps(parts, ensure_ascii=False).encode("utf-8", "surrogatepass"), digest_size=16)
    return np.random.Generator(np.random.Philox(key=np.frombuffer(digest.digest(), dtype=np.uint64)))


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Names one play: the group faces one task; members differ by ``group``, alternatives and replicates by ``sample``.

    ``sample`` is a path: ``()`` in the original; alternative j of a branched turn appends ``(turn index, j)``,
    replicate r ≥ 1 of a noisy worth appends ``("rep", r)``. Who was silenced is never part of the key.
    """

    seed: int
    task: str
    group: int = 0
    sample: SamplePath = ()

    def instance(self) -> np.random.Generator:
        """Randomness of the task instance: from (seed, task) alone, so that a whole group faces one problem."""
        return generator("task", self.seed, self.task)

    def stream(self, name: str, agent: str = "", call: int = 0) -> np.random.Generator:
        """Randomness of everything after ``begin``: one generator per stream, agent and call."""
        return generator(self.seed, self.task, self.group, name, agent, call, self.sample)

    def at(self, sample: SamplePath) -> Key:
        """The same play on another sample path."""
        return replace(self, sample=sample)

    def branch(self, turn: int, j: int) -> Key:
        """Alternative ``j`` of a turn; the executed one, j = 0, keeps the path it was played with."""
        return self if j == 0 else self.at((*self.sample, turn, j))

    def at_turn(self, turn: int, continuation: Continuation = "independent") -> Key:
        """The key in force at one turn: branches of later turns do not act yet; ``common`` ones act on theirs alone."""
        pairs = zip(self.sample[::2], self.sample[1::2], strict=True)
        acts = [
            (what, which)
            for what, which in pairs
            if isinstance(what, str) or what == turn or (what < turn and continuation == "independent")
        ]
        return self.at(tuple(part for pair in acts for part in pair))

    def replicate(self, r: int) -> Key:
        """Replicate ``r`` of a noisy outcome; replicate 0 shares every random number with the original."""
        return self if r == 0 else self.at((*self.sample, "rep", r))
