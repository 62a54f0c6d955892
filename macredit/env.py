"""The team environment: a real ``pettingzoo.AECEnv`` in which agents exchange messages.

PettingZoo's book-keeping, the queue, addressing, snapshots and rebuilding live here once; an author writes the task:
``begin``, ``hear``, ``score``, and ``prompt`` where the default is not enough.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import pickle
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv

from macredit.errors import UserError
from macredit.seeds import Key
from macredit.team import Team

if TYPE_CHECKING:
    from macredit.policy import Policy

RESERVED = ("user", "all", "team", "error")
"""Addresses and reward names that no agent or tool may have."""

Scores = float | Mapping[str, float]


class MessageSpace(gymnasium.Space[str]):
    """All strings up to a length (``gymnasium.spaces.Text`` does not even contain a space)."""

    def __init__(self, max_length: int = 1_000_000, seed: int | None = None) -> None:
        super().__init__(shape=(), dtype=str, seed=seed)
        self.max_length = max_length

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a string that fits."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A few random lower-case letters."""
        letters = self.np_random.integers(97, 123, size=self.np_random.integers(0, 12))
        return "".join(map(chr, letters))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageSpace) and other.max_length == self.max_length

    @property
    def is_np_flattenable(self) -> bool:
        """Strings have no flat array."""
        return False


@dataclass(frozen=True, slots=True)
class Message:
    """A text on its way: what ``hear`` gets, and what an agent finds unread."""

    sender: str
    """An agent, a tool, or ``error``."""
    text: str
    """The body, without the address."""
    to: tuple[str, ...] = ()
    turn: int | None = None
    """Index of the turn that said it (for a tool's or error's text: the turn it answers)."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What ``hear`` may return instead of a bare state."""

    state: Any
    reply: str = ""
    """A tool's result, or the error of an invalid call: put before the speaker, which speaks again."""
    valid: bool = True
    """False: the call was invalid (the agent's own doing, not a failure)."""
    reward: float | None = None
    """A reward of this turn alone, for methods that declare its use."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Where a turn went; the facts about the last step."""

    to: tuple[str, ...]
    valid: bool
    reads: tuple[int, ...]
    reward: float | None
    context: str


@dataclass(frozen=True, slots=True)
class _Board:
    """Everything that changes during an episode, as one value."""

    state: Any
    queue: tuple[str, ...]
    inbox: Mapping[str, tuple[Message, ...]] = field(default_factory=dict)
    spoke: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Agent → indices of its turns."""
    turn: int = 0
    digest: str = ""
    """Of the transcript so far."""
    end: str | None = None
    log: tuple[Message, ...] = ()
    scored: tuple[float, Mapping[str, float]] | None = None
    """What the episode earned, once it is over: ``score`` is asked once."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A point to return to; in process only (the pickled board is never written to disk)."""

    key: Key
    absent: frozenset[str]
    board: bytes


