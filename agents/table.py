"""A softmax over a finite list of replies for each context: exact probabilities, exact gradient, numpy alone."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from macredit.episode import write_atomically
from macredit.errors import UserError, unknown
from macredit.learn import LearnerConfig, Objective, State, TrainRow
from macredit.learn.handover import Weights
from macredit.learn.learner import check_finite
from macredit.learn.loss import FloatK
from macredit.policy import BatchPolicy, Request, Said

Context = tuple[int, int]
"""Prompt ids of a table: which list of replies, and the digest of what was asked."""


class Table(BatchPolicy):
    """π(reply | context) = softmax(logits[context]); a context is (agent, newest prompt); unseen logits are 0.

    Args:
        replies: what may be said: one list for everyone, or agent → list.
        file: a ``table.json`` or its folder, as :meth:`export` writes it, instead of ``replies``.
        name: the policy's name.
    """

    def __init__(
        self,
        replies: Sequence[str] | Mapping[str, Sequence[str]] = (),
        file: str | os.PathLike[str] | None = None,
        name: str = "",
    ) -> None:
        saved = {} if file is None else _read(Path(file))
        replies = saved.get("replies", replies)
        self.replies: dict[str, tuple[str, ...]] = (
            {agent: tuple(texts) for agent, texts in replies.items()}
            if isinstance(replies, Mapping)
            else {"": tuple(replies)}
        )
        if not self.replies or not all(self.replies.values()):
            raise UserError("a table policy was given no replies; give a list of texts, or agent → list of texts")
        self._lists = list(self.replies.values())
        self._start = {
            _context(name): np.array(logits, dtype=float) for name, logits in saved.get("logits", {}).items()
        }
        self.logits: dict[Context, FloatK] = {context: logits.copy() for context, logits in self._start.items()}
        self._rate = self._max_norm = 0.0
        origin = json.dumps([list(self.replies.items()), saved]).encode()
        self._origin, self._updates = hashlib.blake2b(origin, digest_size=4).hexdigest(), 0
        super().__init__(name, version=f"{self._origin}.0", sampling={"temperature": 1.0})

    # -- speaking -------------------------------------------------------------------------------------------------

    def context(self, agent: str, prompt: str) -> Context:
        """The prompt ids under which an agent's prompt is known."""
        names = list(self.replies)
        if names != [""] and agent not in self.replies:
            raise unknown("agent of the table's replies", agent, names)
        which = 0 if names == [""] else names.index(agent)
        digest = hashlib.blake2b(json.dumps([agent, prompt]).encode(), digest_size=6)
        return which, int.from_bytes(digest.digest(), "big")

    def probabilities(self, agent: str, prompt: str) -> FloatK:
        """float[replies]: the exact probability of each reply."""
        return np.exp(self._log_softmax(self.context(agent, prompt)))

    def distribution(self, request: Request) -> Mapping[str, float]:
        """The probability of every reply."""
        context = self.context(request.agent, request.prompt)
        chances: dict[str, float] = {}
        for text, p in zip(self._lists[context[0]], np.exp(self._log_softmax(context)).tolist(), strict=True):
            chances[text] = chances.get(text, 0.0) + p
        return chances

    def say(self, batch: Sequence[Request]) -> list[Said]:
        """One reply a request, by the inverse of the cumulative distribution at one keyed uniform."""
        return [self._say(request) for request in batch]

    def _say(self, request: Request) -> Said:
        context = self.context(request.agent, request.prompt)
        logp = self._log_softmax(context)
        below = np.cumsum(np.exp(logp))
        reply = min(int(np.searchsorted(below, request.rng().random() * below[-1], side="right")), len(logp) - 1)
        return self._said(context, reply, float(logp[reply]))

    def dictate(self, request: Request, text: str) -> Said:
        """What would have been recorded had the policy said ``text``: ids to imitate, without log-probabilities."""
        context = self.context(request.agent, request.prompt)
        if text not in self._lists[context[0]]:
            raise unknown("reply of the table", text, self._lists[context[0]])
        return self._said(context, self._lists[context[0]].index(text), None)

    def _said(self, context: Context, reply: int, logp: float | None) -> Said:
        return Said(
            self._lists[context[0]][reply], prompt_ids=context, token_ids=(reply,),
            logprobs=None if logp is None else (logp,), sampling=self.sampling, usage={"prompt": 1, "sampled": 1},
        )  # fmt: skip

    def _logits(self, context: Context, reference: bool = False) -> FloatK:
        zeros = np.zeros(len(self._lists[context[0]]))
        return (self._start if reference else self.logits).get(context, zeros)

    def _log_softmax(self, context: Context, reference: bool = False) -> FloatK:
        logits = self._logits(context, reference)
        shifted = logits - logits.max()
        return np.asarray(shifted - np.log(np.exp(shifted).sum()))

    # -- learning -------------------------------------------------------------------------------------------------

    def prepare(self, config: LearnerConfig) -> None:
        """Plain stochastic gradient descent, by default with rate 4."""
        if config.schedule != "constant" or config.weight_decay:
            raise UserError(
                f"a table policy was given schedule {config.schedule!r} and weight decay {config.weight_decay}; "
                "it learns by plain gradient descent: leave them at 'constant' and 0"
            )
        self._rate = 4.0 if config.rate is None else config.rate
        self._max_norm = config.max_norm

    def logprobs(self, rows: Sequence[TrainRow], reference: bool = False) -> list[FloatK]:
        """float[3] a row: 0 for the two ids of the context, the log-probability of the reply."""
        pairs = [_pair(row) for row in rows]
        return [np.array([0.0, 0.0, self._log_softmax(context, reference)[reply]]) for context, reply in pairs]

    def update(self, rows: Sequence[TrainRow], loss: Objective) -> dict[str, float]:
        """One step along the exact gradient: d log π(r) / d logits = onehot(r) − π."""
        tokens, pairs = loss.tokens(rows), [_pair(row) for row in rows]
        logps = [self._log_softmax(context) for context, _ in pairs]
        logp = np.array([all_[reply] for all_, (_, reply) in zip(logps, pairs, strict=True)])
        gradient: dict[Context, FloatK] = {}
        for (context, reply), all_, slope in zip(pairs, logps, loss(logp, tokens).gradient, strict=True):
            total = gradient.setdefault(context, np.zeros(len(all_)))
            total -= slope * np.exp(all_)
            total[reply] += slope
        norm = float(np.sqrt(sum(float(g @ g) for g in gradient.values())))
        scale = self._rate * min(1.0, self._max_norm / norm if norm else 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            moved = {context: self._logits(context) - scale * g for context, g in gradient.items()}
            size = float(np.sqrt(sum(float(one @ one) for one in moved.values())))
        shown = loss.metrics(logp, tokens)
        numbers = {"loss": shown["loss"], "gradient norm": norm, "norm of the weights": size}
        check_finite(self.name, self._updates + 1, **numbers)
        self.logits |= moved
        self._updates += 1
        self.version = f"{self._origin}.{self._updates}"
        entropy = float(np.mean([-(np.exp(all_) @ all_) for all_ in logps]))
        return shown | {"gradient": norm, "entropy": entropy, "rate": self._rate}

    def state(self) -> State:
        """All logits."""
        tensors = {_name(context): logits.copy() for context, logits in self.logits.items()}
        replies = {agent: list(texts) for agent, texts in self.replies.items()}
        return State(tensors, {"updates": self._updates}, {"kind": "table", "replies": replies, "origin": self._origin})

    def load(self, state: State) -> None:
        """Go on from a state of a table with the same replies."""
        self.logits = {_context(name): np.array(logits) for name, logits in state.tensors.items()}
        self._updates = state.scalars["updates"]
        self.version = f"{self._origin}.{self._updates}"

    def blank(self, names: Iterable[str]) -> dict[str, FloatK]:
        """Zeros for contexts of this table: see :class:`macredit.learn.learner.Grows`."""
        known = {f"{which}/": len(texts) for which, texts in enumerate(self._lists)}
        return {
            name: np.zeros(replies)
            for name in names
            for start, replies in known.items()
            if name.startswith(start) and name.removeprefix(start).isdecimal()
        }

    def receive(self, weights: Weights) -> None:
        """Speak with a learner's logits."""
        self.logits = {_context(name): np.array(logits) for name, logits in weights.tensors.items()}
        self.version = weights.version

    def export(self, folder: str | os.PathLike[str]) -> None:
        """Write ``table.json``: replies and logits."""
        replies: Any = self.replies if list(self.replies) != [""] else self.replies[""]
        logits = {_name(context): logits.tolist() for context, logits in sorted(self.logits.items())}
        write_atomically(Path(folder) / "table.json", json.dumps({"replies": replies, "logits": logits}).encode())


def _pair(row: TrainRow) -> tuple[Context, int]:
    which, digest, reply = (int(i) for i in row.ids)
    return (which, digest), reply


def _name(context: Context) -> str:
    return f"{context[0]}/{context[1]}"


def _context(name: str) -> Context:
    which, digest = name.split("/")
    return int(which), int(digest)


def _read(path: Path) -> dict[str, Any]:
    path = path / "table.json" if path.is_dir() else path
    try:
        saved = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as a table policy ({error}); expected replies and logits") from None
    if not isinstance(saved, dict) or not {"replies", "logits"} <= set(saved):
        raise UserError(f"{path}: expected an object with 'replies' and 'logits', as an exported table has them")
    return saved
