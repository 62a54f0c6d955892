"""Exact expectations over a team's replies, where their probabilities are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from macredit.policy import Enumerable, Policy, Request, Said
from macredit.rollout import Plan, Scene, World

MOST_WAYS = 10_000
"""More ways than this are not enumerated."""


class NotKnownError(LookupError):
    """The exact expectation is out of reach: a reply's probabilities are not known, or there are too many ways."""


def distribution(policy: Policy | None, request: Request) -> Mapping[str, float]:
    """Reply → probability, those that can happen.

    Raises:
        NotKnownError: the policy does not tell.
    """
    known: Any = policy
    chances = known.distribution(request) if isinstance(known, Enumerable) else None
    if chances is None:
        raise NotKnownError(f"agent {request.agent!r}")
    return {text: p for text, p in chances.items() if p > 0}


def ways(world: World, plan: Plan) -> list[tuple[float, Scene]]:
    """Every way a play can go: the ended plays of a plan, each with its probability; they add up to 1.

    Only replies are enumerated: the task instance, and noise that the environment draws, are those of the plan's key.

    Raises:
        NotKnownError: see there.
    """
    ended: list[tuple[float, Scene]] = []
    going = [(1.0, Scene(world, plan))]
    while going:
        chance, scene = going.pop()
        request = scene.request()
        if request is None:
            ended.append((chance, scene))
            continue
        here, policy = replace(plan, start=scene.checkpoint()), scene.asking
        for text, p in distribution(policy, request).items():
            branch = Scene(world, here)
            branch.hear(request, Said(text), policy)
            going.append((chance * p, branch))
        if len(ended) + len(going) > MOST_WAYS:
            raise NotKnownError(f"more than {MOST_WAYS} ways")
    return ended
