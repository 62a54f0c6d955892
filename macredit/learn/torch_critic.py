"""A value head on a policy's own model, shared in memory: the hidden state of a message's last id → its return.

The head is linear and found in closed form, so that it has no learning rate and is exactly what its data say; the
model only lends its hidden states. With an adapter they are those of the frozen base, the same at every step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import torch

from macredit.errors import UserError
from macredit.learn.attention import Layout, inputs_of, packed_attention, why_not_packed
from macredit.learn.batch import TrainRow, row_of
from macredit.learn.critic import MEMORY, FloatND, Ids, Modelled, Quality, Reads, quality
from macredit.learn.learner import State
from macredit.learn.pack import packed, packs
from macredit.learn.vocabulary import hidden_at
from macredit.moves import Move
from macredit.rows import FloatN

BATCH_TOKENS = 8192
"""Ids computed at once."""


class Reader:
    """Reads a policy's model in this process; see :class:`macredit.learn.critic.Reads`.

    Args:
        policy: whose model is read; nothing of it changes.
    """

    def __init__(self, policy: Modelled) -> None:
        self._policy = policy
        self.width = int(policy.module.config.get_text_config().hidden_size)
        self.known = int(policy.module.get_input_embeddings().weight.shape[0])

    def states(self, asked: Sequence[Ids]) -> FloatND:
        """With an adapter those of the frozen base."""
        module = self._policy.module
        with nullcontext() if self._policy.adapter is None else module.disable_adapter():
            found = last_states(module, asked, self._packable)
        return np.array([found[ids] for ids in asked])

    @cached_property
    def _packable(self) -> bool:
        return why_not_packed(self._policy.module) is None


class TorchCritic:
    """Values of a policy's messages from its model's hidden states.

    Args:
        reader: of the model.
    """

    def __init__(self, reader: Reads) -> None:
        self._reader = reader
        self._head = Head(reader.width)
        self._read: dict[Ids, FloatN] = {}
        """Hidden states read since the last fit, so that what was asked is not computed again to learn from it."""

    def predict(self, moves: Sequence[Move]) -> FloatN:
        """See :class:`macredit.learn.critic.Values`."""
        return self._head.predict(self._hidden(moves))

    def fit(self, moves: Sequence[Move], returns: FloatN, weight: FloatN) -> Quality:
        """See :class:`macredit.learn.critic.Critic`."""
        hidden = self._hidden(moves)
        shown = quality(self._head.predict(hidden), returns, weight)
        self._head.fit(hidden, returns, weight)
        self._read = {}
        return shown

    def state(self) -> State:
        """The head's statistics."""
        head = self._head
        sums = {"squares": head.squares.copy(), "products": head.products.copy(), "errors": head.errors.copy()}
        return State(sums, {}, {"kind": "head", "width": head.width})

    def load(self, state: State) -> None:
        """Go on from a head on the same model."""
        sums = {name: np.array(state.tensors[name]) for name in ("squares", "products", "errors")}
        self._head = Head(self._head.width, **sums)

    def _hidden(self, moves: Sequence[Move]) -> FloatND:
        """float[M, D]: the hidden state of the last id of each move."""
        asked = [_ids(move, self._reader.known) for move in moves]
        new = sorted(set(asked) - self._read.keys())
        if new:
            self._read |= zip(new, self._reader.states(new), strict=True)
        return np.array([self._read[ids] for ids in asked]).reshape(len(moves), self._head.width)


