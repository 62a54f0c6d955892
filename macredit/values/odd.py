"""Pairs: Shapley values depend on a game only through its odd part u(S) = (v(S) − v(N∖S)) / 2."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from macredit.rows import FloatN, IntN
from macredit.values import designs
from macredit.values.answers import Answers, BoolCN, Plan, nothing


@dataclass(frozen=True)
class Pairs:
    """The answered pairs (S, N∖S) of a game, each by one member, besides the ends."""

    members: BoolCN
    """bool[P, n]: the smaller member, or of two equal sizes either."""
    odd: FloatN
    """float[P]: u(S)."""
    noise: FloatN
    """float[P]: 1/4 (1/answers of S + 1/answers of its complement); times the noise variance, the variance of u."""
    size: IntN
    """int[P]: members of S."""
    peers: IntN
    """int[P]: answered pairs of the same size."""
    room: FloatN
    """float[n // 2 + 1]: how many pairs of each size there are."""
    total: float
    """v(N) − v(∅) = 2 u(N)."""
    total_noise: float
    """Like ``noise``, for u(N)."""
    total_variance: float = 0.0
    """Variance of ``total`` as far as repeated answers show it."""
    noisy: bool = False
    """Whether an answered pair still carries an error of its own."""

    def interleaved(self, seed: int) -> Pairs:
        """The pairs in an order of :func:`designs.interleaved`."""
        order = designs.interleaved(self.size, self.members.shape[1], seed)
        return replace(
            self,
            members=self.members[order],
            odd=self.odd[order],
            noise=self.noise[order],
            size=self.size[order],
            peers=self.peers[order],
        )

    def after(self, row: int) -> tuple[Pairs, FloatN]:
        """The pairs from this row on, and for each which part of its size the earlier ones leave open."""
        size = self.size[row:]
        rest = replace(
            self,
            members=self.members[row:],
            odd=self.odd[row:],
            noise=self.noise[row:],
            size=size,
            peers=np.bincount(size)[size],
            room=self.room - np.bincount(self.size[:row], minlength=len(self.room)),
        )
        return rest, rest.room[size] / self.room[size]

    @property
    def share(self) -> FloatN:
        """float[P]: which part of all pairs of this size is known for certain; 1 = no sampling error."""
        if self.noisy:
            return np.zeros(len(self.size))
        return self.peers / self.room[self.size]

    @property
    def signs(self) -> FloatN:
        """float[P, n]: +1 for members, −1 for the others."""
        return np.where(self.members, 1.0, -1.0)


def design(plan: Plan, answers: Answers) -> BoolCN:
    """The two ends, then as many pairs as the budget allows, by :func:`designs.paired`; all at once or in blocks.

    A noisy game gets its ends replicated as often as the error of their difference deserves, and where pairs run out,
    repeats of everything.
    """
    if answers.rounds and not plan.blocks:
        return nothing(plan.n)
    rows = _rows(plan)
    if not plan.blocks:
        return rows
    first = max(4 * plan.n, 32)
    begun = first << (answers.rounds - 1) if answers.rounds else 0
    return rows[begun : first << answers.rounds]


def ends(n: int) -> BoolCN:
    """bool[2, n]: nobody and everybody."""
    return np.array([[False] * n, [True] * n])


def with_complements(half: BoolCN) -> BoolCN:
    """bool[2 P, n]: each coalition, then its complement."""
    rows = np.repeat(half, 2, axis=0)
    np.logical_not(half, out=rows[1::2])
    return rows


def _rows(plan: Plan) -> BoolCN:
    n = plan.n
    copies = _end_copies(plan)
    pairs = min((plan.budget - 2 * copies) // 2, designs.pairs_in_all(n))
    once = with_complements(designs.paired(n, pairs, plan.seed))
    rows = np.concatenate([*[ends(n)] * copies, once])
    if not plan.noise:
        return rows
    return np.resize(rows, (plan.budget - (plan.budget - len(rows)) % 2, n))


def _end_copies(plan: Plan) -> int:
    """Each end once; of a noisy game, as often as one size of coalitions is evaluated."""
    return max(1, plan.budget // (4 * plan.n)) if plan.noise else 1


def pairs_of(plan: Plan, answers: Answers) -> Pairs:
    """The answers of which both members are there, as pairs; in the order of the answers."""
    n = answers.coalitions.shape[1]
    size = (answers.coalitions @ np.ones(n)).astype(np.int64)
    partner = answers.complements()
    lower = (partner >= 0) & (size > 0) & (2 * size <= n)
    lower &= (2 * size < n) | ~answers.coalitions[:, -1]
    mine = np.flatnonzero(lower)
    other, size = partner[mine], size[mine]
    empty, full = answers.ends()
    counts = 1 / answers.count
    extreme = float(counts[0] + counts[-1])
    return Pairs(
        answers.coalitions.take(mine, axis=0),
        (answers.mean[mine] - answers.mean[other]) / 2,
        (counts[mine] + counts[other]) / 4,
        size,
        np.bincount(size, minlength=n + 1)[size],
        designs.rooms(n),
        full - empty,
        extreme / 4,
        extreme * answers.noise,
        plan.noise or answers.noise > 0,
    )
