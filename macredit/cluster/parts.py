"""What actors build a configuration's environment and policies from, each in its own process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from macredit.env import TeamEnv
from macredit.learn.handover import Weights
from macredit.learn.learner import Trainable
from macredit.policy import Policy


@dataclass(frozen=True)
class Parts:
    """Functions that travel to the actors by their names, with the configuration in their arguments."""

    env: Callable[[], TeamEnv]
    """Makes the environment."""
    speaks: Callable[[TeamEnv], Mapping[str, Policy]]
    """Makes everyone who speaks; those that learn elsewhere take weights by ``receive``."""
    learns: Callable[[TeamEnv, str], Policy]
    """Makes the half of one policy that learns."""
    weights: Callable[[Trainable], Weights]
    """What such a half hands over, in main memory."""
    solo: Callable[[], TeamEnv] | None = None
    """Makes the same tasks for one agent alone."""
    path: tuple[str, ...] = ()
    """Where the driving process finds modules, a user's own among them."""

    def find_modules(self) -> None:
        """Let this process find them too, after its own; called before anything is made."""
        sys.path.extend(folder for folder in self.path if folder not in sys.path)


@dataclass(frozen=True, slots=True)
class Card:
    """What is known of a policy where it is not: enough to name it in records."""

    name: str
    version: str
    sampling: Mapping[str, Any]

    @classmethod
    def of(cls, policy: Policy) -> Card:
        """A policy's card as of now."""
        return cls(policy.name, policy.version, policy.sampling)