class Head:
    """Linear regression of returns on hidden states with fading memory, from its sufficient statistics.

    w = (Σ x xᵀ + λ D I)⁻¹ Σ x (r − r̄), x the D hidden states in units of their own deviation from their means (ridge
    regression; Hoerl & Kennard 1970). Of the ``PRIORS`` λ the one in force is that whose predictions, each made before
    its return was seen, were best so far (Dawid 1984): a head is believed as far as it was right, and at first says
    the mean return. Every sum is multiplied by ``MEMORY`` before new data are added.

    Args:
        width: D.
        squares: float[D + 1, D + 1], Σ z zᵀ with z = (state, 1), to go on from.
        products: float[D + 1], Σ z r.
        errors: float[PRIORS], Σ (r − prediction)².
    """

    PRIORS = (np.inf, 100.0, 10.0, 1.0, 0.1, 0.01)

    def __init__(
        self, width: int, squares: FloatND | None = None, products: FloatN | None = None, errors: FloatN | None = None
    ) -> None:
        self.width = width
        self.squares: FloatND = np.zeros((width + 1, width + 1)) if squares is None else squares
        self.products: FloatN = np.zeros(width + 1) if products is None else products
        self.errors: FloatN = np.zeros(len(self.PRIORS)) if errors is None else errors
        self._slopes, self._levels = self._solve()

    def fit(self, hidden: FloatND, returns: FloatN, weight: FloatN) -> None:
        """Add float[M, D] hidden states with float[M] returns."""
        if self.squares[-1, -1]:
            off = returns[:, None] - self._lines(hidden)
            self.errors = MEMORY * self.errors + weight @ off**2
        z = np.hstack([hidden, np.ones((len(hidden), 1))])
        self.squares = MEMORY * self.squares + (z * weight[:, None]).T @ z
        self.products = MEMORY * self.products + z.T @ (weight * returns)
        self._slopes, self._levels = self._solve()

    def predict(self, hidden: FloatND) -> FloatN:
        """float[M]: expected returns; NaN before the first fit."""
        return np.asarray(self._lines(hidden)[:, self.errors.argmin()])

    def _lines(self, hidden: FloatND) -> FloatND:
        """float[M, PRIORS]."""
        return np.asarray(hidden @ self._slopes + self._levels)

    def _solve(self) -> tuple[FloatND, FloatN]:
        """float[D, PRIORS] slopes and float[PRIORS] levels."""
        n = self.squares[-1, -1]
        if not n:
            return np.zeros((self.width, len(self.PRIORS))), np.full(len(self.PRIORS), np.nan)
        mean, level = self.squares[:-1, -1] / n, self.products[-1] / n
        covariance = self.squares[:-1, :-1] / n - np.outer(mean, mean)
        deviation = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
        unit = np.where(deviation > 1e-6 * (1.0 + np.abs(mean)), deviation, np.inf)  # what never varies says nothing
        along = (self.products[:-1] - n * level * mean) / unit
        slopes = np.zeros((self.width, len(self.PRIORS)))
        for s, prior in enumerate(self.PRIORS):
            if prior < np.inf:
                ridge = prior * self.width * np.eye(self.width)
                slopes[:, s] = np.linalg.solve(n * covariance / np.outer(unit, unit) + ridge, along) / unit
        return slopes, level - mean @ slopes


@torch.no_grad()
def last_states(module: Any, asked: Iterable[Ids], packable: bool) -> dict[Ids, FloatN]:
    """float[D] for each sequence of ids: the model's last hidden state at its last id.

    Packed, what sequences begin with alike is computed once: alternatives share their context, and a conversation is
    read off its longest prompt. A model that cannot be packed computes them one by one.
    """
    device = next(module.parameters()).device
    rows = [_row(ids, n) for n, ids in enumerate(sorted(asked))]
    found: dict[Ids, FloatN] = {}
    with packed_attention(module) if packable else nullcontext():
        for group in packs(rows, BATCH_TOKENS) if packable else [[row] for row in rows]:
            pack = packed(group)
            inputs = inputs_of(pack, Layout(pack, device) if packable else None, device)
            states = hidden_at(module, torch.as_tensor(pack.places, device=device), **inputs)
            found |= zip((tuple(row.ids[:-1].tolist()) for row in group), states.double().cpu().numpy(), strict=True)
    return found


def _row(ids: Ids, n: int) -> TrainRow:
    """A row whose one trained id comes right after ``ids``, so that what predicts it is their last state."""
    return row_of(ids, (0,), sequence=n)


def _ids(move: Move, known: int) -> Ids:
    """What a move is to a model that knows so many ids."""
    ids = (move.prompt_ids or ()) + (move.token_ids or ())
    if not (move.prompt_ids and 0 <= min(ids) <= max(ids) < known):
        strange = [i for i in ids if not 0 <= i < known]
        has = f"id {strange[0]}, and its model knows 0 to {known - 1}" if strange else "no prompt ids on record"
        raise UserError(
            f"policy {move.policy!r} has a critic on its model, but a turn of agent {move.agent!r} on task "
            f"{move.task!r} has {has}; give episodes that this policy spoke in"
        )
    return ids
