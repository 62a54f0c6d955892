"""Noisy games with few players: every coalition is scored, the ones that matter most are scored most often.

A linear value is φ = M v, so Σ_i Var φ_i = Σ_S a_S σ_S² / n_S with a_S = Σ_i M_iS² and n_S scores of coalition S. A
budget is best spent with n_S ∝ sqrt(a_S) σ_S (Neyman 1934, "On the two different aspects of the representative
method"). For the Shapley value sqrt(a_S) = sqrt(n / (s (n − s))) / C(n, s): the small and the large coalitions.

As a method of a session this file has the three functions that :mod:`macredit.values.answers` asks for.
"""

from __future__ import annotations

import numpy as np

from macredit.errors import UserError
from macredit.rows import FloatN, IntN
from macredit.seeds import generator
from macredit.values.answers import Answers, BoolCN, Fit, Plan, nothing
from macredit.values.masks import members_of
from macredit.values.noisy import Design, Tallies, linear_fit, shapley_design, tallies_of, variances

STAGES = 4
"""Batches after the first score of every coalition: each allocates by all scores before it."""
LOOKS = 20
"""The same where a stopping rule looks between batches."""
CAUTION = 10
"""How many scores the variance of all counts for in that of a size, before a size is scored less often."""


def smallest(n: int) -> int:
    """The least budget: every coalition once."""
    return int(2**n)


def batch(plan: Plan, answers: Answers) -> BoolCN:
    """bool[C, n]: the next coalitions to score, every one once in the first batch; see :class:`Method`."""
    design = shapley_design(plan.n)
    sizes = stages(len(design.masks), plan.budget, LOOKS if plan.blocks else STAGES)
    if answers.rounds >= len(sizes):
        return nothing(plan.n)
    more = next_scores(design, tallies_of(answers), sizes[answers.rounds], plan.seed)
    return members_of(np.repeat(design.masks, more), plan.n)


def fit(plan: Plan, answers: Answers) -> Fit:
    """Shapley values of the mean scores; see :class:`Method`.

    Raises:
        UserError: a coalition has no score.
    """
    return linear_fit(shapley_design(plan.n), tallies_of(answers), noise=plan.noise)


def stages(needed: int, budget: int, pieces: int = STAGES) -> list[int]:
    """How many scores each batch asks for: every coalition that is needed once, the rest of the budget in equal pieces.

    Raises:
        UserError: a budget that does not reach every coalition.
    """
    if budget < needed:
        raise UserError(f"a budget of {budget} was given; scoring each of {needed} coalitions needs at least {needed}")
    ends = np.linspace(needed, budget, pieces + 1).astype(np.int64)
    return [needed, *(int(size) for size in np.diff(ends) if size)]


def next_scores(design: Design, tallies: Tallies, more: int, seed: int) -> IntN:
    """int[C]: how often to score each coalition in a batch of ``more``, so that all counts together are best.

    Every coalition gets one score before any gets a second. Fractions are rounded at random (a function of the seed and
    the counts), so that of many coalitions with less than two scores some have two, whose variance speaks for the
    others. How often a coalition is scored again depends on the scores of its size, not on its own few: means and
    standard errors of what looked settled would be biased.

    Args:
        design: the value to estimate.
        tallies: so far.
        more: the size of the batch.
        seed: of the rounding.
    """
    energy = (design.matrix**2).sum(axis=0)
    first = np.flatnonzero(tallies.count == 0)[:more]
    extra = np.bincount(first, minlength=len(energy))
    left = more - len(first)
    if not left:
        return extra
    need = np.sqrt(energy * variances(design, tallies, CAUTION).of_size)
    have = (tallies.count + extra).astype(np.float64)
    wanted = _level(need if need.any() else np.sqrt(energy), have, left)
    whole = np.floor(wanted + 1e-9).astype(np.int64)
    draws = generator("rounding", seed, int(tallies.count.sum())).random(len(wanted))
    order = np.argsort(np.log(draws) / np.maximum(wanted - whole, 1e-9), kind="stable")[::-1]
    whole[order[: left - int(whole.sum())]] += 1
    return extra + whole


def _level(need: FloatN, have: FloatN, more: float) -> FloatN:
    """float[C] ≥ 0 with sum ``more``: what to add to ``have`` so that all that get something end up ∝ ``need``."""
    order = np.argsort(-need / np.maximum(have, 1e-9), kind="stable")
    level = (more + np.cumsum(have[order])) / np.cumsum(need[order])
    last = int(np.flatnonzero(level * need[order] >= have[order])[-1])
    added: FloatN = np.zeros(len(need))
    served = order[: last + 1]
    added[served] = np.maximum(level[last] * need[served] - have[served], 0.0)
    return added


def task_of(mask: IntN, visit: IntN, n: int, tasks: int | None, seed: int, together: int = 1) -> tuple[IntN, IntN]:
    """Task and replicate of the ``visit``-th score of each coalition (from 0).

    A coalition and its complement are always scored on the same tasks, whose difficulty then cancels in every value
    with M_iS = −M_i,complement (Shapley, Banzhaf, Owen). ``together`` pairs of like sizes share a task, so that
    :mod:`macredit.values.crossed` can compare them on it; with 1 other coalitions get other tasks, so that no task
    weighs on many of them. With a pool of ``tasks`` each group of pairs walks through all of it from its own start
    before a task comes again as replicate 1, 2, …; without (None) every visit has a task of its own.
    """
    pair = np.minimum(mask, 2**n - 1 - mask)
    if together > 1:
        pair = _groups(pair, visit if tasks is None else np.zeros_like(visit), n, together, seed)
    if tasks is None:
        return pair + visit * 2 ** (n - 1), np.zeros_like(visit)
    start = _mixed(pair, int(generator("tasks", seed, n, tasks).integers(2**62))) % tasks
    return (start + visit) % tasks, visit // tasks


def _groups(pair: IntN, visit: IntN, n: int, together: int, seed: int) -> IntN:
    """int[…]: the group of each pair: all pairs by size, at random within a size and anew each visit, are cut up."""
    every = np.arange(2 ** (n - 1))
    size = np.bitwise_count(every).astype(np.int64)
    group = np.empty_like(pair)
    for number in np.unique(visit):
        random = _mixed(every, int(generator("groups", seed, n, int(number)).integers(2**62)))
        rank = np.empty_like(every)
        rank[np.lexsort((random, np.minimum(size, n - size)))] = every
        here = visit == number
        group[here] = rank[pair[here]] // together
    return group


def _mixed(number: IntN, salt: int) -> IntN:
    """int[…] ≥ 0: a well-spread function of each number (SplitMix64; Steele, Lea and Flood 2014)."""
    x = number.astype(np.uint64) + np.uint64(salt)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x >> np.uint64(33)).astype(np.int64)
