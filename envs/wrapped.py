"""Any seeded PettingZoo AEC environment as a team environment: moves are said as numbers.

A started PettingZoo game cannot be copied (``deepcopy`` silently restarts some). So the state is the seed and the moves
so far, a moment is reached again by re-stepping, and every observation on the way must equal the one seen first.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from pettingzoo import AECEnv

from macredit.env import Heard, Message, TeamEnv
from macredit.errors import UserError, unknown
from macredit.own import own
from macredit.team import Agent, Team


@dataclass(frozen=True)
class Game:
    """Where a game stands."""

    seed: int
    moves: tuple[int, ...]
    seen: tuple[str, ...]
    """Digests of what the mover saw: before each move, and now."""
    mover: str
    """Who moves next; empty when the game is over."""
    earned: Mapping[str, float]
    """Agent → sum of its rewards so far."""


class _Table:
    """A started game; ``moves`` says where it stands."""

    def __init__(self, make: Callable[[], AECEnv[str, Any, Any]], seed: int) -> None:
        self.env, self.seed = make(), seed
        self.env.reset(seed=seed)
        self.moves: tuple[int, ...] = ()
        self.seen: tuple[str, ...] = (self._look(),)
        self.earned = dict.fromkeys(self.env.possible_agents, 0.0)

    def play(self, move: int) -> None:
        self.env.step(move)
        for agent, reward in self.env.rewards.items():
            self.earned[agent] += float(reward)
        while self.env.agents and self._dead(self.env.agent_selection):
            self.env.step(None)
        self.moves, self.seen = (*self.moves, move), (*self.seen, self._look())

    def _dead(self, agent: str) -> bool:
        return bool(self.env.terminations[agent] or self.env.truncations[agent])

    def _look(self) -> str:
        seen = self.env.observe(self.env.agent_selection) if self.env.agents else None
        return hashlib.blake2b(_bytes(seen), digest_size=8).hexdigest()

    def game(self) -> Game:
        mover = self.env.agent_selection if self.env.agents else ""
        return Game(self.seed, self.moves, self.seen, mover, dict(self.earned))


class Wrapped(TeamEnv):
    """A PettingZoo game in which each player says the number of its move; the team earns what the players earn.

    A text that holds no legal number is an invalid turn. The empty text, and so the null message, plays the lowest
    legal move. The message goes to whoever moves next, or to the user when the game is over.

    Args:
        env: ``module:function`` that makes the environment, or the function itself.
        reward: ``sum`` of all players' rewards, or the name of one player.
        max_turns: the limit of turns.
        kwargs: passed to the function.

    Raises:
        UserError: it cannot be loaded, or a player's moves are not numbered (``Discrete``); later, if a game does not
            repeat itself for a seed.
    """

    name = "wrapped_v0"

    def __init__(self, env: str | Callable[..., Any], reward: str = "sum", max_turns: int = 200, **kwargs: Any) -> None:
        self._make: Callable[[], AECEnv[str, Any, Any]] = partial(_load(env), **kwargs)
        self._table = _Table(self._make, 0)
        self._said: tuple[Game, str, Game] | None = None
        players = list(self._table.env.possible_agents)
        for player in players:
            space = self._table.env.action_space(player)
            if not isinstance(space, Discrete):
                raise UserError(
                    f"{player!r} moves in {space}; expected Discrete: a text must name the move by a number"
                )
        if reward not in ("sum", *players):
            raise unknown("reward", reward, ("sum", *players))
        self.reward = reward
        edges = tuple((a, b) for a in players for b in players if a != b)
        first = self._table.env.agent_selection
        super().__init__(Team(tuple(Agent(player) for player in players), first, edges), max_turns=max_turns)

    def begin(self, rng: np.random.Generator) -> Game:
        """Start a game from a drawn seed."""
        if self.absent:
            raise UserError(f"{sorted(self.absent)} cannot be removed from a game; use the absence 'null_message'")
        self._table = _Table(self._make, int(rng.integers(2**31)))
        game = self._table.game()
        if game.mover != self.team.orchestrator:
            raise UserError(
                f"{game.mover!r} moves first in this game and {self.team.orchestrator!r} in another; "
                "wrap an environment in which the same player always begins"
            )
        return game

    def prompt(self, state: Game, agent: str, unread: Sequence[Message]) -> str:
        """What the player observes, and its legal moves."""
        seen = self._at(state).env.observe(agent)
        shown = seen["observation"] if isinstance(seen, Mapping) and "observation" in seen else seen
        errors = [message.text for message in unread if message.sender == "error"]
        return "\n".join([*errors, str(shown), f"Legal moves: {', '.join(map(str, self._legal(state, agent)))}"])

    def route(self, state: Game, agent: str, text: str) -> str:
        """To whoever moves next."""
        after = self._after(state, text)
        return agent if isinstance(after, str) else after.mover or "user"

    def hear(self, state: Game, message: Message) -> Game | Heard:
        """Play the move."""
        after = self._after(state, message.text)
        if isinstance(after, str):
            return Heard(state, after, valid=False)
        if message.to != (after.mover or "user",):
            return Heard(state, "Say the number of your move, without an address.", valid=False)
        return after

    def score(self, state: Game) -> float:
        """What the players earned together, or one of them."""
        return sum(state.earned.values()) if self.reward == "sum" else state.earned[self.reward]

    def _legal(self, state: Game, agent: str) -> list[int]:
        env = self._at(state).env
        space, seen = env.action_space(agent), env.observe(agent)
        about = seen if isinstance(seen, Mapping) and "action_mask" in seen else env.infos.get(agent, {})
        mask = about.get("action_mask", np.ones(int(space.n)))
        return [int(space.start) + int(move) for move in np.flatnonzero(mask)]

    def _after(self, state: Game, text: str) -> Game | str:
        """The game after what the mover says, or what is wrong with it."""
        if self._said is not None and self._said[0] is state and self._said[1] == text:
            return self._said[2]
        legal = self._legal(state, state.mover)
        number = re.search(r"-?\d+", text)
        if text.strip() and (number is None or int(number[0]) not in legal):
            return f"{number[0] if number else 'This'} is no legal move; say one of {', '.join(map(str, legal))}."
        table = self._at(state)
        table.play(int(number[0]) if number else legal[0])
        self._said = (state, text, table.game())
        return self._said[2]

    def _at(self, state: Game) -> _Table:
        """The game at this moment; re-stepped from its seed unless the table at hand is on the way."""
        table = self._table
        if table.seed != state.seed or table.moves != state.moves[: len(table.moves)]:
            table = _Table(self._make, state.seed)
        for move in state.moves[len(table.moves) :]:
            table.play(move)
        if table.seen != state.seen:
            step = next(i for i, (a, b) in enumerate(zip(table.seen, state.seen, strict=True)) if a != b)
            raise UserError(
                f"the game of seed {state.seed} does not repeat itself: after the same {step} moves another "
                "observation came; only environments that are fully determined by their seed can be wrapped"
            )
        self._table = table
        return table


def _load(env: str | Callable[..., Any]) -> Callable[..., Any]:
    if callable(env):
        return env
    found: Callable[..., Any] = own("the game", env, "function of a PettingZoo AEC environment")
    return found


def _bytes(seen: Any) -> bytes:
    """An observation as bytes that are equal for equal ones."""
    if isinstance(seen, np.ndarray):
        return f"{seen.dtype}{seen.shape}".encode() + seen.tobytes()
    if isinstance(seen, Mapping):
        return b"".join(repr(name).encode() + _bytes(part) for name, part in sorted(seen.items()))
    if isinstance(seen, tuple | list):
        return b"(" + b",".join(map(_bytes, seen)) + b")"
    return repr(seen).encode()
