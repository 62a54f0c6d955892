"""A word is whispered down a line: the smallest task, with credit that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from macredit.enumeration import NotKnownError, distribution
from macredit.env import Message, TeamEnv, parse
from macredit.errors import UserError
from macredit.policy import Chat, Policy, Request, opening
from macredit.rows import FloatN
from macredit.seeds import Key
from macredit.team import Team
from macredit.values import exact_values

WORDS = ("amber", "birch", "cobalt", "dune", "ember", "fjord", "grove", "heron")
ASKED = "Pass this word on, and say nothing else: "
LONGEST = 32
"""Most agents in a line, each of which speaks once."""
TABULATED = 16
"""Most agents whose every coalition is worked out."""


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
        return ASKED + said

    def hear(self, state: Whisper, message: Message) -> Whisper:
        """What reaches the user is the team's answer."""
        return replace(state, heard=message.text) if "user" in message.to else state

    def score(self, state: Whisper) -> float:
        """1 if the word arrived."""
        return float(state.heard.strip() == state.word)

    def heeds(self, agent: str, to: tuple[str, ...]) -> bool:
        """Only the answer is scored."""
        return "user" in to

    def worth(self, coalition: frozenset[str]) -> float:
        """1 if nobody is missing."""
        return float(coalition >= set(self.team.specialists))

    def exact_credit(self, policies: Mapping[str, Policy] | None = None) -> Mapping[str, Mapping[str, float]] | None:
        """In closed form for a team that always passes the word on, else from the chance that it arrives.

        None where a policy's probabilities are not known, or the line is longer than 16.
        """
        players = self.team.specialists
        if policies is not None:
            try:
                return exact_values(players, np.mean([self._arrives(word, policies) for word in WORDS], axis=0))
            except NotKnownError:
                return None
        return (
            {
                "shapley": dict.fromkeys(players, 1 / len(players)),
                "banzhaf": dict.fromkeys(players, 2.0 ** (1 - len(players))),
                "loo": dict.fromkeys(players, 1.0),
            }
            if players
            else {}
        )

    def _arrives(self, word: str, policies: Mapping[str, Policy]) -> FloatN:
        """float[2**specialists]: the chance that a word arrives with the other specialists silenced."""
        agents = self.team.names
        if len(agents) > TABULATED:
            raise NotKnownError(f"a line of more than {TABULATED}")

        @cache
        def onward(k: int, said: str) -> FloatN:
            """By who of agents k, k + 1, … is present, when agent k hears ``said``."""
            if k == len(agents):
                return np.array([float(said.strip() == word)])
            present = sum(
                (p * onward(k + 1, text) for text, p in self._repeats(agents[k], said, policies)), np.zeros(1)
            )
            return present if k == 0 else np.stack([onward(k + 1, ""), present], axis=1).ravel()

        return onward(0, word)

    def _repeats(self, agent: str, said: str, policies: Mapping[str, Policy]) -> Iterable[tuple[str, float]]:
        """What an agent may say on hearing something, with its chance."""
        chats = (*opening(self.team[agent].role), Chat("user", ASKED + said))
        request = Request(agent, chats, Key(0, "0"), teammates=self.addresses(agent))
        chances = distribution(policies[self.team[agent].policy], request)
        if any(parse(text)[0] is not None for text in chances):
            raise NotKnownError(f"agent {agent!r} may address somebody by name")
        return chances.items()

    @staticmethod
    def expert(request: Request) -> str:
        """Repeat the word."""
        return request.prompt.rpartition(": ")[2]

    @staticmethod
    def fumbles(request: Request) -> Sequence[str]:
        """Mishear the word."""
        return [word for word in WORDS if word != Relay.expert(request)]
