"""A word is whispered down a line: the smallest task, with credit that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from macredit.env import Message, TeamEnv
from macredit.errors import UserError
from macredit.policy import Request
from macredit.team import Team

WORDS = ("amber", "birch", "cobalt", "dune", "ember", "fjord", "grove", "heron")
LONGEST = 32
"""Most agents in a line, each of which speaks once."""


@dataclass(frozen=True)
class Whisper:
    """The word, and what the last agent said it was."""

    word: str
    heard: str = ""


class Relay(TeamEnv):
    """A word is whispered down a line; the team earns 1 if the last one says it.

    Every member is needed, so leave-one-out gives each specialist 1 and Shapley splits 1 evenly among them.
    """

    name = "relay_v0"

    def __init__(self, length: int = 3) -> None:
        if not isinstance(length, int) or not 1 <= length <= LONGEST:
            raise UserError(f"length is {length!r}; expected a line of 1 to {LONGEST} agents")
        super().__init__(Team.line(length), max_turns=LONGEST)

    def begin(self, rng: np.random.Generator) -> Whisper:
        """Draw the word."""
        return Whisper(str(rng.choice(WORDS)))

    def prompt(self, state: Whisper, agent: str, unread: Sequence[Message]) -> str:
        """The first agent is told the word, the others what they heard."""
        said = state.word if agent == self.team.orchestrator else " ".join(message.text for message in unread)
        return f"Pass this word on, and say nothing else: {said}"

    def hear(self, state: Whisper, message: Message) -> Whisper:
        """What reaches the user is the team's answer."""
        return replace(state, heard=message.text) if "user" in message.to else state

    def score(self, state: Whisper) -> float:
        """1 if the word arrived."""
        return float(state.heard.strip() == state.word)

    def worth(self, coalition: frozenset[str]) -> float:
        """1 if nobody is missing."""
        return float(coalition >= set(self.team.specialists))

    def exact_credit(self) -> Mapping[str, Mapping[str, float]]:
        """For a team that always passes the word on."""
        players = self.team.specialists
        return (
            {
                "shapley": dict.fromkeys(players, 1 / len(players)),
                "banzhaf": dict.fromkeys(players, 2.0 ** (1 - len(players))),
                "loo": dict.fromkeys(players, 1.0),
            }
            if players
            else {}
        )

    @staticmethod
    def expert(request: Request) -> str:
        """Repeat the word."""
        return request.prompt.rpartition(": ")[2]

    @staticmethod
    def fumble(request: Request, rng: np.random.Generator) -> str:
        """Mishear the word."""
        return str(rng.choice([word for word in WORDS if word != Relay.expert(request)]))
