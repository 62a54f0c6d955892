"""Policies that follow a rule: fakes for tests, opponents, and the perfect teammate of a demonstration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar, get_args

import numpy as np

from macredit.errors import UserError, unknown
from macredit.policy import BatchPolicy, Request, Said

Style = Literal["perfect", "noisy", "silent", "stubborn", "random"]
F = TypeVar("F")
Rule = Callable[[Request], str]
Expert = Callable[[Request], str]
"""What a perfect agent says, given its own conversation alone; an environment supplies it."""
Fumble = Callable[[Request, np.random.Generator], str]
"""A wrong reply in the right form; an environment supplies it."""


class Scripted(BatchPolicy):
    """Speaks by rule; the same request always gets the same reply, whatever the batch.

    ``perfect`` says what the environment's expert says; ``noisy`` does so with probability ``skill`` and fumbles
    otherwise; ``silent`` says nothing; ``stubborn`` always says ``says``; ``random`` picks one of ``replies``,
    or a word.
    """

    def __init__(
        self,
        style: Style = "perfect",
        skill: float = 0.7,
        says: str = "no",
        replies: Sequence[str] = (),
        expert: Expert | None = None,
        fumble: Fumble | None = None,
        name: str = "",
    ) -> None:
        settings: dict[str, object] = {"style": style}
        match style:
            case "perfect":
                self._rule: Rule = _needed(expert, style, "expert")
            case "noisy":
                if not 0 <= skill <= 1:
                    raise UserError(f"skill was given as {skill}; expected a probability from 0 to 1")
                settings["skill"] = skill
                self._rule = _noisy(_needed(expert, style, "expert"), _needed(fumble, style, "fumble"), skill)
            case "silent":
                self._rule = _always("")
            case "stubborn":
                settings["says"] = says
                self._rule = _always(says)
            case "random":
                settings["replies"] = list(replies)
                self._rule = _random(tuple(replies))
            case _:
                raise unknown("scripted style", style, get_args(Style))
        super().__init__(name, version="-".join(map(str, settings.values())), sampling=settings)

    def say(self, batch: Sequence[Request]) -> list[Said]:
        """One text a request; no ids, no log-probabilities."""
        return [Said(self._rule(request), sampling=self.sampling) for request in batch]


def _needed(function: F | None, style: str, name: str) -> F:
    if function is None:
        raise UserError(
            f"the scripted style {style!r} was given no `{name}`; it needs an environment that has one, or choose "
            "'silent', 'stubborn' or 'random'"
        )
    return function


def _always(text: str) -> Rule:
    def speak(_: Request) -> str:
        return text

    return speak


def _noisy(expert: Expert, fumble: Fumble, skill: float) -> Rule:
    def speak(request: Request) -> str:
        rng = request.rng()
        return expert(request) if rng.random() < skill else fumble(request, rng)

    return speak


def _random(replies: tuple[str, ...]) -> Rule:
    def speak(request: Request) -> str:
        rng = request.rng()
        if replies:
            return replies[rng.integers(len(replies))]
        return "".join(chr(ord("a") + letter) for letter in rng.integers(26, size=rng.integers(2, 8)))

    return speak
