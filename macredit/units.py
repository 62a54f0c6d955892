"""What can be taken away from an episode: agents, turns, messages, links; and which of them an episode came to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from macredit.episode import Episode, Turn
from macredit.team import Team

Over = Literal["agents", "turns", "messages", "links"]
"""What the players of a coalition are."""


@dataclass(frozen=True, slots=True, order=True)
class TurnUnit:
    """An agent's n-th turn; without it the agent is not asked there, and says nothing."""

    agent: str
    call: int

    def __str__(self) -> str:
        return f"{self.agent}/{self.call}"


@dataclass(frozen=True, slots=True, order=True)
class MessageUnit:
    """What an agent says in its n-th turn; without it the text arrives empty, and its author alone remembers it."""

    agent: str
    call: int

    def __str__(self) -> str:
        return f"{self.agent}/{self.call}"


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """A channel from one agent to another; without it everything said over it arrives empty."""

    sender: str
    receiver: str

    def __str__(self) -> str:
        return f"{self.sender}>{self.receiver}"


Unit = str | TurnUnit | MessageUnit | Link
"""An agent is named by its bare name."""
Coalition = frozenset[Unit]
Heeded = Callable[[Turn], bool]
"""Whether anything but a prompt may have used a turn's message."""


def calls(turns: Sequence[Turn]) -> Iterator[tuple[Turn, int]]:
    """Each turn with how often its agent had spoken before."""
    spoken: dict[str, int] = {}
    for turn in turns:
        yield turn, spoken.get(turn.agent, 0)
        spoken[turn.agent] = spoken.get(turn.agent, 0) + 1


def units_by_turn(episode: Episode, team: Team, heeded: Heeded) -> list[Coalition]:
    """For each turn, whose absence would change it or what follows.

    A message that no later turn read and nothing else used changes nothing, nor do links that carry only such; where
    the record does not say who read or received what, everything may have.
    """
    known = all(turn.reads is not None for turn in episode.turns)
    author = {turn.id: turn.agent for turn in episode.turns}
    read = {name for turn in episode.turns for name in turn.reads or () if author.get(name) != turn.agent}
    found = []
    for turn, call in calls(episode.turns):
        units: set[Unit] = {turn.agent, TurnUnit(turn.agent, call)}
        if not turn.null and (not known or turn.id in read or heeded(turn)):
            reached = team.teammates(turn.agent) if turn.to is None else turn.to
            units |= {Link(turn.agent, name) for name in reached if name in team.names}
            units.add(MessageUnit(turn.agent, call))
        found.append(frozenset(units))
    return found


def units_of(episode: Episode, team: Team, over: Over) -> tuple[Unit, ...]:
    """The players of an episode, in order of appearance; of agents, the team's specialists.

    Turns and messages are those of the record; a link is a player if something went over it or, where the record does
    not say, might have.
    """
    real = [(turn, call) for turn, call in calls(episode.turns) if not turn.null]
    match over:
        case "turns":
            return tuple(TurnUnit(turn.agent, call) for turn, call in real)
        case "messages":
            return tuple(MessageUnit(turn.agent, call) for turn, call in real)
        case "links":
            ends = ((turn.agent, team.teammates(turn.agent) if turn.to is None else turn.to) for turn, _ in real)
            used = (Link(sender, name) for sender, names in ends for name in names if name in team.names)
            return tuple(dict.fromkeys(used))
        case "agents":
            return team.specialists
