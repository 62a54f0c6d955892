"""Which episodes a method needs: independent rollouts of a group, or a tree of alternatives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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


def collect(
    world: World,
    needs: Collection[str],
    plans: Callable[[int], Sequence[Plan]],
    group: int,
    fanout: Fanout = "auto",
    ledger: Ledger | None = None,
) -> list[Episode]:
    """The episodes of some tasks, as a method needs them.

    Args:
        world: environment and policies.
        needs: of the method.
        plans: members of a group → plans of all tasks.
        group: episodes a task: members of its group, or the most that its tree may have.
        fanout: of trees.
        ledger: counts what it cost.

    Raises:
        UserError: see :func:`tree`.
    """
    if "tree" in needs:
        return tree(world, plans(1), fanout, group, ledger=ledger)
    return play(world, plans(group), ledger=ledger)


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
        UserError: the budget is smaller than the tree, or too small for any alternative; or every episode ends before
            the turns of ``fanout``.
    """
    size = int(np.prod([*fanout.values()])) if fanout != "auto" else 2
    if budget < size:
        raise UserError(f"a budget of {budget} episodes a task is too small for this method; expected at least {size}")
    ledger = ledger if ledger is not None else Ledger()
    trees = [[episode] for episode in play(world, roots, ledger=ledger, on_end=on_end)]
    if fanout != "auto":
        _check_reached(fanout, [original for (original,) in trees])
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


def _check_reached(fanout: Mapping[int, int], originals: Sequence[Episode]) -> None:
    """Some episode gets alternatives; failed ones say nothing about how long episodes are."""
    lengths = [len(episode.turns) for episode in originals if not episode.failed]
    asked = [turn for turn, width in fanout.items() if width > 1]
    if lengths and asked and min(asked) >= max(lengths):
        least, most = min(lengths), max(lengths)
        raise UserError(
            f"fanout asks for alternatives at turn {min(asked)}{' and later' if len(asked) > 1 else ''}, and the "
            f"{len(lengths)} episodes played have {least if least == most else f'{least} to {most}'} turns, counted "
            "from 0; give a turn that comes"
        )


def _turns(world: World, episode: Episode, root: Plan, fanout: Fanout, budget: int) -> list[tuple[int, int]]:
    """(turn, alternatives) in order of turns."""
    if fanout != "auto":
        return sorted(fanout.items())
    team = world.env.team
    spoken = [t for t, turn in enumerate(episode.turns) if team[turn.agent].trainable]
    depth = min(int(np.log2(budget)), len(spoken))
    chosen = root.key.stream("fan-out").permutation(len(spoken))[:depth]
    return [(spoken[i], 2) for i in sorted(chosen)]