class TeamEnv(AECEnv[str, Any, str]):  # type: ignore[misc]  # pettingzoo has no py.typed
    """Agents exchange messages until one of them answers the user; the team earns one score.

    Messages (``@name …``, ``@all …``, ``@user …``, or a JSON tool call) are turned into recipients here. Addressed
    agents wait in one first-in-first-out queue, each at most once; a speaker reads all its unread messages. The
    orchestrator speaks first. A turn that is addressed to nobody, or to somebody the graph forbids, is invalid: it is
    recorded and answered with an error text. The episode ends on a message to ``user``, an empty queue, or
    ``max_turns`` (``truncated``: scored and kept).
    """

    name: ClassVar[str] = "team_v0"
    """Carries a version; files do not."""
    tools: ClassVar[tuple[str, ...]] = ()
    """Names that ``hear`` answers itself."""
    args: Mapping[str, Any]
    """The constructor's arguments, for the record."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Note the constructor's arguments, so that the record can name them."""
        env: Self = super().__new__(cls)
        bound = inspect.signature(cls.__init__).bind_partial(env, *args, **kwargs).arguments
        bound.pop("self", None)
        env.args = {**{k: v for k, v in bound.items() if k != "kwargs"}, **bound.get("kwargs", {})}
        return env

    def __init__(self, team: Team, max_turns: int = 32, render_mode: str | None = None) -> None:
        super().__init__()
        for who in (*team.names, *self.tools):
            if not re.fullmatch(r"[\w-]+", who) or who in RESERVED:
                raise UserError(
                    f"the name {who!r} cannot be addressed; expected letters, digits, '_' or '-', "
                    f"and none of {', '.join(RESERVED)}"
                )
        if max_turns < 1:
            raise UserError(f"max_turns is {max_turns}; expected at least 1")
        self.team, self.max_turns, self.render_mode = team, max_turns, render_mode
        self.metadata = {"name": self.name, "render_modes": ["ansi"], "is_parallelizable": False}
        self.possible_agents = list(team.names)
        self.key = Key(0, "0")
        self.absent: frozenset[str] = frozenset()
        self.lost: frozenset[tuple[str, str]] = frozenset()
        self._board = _Board(None, ())
        self._dress()

    def _dress(self) -> None:
        """Spaces of this object's own: PettingZoo's seed test wants no sharing between objects."""
        self.observation_spaces = {
            name: spaces.Dict(observation=spaces.Discrete(self.max_turns + 1), text=MessageSpace())
            for name in self.possible_agents
        }
        self.action_spaces = {name: MessageSpace() for name in self.possible_agents}

    # -- what an author writes --------------------------------------------------------------------------------------

    def begin(self, rng: np.random.Generator) -> Any:
        """The task instance: one picklable value, drawn from ``rng`` alone (the whole group faces it)."""
        raise NotImplementedError(f"{type(self).__name__} must define begin(rng)")

    def prompt(self, state: Any, agent: str, unread: Sequence[Message]) -> str:
        """What the agent is shown now; earlier prompts and its own replies stay in its conversation."""
        return "\n".join(f"{message.sender}: {message.text}" for message in unread)

    def hear(self, state: Any, message: Message) -> Any:
        """The new state after a delivered message, or a :class:`Heard`."""
        return state

    def score(self, state: Any) -> Scores:
        """The team's reward at the end; or ``{"team": reward, agent: its own reward, …}``."""
        raise NotImplementedError(f"{type(self).__name__} must define score(state)")

    def route(self, state: Any, agent: str, text: str) -> str | None:
        """Where the agent's unaddressed text goes; None: to the only teammate, if there is just one."""
        return None

    def may_answer(self, agent: str) -> bool:
        """Whether the agent may address ``user``."""
        return True

    def heeds(self, agent: str, to: tuple[str, ...]) -> bool:
        """Whether ``hear`` or ``score`` may use what an agent tells these; False: only prompts show it."""
        return True

    # -- what an author may ask -------------------------------------------------------------------------------------

    @property
    def turn(self) -> int:
        """Index of the turn to come."""
        return self._board.turn

    @property
    def end(self) -> str | None:
        """``done`` or ``truncated`` once the episode is over."""
        return self._board.end

    @property
    def log(self) -> tuple[Message, ...]:
        """Every message so far."""
        return self._board.log

    def spoke(self, agent: str) -> int:
        """How often the agent has had its turn."""
        return len(self._board.spoke.get(agent, ()))

    def rng(self, name: str) -> np.random.Generator:
        """Randomness of this play under a name, such as the noise of a score."""
        return self.key.stream("env", name)

    def teammates(self, agent: str) -> tuple[str, ...]:
        """Whom the agent may message now."""
        reach = self.team.teammates(agent)
        return tuple(name for name in reach if name not in self.absent) if self.absent else reach

    def addresses(self, agent: str) -> tuple[str, ...]:
        """Everything the agent may write after ``@``: teammates, tools, the user."""
        return (*self.teammates(agent), *self.tools, *(["user"] if self.may_answer(agent) else []))

    def unread(self, agent: str) -> tuple[Message, ...]:
        """Messages the agent has not read yet."""
        return self._board.inbox.get(agent, ())

    # -- PettingZoo -------------------------------------------------------------------------------------------------

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """``Dict(observation: turn number, text: the prompt)``."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.Space[str]:
        """Any text."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Begin an episode: ``options`` may hold ``key`` (a :class:`Key`) and ``absent`` (agents left out)."""
        options = options or {}
        number = secrets.randbits(31) if seed is None else seed
        self.key = options.get("key") or Key(number, "0")
        self.absent = frozenset(options.get("absent", ()))
        for agent in self.absent:
            self.team[agent]
        first = () if self.team.orchestrator in self.absent else (self.team.orchestrator,)
        self._board = _Board(self.begin(self.key.instance()), first)
        self._open()
        if not first:
            self._finish("done")

    def _open(self) -> None:
        self.agents = [name for name in self.possible_agents if name not in self.absent] or self.possible_agents[:]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {name: {} for name in self.agents}
        self.agent_selection = self._board.queue[0] if self._board.queue else self.agents[0]

    def observe(self, agent: str) -> dict[str, Any]:
        """The agent's observation; the text is empty once the episode is over."""
        text = "" if self.end else self.prompt(self._board.state, agent, self.unread(agent))
        return {"observation": np.int64(self.turn), "text": text}

    def step(self, action: str | None) -> None:
        """The selected agent says ``action``."""
        if self.terminations[self.agent_selection] or self.truncations[self.agent_selection]:
            self._was_dead_step(action)
            return
        if not isinstance(action, str):
            raise TypeError(f"step got {action!r}; expected the text that {self.agent_selection!r} says")
        self._speak(action, null=False)

    def pass_turn(self) -> None:
        """The selected agent is silenced: its null message is empty and nobody is left waiting for it."""
        self._speak("", null=True)

    def render(self) -> str:
        """The transcript so far."""
        return "\n".join(f"{m.sender} → {', '.join(m.to) or '?'}: {m.text}" for m in self.log)

    def close(self) -> None:
        """Nothing to release."""

    # -- one turn ---------------------------------------------------------------------------------------------------

    def _speak(self, text: str, null: bool) -> None:
        agent, board = self.agent_selection, self._board
        unread, mine = self.unread(agent), board.spoke.get(agent, ())
        self._clear_rewards()
        self._cumulative_rewards[agent] = 0.0
        to, body, problem = self._null_address(agent, unread) if null else self._address(agent, text)
        message = Message(agent, body, to, board.turn)
        blank = replace(message, text="")
        lost = {name for name in to if (agent, name) in self.lost}
        heard = (
            Heard(board.state, problem, valid=False)
            if problem
            else self._hear(blank if to and lost.issuperset(to) else message)
        )
        context = _digest(self.key.seed, self.key.task, sorted(self.absent), agent, board.digest)
        asked = {m.turn for m in unread if m.turn is not None}.union(mine[-1:])
        reached = to if heard.valid else tuple(name for name in to if name in self.tools)
        self.delivery = Delivery(reached, heard.valid, tuple(sorted(asked)), heard.reward, context)
        inbox = {**board.inbox, agent: ()}
        queue = board.queue[1:]
        if not heard.valid or heard.reply or set(to) & set(self.tools):
            sender = next((name for name in to if name in self.tools), "error")
            answers = [(agent, Message(sender if heard.valid else "error", heard.reply, (agent,), board.turn))]
        else:
            answers = []
        arrived = [(name, blank if name in lost else message) for name in to if name in self.team.names]
        letters = arrived if heard.valid else []
        for name, letter in (*letters, *answers):
            inbox[name] = (*inbox.get(name, ()), letter)
            queue = queue if name in queue else (*queue, name)
        self._board = replace(
            board, state=heard.state, queue=queue, inbox=inbox, turn=board.turn + 1, log=(*board.log, message),
            spoke={**board.spoke, agent: (*mine, board.turn)},
            digest=_digest(board.digest, agent, text, null, *sorted(lost)),
        )  # fmt: skip
        if heard.valid and ("user" in to or not queue):
            self._finish("done")
        elif self._board.turn >= self.max_turns:
            self._finish("truncated")
        else:
            self.agent_selection = queue[0]

    def _hear(self, message: Message) -> Heard:
        heard = self.hear(self._board.state, message)
        return heard if isinstance(heard, Heard) else Heard(heard)

    def _address(self, agent: str, text: str) -> tuple[tuple[str, ...], str, str]:
        """(recipients, body, problem): what a text means, or why it means nothing."""
        names, body = parse(text)
        if names is None:
            default = self._default(agent, text)
            if default is not None:
                return (default,), text, ""
            return (), text, f"your message names nobody; begin with {self._choices(agent)}"
        expanded = [name for n in names for name in (self.teammates(agent) if n == "all" else (n,))]
        to = tuple(dict.fromkeys(expanded))
        wrong = [name for name in to if name not in self.addresses(agent)]
        if wrong or not to:
            return (), body, f"you cannot write to {wrong[0] if wrong else 'all'}; begin with {self._choices(agent)}"
        return to, body, ""

    def _default(self, agent: str, text: str) -> str | None:
        reach = self.teammates(agent)
        route = self.route(self._board.state, agent, text)
        if route is not None and route not in self.absent:
            return route
        if len(reach) == 1:
            return reach[0]
        return None if reach or not self.may_answer(agent) else "user"

    def _null_address(self, agent: str, unread: Iterable[Message]) -> tuple[tuple[str, ...], str, str]:
        default = self._default(agent, "")
        if default is not None:
            return (default,), "", ""
        senders = dict.fromkeys(m.sender for m in unread if m.sender in self.team.names)
        return tuple(name for name in senders if name in self.teammates(agent)), "", ""

    def _choices(self, agent: str) -> str:
        return ", ".join(f"@{name}" for name in self.addresses(agent)) or "nothing: nobody may be addressed"

    def _finish(self, end: str) -> None:
        self._board = replace(self._board, end=end, queue=())
        self._board = replace(self._board, scored=self.scores())
        team, own = self.scores()
        for name in self.agents:
            self.rewards[name] = team + own.get(name, 0.0)
            self.terminations[name], self.truncations[name] = end == "done", end == "truncated"
        self._accumulate_rewards()
        self.agent_selection = self.agents[0]

    def scores(self) -> tuple[float, Mapping[str, float]]:
        """The team's reward and the agents' own: final once the episode is over, else as ``score`` gives them now."""
        if self._board.scored is not None:
            return self._board.scored
        given = self.score(self._board.state)
        if not isinstance(given, Mapping):
            return float(given), {}
        if "team" not in given or not set(given) <= {"team", *self.team.names}:
            raise UserError(f"{self.name}: score returned {sorted(given)}; expected 'team' and names of agents")
        return float(given["team"]), {name: float(x) for name, x in given.items() if name != "team"}

    # -- going back -------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The present moment."""
        return Snapshot(self.key, self.absent, pickle.dumps(self._board))

    def restore(self, snapshot: Snapshot) -> None:
        """Return to a moment that this process snapshotted."""
        self.key, self.absent = snapshot.key, snapshot.absent
        self._board = pickle.loads(snapshot.board)  # noqa: S301 (made by snapshot() in this process)
        self._open()
        if self._board.end:
            self._finish(self._board.end)

    def branch(self, snapshot: Snapshot | None = None) -> Self:
        """Another environment of the same task, at a moment of this one (default: the present)."""
        other = copy.copy(self)
        other._dress()
        other.restore(snapshot or self.snapshot())
        return other

    def rebuild(self, key: Key, texts: Sequence[str | None], absent: Iterable[str] = ()) -> None:
        """Come to a moment by feeding what was said since the beginning (None: a null message); no model is called."""
        self.reset(options={"key": key, "absent": absent})
        for text in texts:
            if text is None:
                self.pass_turn()
            else:
                self.step(text)

    # -- oracle hooks, where the task allows ------------------------------------------------------------------------

    def worth(self, coalition: frozenset[str]) -> float | None:
        """The exact worth of a coalition of players; None: not known."""
        return None

    def exact_credit(self, policies: Mapping[str, Policy] | None = None) -> Mapping[str, Mapping[str, float]] | None:
        """Index (``shapley``, ``banzhaf``, ``loo``) → player → its exact expected credit; None: not known.

        Args:
            policies: who speaks (as in a :class:`~macredit.rollout.World`); None: everyone does its part.
        """
        return None

    def gold(self) -> str | None:
        """The right answer of the present task; None: not known."""
        return None


