"""Policies that follow a rule: fakes for tests, opponents, and the perfect teammate of a demonstration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar, get_args

from macredit.errors import UserError, unknown
from macredit.policy import BatchPolicy, Request, Said

Style = Literal["perfect", "noisy", "silent", "stubborn", "random"]
F = TypeVar("F")
Chances = Sequence[tuple[Sequence[str], float]]
"""What may be said: (equally likely replies, their probability together) each."""
Rule = Callable[[Request], Chances]
Expert = Callable[[Request], str]
"""What a perfect agent says, given its own conversation alone; an environment supplies it."""
Fumbles = Callable[[Request], Sequence[str]]
"""Wrong replies in the right form, all equally likely; an environment supplies them."""


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
        fumbles: Fumbles | None = None,
        name: str = "",
    ) -> None:
        settings: dict[str, object] = {"style": style}
        self._rule: Rule | None
        match style:
            case "perfect":
                self._rule = _expert(_needed(expert, style, "expert"))
            case "noisy":
                if not 0 <= skill <= 1:
                    raise UserError(f"skill was given as {skill}; expected a probability from 0 to 1")
                settings["skill"] = skill
                self._rule = _noisy(_needed(expert, style, "expert"), _needed(fumbles, style, "fumbles"), skill)
            case "silent":
                self._rule = _one_of([""])
            case "stubborn":
                settings["says"] = says
                self._rule = _one_of([says])
            case "random":
                settings["replies"] = list(replies)
                self._rule = _one_of(tuple(replies)) if replies else None
            case _:
                raise unknown("scripted style", style, get_args(Style))
        super().__init__(name, version="-".join(map(str, settings.values())), sampling=settings)

    def say(self, batch: Sequence[Request]) -> list[Said]:
        """One text a request; no ids, no log-probabilities."""
        return [
            Said(_word(r) if self._rule is None else _draw(r, self._rule(r)), sampling=self.sampling) for r in batch
        ]

    def distribution(self, request: Request) -> Mapping[str, float] | None:
        """The probability of every reply; None for random words."""
        if self._rule is None:
            return None
        chances: dict[str, float] = {}
        for texts, p in self._rule(request):
            for text in texts:
                chances[text] = chances.get(text, 0.0) + p / len(texts)
        return chances


def _needed(function: F | None, style: str, name: str) -> F:
    if function is None:
        raise UserError(
            f"the scripted style {style!r} was given no `{name}`; it needs an environment that has one, or choose "
            "'silent', 'stubborn' or 'random'"
        )
    return function


def _one_of(texts: Sequence[str]) -> Rule:
    def speak(_: Request) -> Chances:
        return [(texts, 1.0)]

    return speak


def _expert(expert: Expert) -> Rule:
    def speak(request: Request) -> Chances:
        return [([expert(request)], 1.0)]

    return speak


def _noisy(expert: Expert, fumbles: Fumbles, skill: float) -> Rule:
    def speak(request: Request) -> Chances:
        return [([expert(request)], skill), (fumbles(request), 1.0 - skill)]

    return speak


def _draw(request: Request, chances: Chances) -> str:
    """One of the replies, by at most two draws: which kind, and which of that kind."""
    rng = request.rng()
    texts, _ = chances[0] if len(chances) == 1 or rng.random() < chances[0][1] else chances[1]
    return texts[0] if len(texts) == 1 else texts[int(rng.integers(len(texts)))]


def _word(request: Request) -> str:
    rng = request.rng()
    return "".join(chr(ord("a") + letter) for letter in rng.integers(26, size=rng.integers(2, 8)))
