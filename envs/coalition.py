"""A cooperative game played out as talk: whoever helps forms the coalition, and its worth is the reward.

The true credit of every specialist is known exactly, so this is the yardstick for credit methods.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress

import numpy as np

from macredit.enumeration import NotKnownError, distribution, ways
from macredit.env import Message, TeamEnv, parse
from macredit.errors import UserError, unknown
from macredit.policy import Chat, Policy, Request, opening
from macredit.rollout import Plan, World
from macredit.rows import FloatN
from macredit.seeds import Key
from macredit.team import Team
from macredit.values import exact_values
from macredit.values.game import game_from_json

Members = frozenset[int]
Game = Callable[[Members, Sequence[float]], float]
"""(who is in, weights of everyone) → worth."""

PRESETS: dict[str, tuple[Sequence[float], Game]] = {
    "additive": ((0.5, 0.3, 0.2), lambda S, w: sum(w[i] for i in S)),
    "or": ((1, 1), lambda S, _: float(len(S) > 0)),
    "and": ((1, 1), lambda S, w: float(len(S) == len(w))),
    "majority": ((1, 1, 1), lambda S, w: float(2 * len(S) > len(w))),
    "glove": ((1, 1, 1), lambda S, _: float(min(len(S & {0}), len(S - {0})))),
    "airport": ((1, 2, 3), lambda S, w: float(max((w[i] for i in S), default=0))),
    "free_rider": ((0.6, 0.4, 0), lambda S, w: sum(w[i] for i in S)),
    "saboteur": ((1, 1, 1), lambda S, w: float(0 in S and len(w) - 1 not in S)),
    "never_invoked": ((0.5, 0.3, 0.2), lambda S, w: sum(w[i] for i in S)),
}
"""Preset → default weights (one a specialist) and the game. ``never_invoked`` also cuts the last one off."""

MOST = 16
"""Most specialists: the game is kept as a table of 2**n worths."""


class Coalition(TeamEnv):
    """The planner calls specialists, each helps or not, and the team earns the worth of those who helped.

    The planner's unaddressed text goes to the next specialist that was not called yet, then to the user: the game
    plays out with any planner that speaks, an untrained one too. Presets and their values: Shapley (1953),
    Banzhaf (1965); airport game: Littlechild & Owen (1973).

    Args:
        preset: a key of ``PRESETS``; a number behind it is the number of specialists (``or3``).
        n: how many specialists; default: the preset's own.
        weights: one a specialist, for ``additive``, ``airport``, ``free_rider`` and ``never_invoked``.
        table: any game instead of a preset: ``{"": 0, "a": 1, "a,b": 3, …}``, or 2**n worths where bit i is player i.
        noise: standard deviation of normal noise on the reward.

    Raises:
        UserError: an unknown preset, or a table that does not cover every coalition.
    """

    name = "coalition_v0"

    def __init__(
        self,
        preset: str = "additive",
        n: int | None = None,
        weights: Sequence[float] | None = None,
        table: Mapping[str, float] | Sequence[float] | None = None,
        noise: float = 0.0,
    ) -> None:
        if not 0 <= noise < math.inf:
            raise UserError(f"noise is {noise}; expected a finite standard deviation of at least 0")
        self.noise = noise
        players, self.table = _tabulate(preset, n, weights) if table is None else _given(table)
        team = Team.orchestrated("planner", players)
        if table is None and preset.startswith("never_invoked"):
            team = replace(team, edges=tuple(edge for edge in team.edges if edge != ("planner", players[-1])))
        super().__init__(team, max_turns=4 * len(players) + 4)

    def begin(self, rng: np.random.Generator) -> frozenset[str]:
        """Nobody has helped yet."""
        return frozenset()

    def prompt(self, state: frozenset[str], agent: str, unread: Sequence[Message]) -> str:
        """The planner sees whom it has not called; a specialist sees always the same question."""
        if agent != self.team.orchestrator:
            return f"You are {agent}. Reply help or pass."
        errors = "".join(f"{message.text}\n" for message in unread if message.sender == "error")
        return f"{errors}Not called yet: {', '.join(self._uncalled()) or 'nobody'}. Call one, or answer @user."

    def route(self, state: frozenset[str], agent: str, text: str) -> str | None:
        """The planner's text goes to the next uncalled specialist, then to the user; saying nothing calls nobody."""
        if agent != self.team.orchestrator:
            return None
        return next(iter((*self._uncalled(), "user"))) if text.strip() else "user"

    def hear(self, state: frozenset[str], message: Message) -> frozenset[str]:
        """A specialist's latest reply counts."""
        if message.sender == self.team.orchestrator:
            return state
        return state | {message.sender} if self.helps(message.text) else state - {message.sender}

    def score(self, state: frozenset[str]) -> float:
        """The worth of those who helped, and noise."""
        noise = self.noise * float(self.rng("noise").standard_normal()) if self.noise else 0.0
        return self._worth(state) + noise

    def may_answer(self, agent: str) -> bool:
        """Only the planner ends the game."""
        return agent == self.team.orchestrator

    def heeds(self, agent: str, to: tuple[str, ...]) -> bool:
        """What the planner says is only for those it calls."""
        return agent != self.team.orchestrator

    def _uncalled(self) -> list[str]:
        called = {name for message in self.log for name in message.to}
        return [name for name in self.teammates(self.team.orchestrator) if name not in called]

    def _worth(self, members: Iterable[str]) -> float:
        return self.table[self._mask(members)]

    def _mask(self, members: Iterable[str]) -> int:
        return sum(1 << self.team.specialists.index(name) for name in set(members))

    def worth(self, coalition: frozenset[str]) -> float:
        """The game's worth of those specialists of the coalition that the planner can reach."""
        return self._worth(coalition & set(self.team.teammates(self.team.orchestrator)))

    def exact_credit(self, policies: Mapping[str, Policy] | None = None) -> Mapping[str, Mapping[str, float]] | None:
        """Shapley, Banzhaf and leave-one-out values of the game that is played, in expectation over the replies.

        v(S) = Σ_C P(the planner reaches C) · E[worth of those of C ∩ S that help]: the planner does not see what the
        specialists say, and they help independently. None where a policy's probabilities are not known.
        """
        try:
            return exact_values(self.team.specialists, self._expected(policies))
        except NotKnownError:
            return None

    def _expected(self, policies: Mapping[str, Policy] | None) -> FloatN:
        """float[2**n]: the expected reward with the other specialists silenced."""
        players, lead = self.team.specialists, self.team.orchestrator
        table: FloatN = np.array(self.table)
        masks = np.arange(len(self.table))
        if policies is None:
            return np.asarray(table[masks & self._mask(self.team.teammates(lead))])
        for i, name in enumerate(players):
            without, within = np.moveaxis(table.reshape(-1, 2, 1 << i), 1, 0)
            within += (self._chance(name, policies[self.team[name].policy]) - 1.0) * (within - without)
        quiet = ways(World(self, policies), Plan("", Key(0, "0"), silenced=frozenset(players)))
        reached = ((chance, {turn.agent for turn in scene.turns} - {lead}) for chance, scene in quiet)
        parts = [chance * table[masks & self._mask(names)] for chance, names in reached]
        return np.asarray(np.sum(parts, axis=0), np.float64)

    def _chance(self, name: str, policy: Policy) -> float:
        """How often a specialist helps when it is asked."""
        chats = (*opening(self.team[name].role), Chat("user", self.prompt(frozenset(), name, ())))
        chances = distribution(policy, Request(name, chats, Key(0, "0"), teammates=self.addresses(name)))
        if any(parse(text)[0] not in (None, (self.team.orchestrator,)) for text in chances):
            raise NotKnownError(f"agent {name!r} may write to somebody else than the planner")
        return sum(p for text, p in chances.items() if self.helps(parse(text)[1]))

    @staticmethod
    def helps(text: str) -> bool:
        """Whether a reply helps: a total rule that random replies meet about half the time.

        Its first Latin letter is in A–M ("help" helps, "pass" does not). Without a letter, the sum of its code points
        is odd ("1" helps, "0" does not). The empty reply never helps.
        """
        letter = re.search("[A-Za-z]", text)
        return letter[0].lower() <= "m" if letter else sum(map(ord, text.strip())) % 2 == 1

    @staticmethod
    def expert(request: Request) -> str:
        """Call everyone, then answer; a specialist helps."""
        listed = re.search(r"Not called yet: ([\w, -]+)\.", request.prompt)
        if listed is None:
            return "help"
        first = listed[1].split(", ")[0]
        return "@user done" if first == "nobody" else f"@{first} please help"

    @staticmethod
    def fumbles(request: Request) -> Sequence[str]:
        """A specialist passes; the planner stops."""
        return ["@user done" if "Not called yet" in request.prompt else "pass"]