_CALL = re.compile(r"\s*(?:<tool_call>\s*)?(\{.*\})\s*(?:</tool_call>\s*)?\Z", re.DOTALL)
_MENTIONS = re.compile(r"\s*((?:@[\w-]+[,:]?\s*)+)", re.UNICODE)


def parse(text: str) -> tuple[tuple[str, ...] | None, str]:
    """(whom a text names, its body); None where it names nobody.

    ``@name …``, ``@a @b …``, or JSON: ``{"to": …, "text": …}``, ``{"name": "send_message", "arguments": {"to": …,
    "text": …}}``, ``{"name": tool or agent, "arguments": …}``, bare or between ``<tool_call>`` tags.
    """
    called = _CALL.match(text)
    if called:
        try:
            data = json.loads(called[1])
        except (ValueError, RecursionError):
            return None, text
        return _call(data, text)
    mentions = _MENTIONS.match(text)
    if mentions:
        return tuple(re.findall(r"@([\w-]+)", mentions[1])), text[mentions.end() :]
    return None, text


def _call(data: Any, text: str) -> tuple[tuple[str, ...] | None, str]:
    arguments = data.get("arguments", data)
    if not isinstance(arguments, Mapping):
        arguments = {"text": arguments}
    to = arguments.get("to", data.get("name"))
    names = (to,) if isinstance(to, str) else to
    if not names or not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return None, text
    body = arguments.get("text", arguments.get("query", arguments.get("content")))
    if body is None:
        body = json.dumps({k: v for k, v in arguments.items() if k not in ("to", "name")}, ensure_ascii=False)
    return tuple(name.removeprefix("@") for name in names), body if isinstance(body, str) else json.dumps(body)


def _digest(*parts: object) -> str:
    data = json.dumps(parts, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=8).hexdigest()
