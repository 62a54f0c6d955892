"""Which episodes a method needs: independent rollouts of a group, or a tree of alternatives (one collector for all)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from macredit.episode import Episode
from macredit.errors import UserError
from macredit.ledger import Ledger
from macredit.rollout import Plan, World, play
from macredit.seeds import Continuation
from macredit.whatif import WhatIf

Fanout = Mapping[int, int] | Literal["auto"]
"""Turn → number of alternatives; ``auto``: two each at turns of trainable agents, drawn by the task's key."""


def tree(
    world: World,
    roots: Sequence[Plan],
    fanout: Fanout,
    budget: int,
    *,
    continuation: Continuation = "independent",
    ledger: Ledger | None = None,
    on_end: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """A prefix tree below each root, in C3's way (arXiv 2603.06859): every leaf is an episode.

    The original is played to its end; then, turn by turn in order, every episode so far gets its alternatives at that
    turn, the executed one among them. Fan-out {0: 2, 1: 4} makes 8 episodes with turns ``q/i`` and ``q/i/j``.

    Args:
        world: environment and policies.
        roots: one plan a task.
        fanout: alternatives by turn, or ``auto``.
        budget: the largest number of episodes a root may have.
        continuation: random numbers after a resampled turn.
        ledger: counts what it cost.
        on_end: called with each episode as it ends.

    Raises:
        UserError: the budget is smaller than the tree, or too small for any alternative.
    """
    size = int(np.prod([*fanout.values()])) if fanout != "auto" else 2
    if budget < size:
        raise UserError(f"a budget of {budget} episodes a task is too small for this method; expected at least {size}")
    ledger = ledger if ledger is not None else Ledger()
    trees = [[episode] for episode in play(world, roots, ledger=ledger, on_end=on_end)]
    plans = [_turns(world, grown[0], root, fanout, budget) for grown, root in zip(trees, roots, strict=True)]
    for depth in range(max(map(len, plans), default=0)):
        flat = [(i, e) for i, grown in enumerate(trees) if depth < len(plans[i]) for e in grown]
        turns = [(n, plans[i][depth][0]) for n, (i, e) in enumerate(flat) if plans[i][depth][0] < len(e.turns)]
        whatif = WhatIf([e for _, e in flat], world, continuation=continuation, ledger=ledger, on_end=on_end)
        by_width: dict[int, list[tuple[int, int]]] = {}
        for n, turn in turns:
            by_width.setdefault(plans[flat[n][0]][depth][1], []).append((n, turn))
        for width, questions in by_width.items():
            for (n, _), forks in zip(questions, whatif.resample(questions, width), strict=True):
                trees[flat[n][0]].extend(forks[1:])
    return [episode for grown in trees for episode in grown]


def _turns(world: World, episode: Episode, root: Plan, fanout: Fanout, budget: int) -> list[tuple[int, int]]:
    """(turn, alternatives) in order of turns."""
    if fanout != "auto":
        return sorted(fanout.items())
    team = world.env.team
    spoken = [t for t, turn in enumerate(episode.turns) if team[turn.agent].trainable]
    depth = min(int(np.log2(budget)), len(spoken))
    chosen = root.key.stream("fan-out").permutation(len(spoken))[:depth]
    return [(spoken[i], 2) for i in sorted(chosen)]
