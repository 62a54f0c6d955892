"""Whatever speaks for agents: requests in, said texts out, ids beside them where there are any."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from macredit.seeds import Key


class Chat(NamedTuple):
    """One message of an agent's conversation as its model sees it."""

    role: Literal["system", "user", "assistant"]
    content: str


_EXAMPLE = re.compile(r"^--- (user|assistant)[ \t]*\n", re.MULTILINE)


def opening(role: str) -> tuple[Chat, ...]:
    """The conversation that a role text opens: instructions, then worked examples.

    Examples follow lines ``--- user`` and ``--- assistant`` and become turns of their own, in the very form in which
    the agent will be asked: small models learn from these far better than from examples inside the instructions.
    """
    instructions, *parts = _EXAMPLE.split(role)
    chats = [Chat("system", instructions.strip())] if instructions.strip() else []
    for who, text in zip(parts[::2], parts[1::2], strict=True):
        chats.append(Chat("user" if who == "user" else "assistant", text.strip()))
    return tuple(chats)


@dataclass(frozen=True, slots=True)
class Said:
    """What a policy answered. Ids and log-probabilities are None where the policy has none."""

    text: str
    prompt_ids: tuple[int, ...] | None = None
    """The whole prompt."""
    token_ids: tuple[int, ...] | None = None
    """Exactly the ids that were sampled, an end token among them if it was sampled."""
    logprobs: tuple[float, ...] | None = None
    """Natural log-probability of each sampled id under ``sampling``."""
    finish: str = "stop"
    """``stop`` or ``length``."""
    sampling: Mapping[str, Any] | None = None
    usage: Mapping[str, int] | None = None
    """Tokens: ``prompt``, ``sampled``; ``cached`` where the engine says."""


@dataclass(frozen=True, slots=True)
class Request:
    """One agent is to speak."""

    agent: str
    messages: tuple[Chat, ...]
    """Its conversation so far: role text, prompts and own replies, the newest prompt last."""
    key: Key
    """Whose randomness this is: ``request.rng()`` is the only source a policy may use."""
    call: int = 0
    """How often this agent had its turn before in this play."""
    teammates: tuple[str, ...] = ()
    """Whom it may address."""
    opened: int = 0
    """How many of the messages its role text opened the conversation with; the rest is this episode's."""
    after: Said | None = None
    """Its previous reply in this conversation, so that ids go on where they ended and text is never re-encoded."""

    def rng(self) -> np.random.Generator:
        """The randomness of exactly this call."""
        return self.key.stream("policy", self.agent, self.call)

    def fingerprint(self) -> str:
        """Digest of everything the reply may depend on besides the policy: equal fingerprints, equal replies."""
        ids = (self.after.prompt_ids, self.after.token_ids) if self.after is not None else None
        key = (self.key.seed, self.key.task, self.key.group, self.key.sample)
        parts = (self.agent, self.messages, key, self.call, self.teammates, ids)
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()

    @property
    def prompt(self) -> str:
        """The newest prompt."""
        return self.messages[-1].content

    @property
    def heard(self) -> tuple[str, ...]:
        """Every prompt of this episode."""
        return tuple(chat.content for chat in self.messages[self.opened :] if chat.role == "user")


@runtime_checkable
class Policy(Protocol):
    """The contract of every policy."""

    name: str
    """Its name in configurations and records."""
    version: str
    """Changes whenever the same request may get another answer: a step counter or a digest of the weights."""
    sampling: Mapping[str, Any]
    """Sampling parameters, recorded with every turn."""

    def submit(self, requests: Sequence[tuple[int, Request]]) -> None:
        """Take requests, each with a ticket; returns at once."""
        ...

    def collect(self) -> Sequence[tuple[int, Said | Exception]]:
        """Answers that are ready, by ticket; blocks until at least one is. A failed call is its exception."""
        ...


@runtime_checkable
class Enumerable(Protocol):
    """What a policy may offer besides: the exact probabilities of its replies."""

    def distribution(self, request: Request) -> Mapping[str, float] | None:
        """Reply → probability, for every reply it may give; None: not known."""
        ...


@dataclass
class BatchPolicy(ABC):
    """A policy that answers everything pending in one batch: subclasses write ``say`` alone."""

    name: str = ""
    version: str = "0"
    sampling: Mapping[str, Any] = field(default_factory=dict)
    _pending: list[tuple[int, Request]] = field(default_factory=list, init=False, repr=False)

    @abstractmethod
    def say(self, batch: Sequence[Request]) -> Sequence[Said]:
        """One answer a request, in order."""

    def submit(self, requests: Sequence[tuple[int, Request]]) -> None:
        """Keep the requests for the next ``collect``."""
        self._pending.extend(requests)

    def collect(self) -> Sequence[tuple[int, Said | Exception]]:
        """Answer everything pending."""
        pending, self._pending = self._pending, []
        said = self.say([request for _, request in pending])
        return [(ticket, answer) for (ticket, _), answer in zip(pending, said, strict=True)]


def tag(policy: Policy) -> str:
    """``name@version``, as turns record it."""
    return f"{policy.name}@{policy.version}"