def _bits(mask: int, n: int) -> list[bool]:
    return [bool(mask >> i & 1) for i in range(n)]


def _names(n: int) -> tuple[str, ...]:
    if not 1 <= n <= MOST:
        raise UserError(f"a game of {n} specialists was asked for; expected 1 to {MOST}")
    return tuple("abcdefghijklmnop"[:n])


def _tabulate(preset: str, n: int | None, weights: Sequence[float] | None) -> tuple[tuple[str, ...], tuple[float, ...]]:
    word = preset.rstrip("0123456789")
    if word not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    usual, game = PRESETS[word]
    size = n or int(preset[len(word) :] or 0) or len(weights or usual)
    players = _names(size)
    if weights is None:
        weights = usual if len(usual) == size else _other(word, size)
    if len(weights) != size:
        raise UserError(f"{size} specialists but {len(weights)} weights were given; give one weight a specialist")
    coalitions = (frozenset(compress(range(size), _bits(mask, size))) for mask in range(2**size))
    return players, tuple(float(game(coalition, weights)) for coalition in coalitions)


def _other(preset: str, n: int) -> Sequence[float]:
    """Weights for another number of specialists than usual."""
    if preset == "airport":
        return range(1, n + 1)
    if preset == "free_rider":
        return (0.6, 0.4, *[0] * n)[:n]
    return [1 / n] * n


def _given(table: Mapping[str, float] | Sequence[float]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Players and worths of the user's own game."""
    if isinstance(table, Mapping):
        players = sorted({name for key in table for name in re.split(r"\s*,\s*", key.strip()) if name})
        game = game_from_json({"players": players, "worths": table})
        return game.players, tuple(game.table.tolist())
    game = game_from_json({"n": max(1, len(table).bit_length() - 1), "table": list(table)})
    return _names(len(game.players)), tuple(game.table.tolist())
