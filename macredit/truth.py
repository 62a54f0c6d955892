"""The true credit to compare with, and which team it is the truth of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from macredit.env import TeamEnv
from macredit.rollout import World

THIS_TEAM = "of this team, in expectation over its replies"
PERFECT_TEAM = "of a team in which everyone does its part (no policies with known chances of replies were given)"


class Truth(NamedTuple):
    """Exact credit."""

    exact: Mapping[str, Mapping[str, float]]
    """Index → player → value; empty where the environment knows none."""
    exact_of: str
    """Whose credit it is."""


def truth(world: World) -> Truth:
    """What the environment knows about the team that plays; where it cannot, about a perfect one."""
    exact = world.env.exact_credit(world.policies)
    return perfect(world.env) if exact is None else Truth(exact, THIS_TEAM)


def perfect(env: TeamEnv) -> Truth:
    """What the environment knows about a perfect team."""
    exact = env.exact_credit()
    return Truth(exact, PERFECT_TEAM) if exact else Truth({}, "")
