"""Training rows of a team of three at realistic lengths, and the work that a learner cannot avoid on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from macredit.advantage import normalise
from macredit.learn import TrainRow

SHARED = {"planner": 1.0, "solver": 0.75, "verifier": 0.5}
"""Agent → the part of its prompt that it shares with its group; the rest is what its teammates said."""


@dataclass(frozen=True)
class Size:
    """How much of what: a step has tasks × group rows an agent."""

    tasks: int
    group: int
    prompt: tuple[int, int]
    """Fewest and most tokens."""
    reply: tuple[int, int]
    vocabulary: int


def team_rows(size: Size, seed: int = 0) -> dict[str, list[TrainRow]]:
    """Rows by agent; prompts of uniform length, replies of log-uniform length, random ids, advantages of both signs."""
    rng = np.random.default_rng(seed)
    return {agent: _agent_rows(rng, size, shared) for agent, shared in SHARED.items()}


def _agent_rows(rng: np.random.Generator, size: Size, shared: float) -> list[TrainRow]:
    group = np.repeat(np.arange(size.tasks), size.group)
    advantage = normalise(rng.normal(size=len(group)), group).advantage
    rows: list[TrainRow] = []
    for _ in range(size.tasks):
        prompt = rng.integers(300, size.vocabulary, rng.integers(*size.prompt, endpoint=True))
        start = int(shared * len(prompt))
        for _ in range(size.group):
            own = rng.integers(300, size.vocabulary, len(prompt) - start)
            reply = rng.integers(300, size.vocabulary, int(np.exp(rng.uniform(*np.log(size.reply)))))
            ids = np.concatenate([prompt[:start], own, reply])
            mask = np.arange(len(ids)) >= len(prompt)
            n = len(rows)
            rows.append(TrainRow(ids, mask, np.zeros(len(ids)), float(advantage[n]), 1.0, n))
    return rows


@dataclass(frozen=True)
class Work:
    """What a forward pass over some rows must compute at least once."""

    tokens: int
    attended: int
    """Pairs of a token and one it attends to, itself included."""
    trained: int
    """Tokens whose log-probability is asked for."""


def work_of(rows: Sequence[TrainRow], shared: bool) -> Work:
    """The work of rows computed one by one or, if ``shared``, of the tokens that differ or follow a difference.

    A row's last token predicts nothing.
    """
    needed = sorted(row.ids[:-1].tolist() for row in rows)
    begin = [0, *(_alike(one, two) if shared else 0 for one, two in pairwise(needed))]
    spans = [(start, len(ids)) for start, ids in zip(begin, needed, strict=True)]
    return Work(
        tokens=sum(stop - start for start, stop in spans),
        attended=sum((stop * (stop + 1) - start * (start + 1)) // 2 for start, stop in spans),
        trained=sum(int(row.mask.sum()) for row in rows),
    )


def _alike(one: Sequence[int], two: Sequence[int]) -> int:
    """How many ids two rows begin with alike."""
    return next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))


def model_flops(work: Work, module: Any) -> float:
    """Floating-point operations of forward and backward pass, nothing computed twice.

    f · (2 P T + 2 D V K) + 3 · 4 · layers · D_attention · pairs + 3 · 2 · P_adapter · T, with T tokens, K trained ones,
    P parameters of the layers, D V those of the output layer, and f = 3 where all parameters learn (the backward pass
    costs twice the forward pass: gradients of inputs and of weights), 2 where an adapter does (of inputs alone). The
    embedding is a look-up. After Chowdhery et al. 2022 (PaLM, appendix B, arXiv 2204.02311), with the pairs counted.
    """
    config = module.config
    sizes = {key: p.numel() for key, p in module.named_parameters()}
    adapters = {key for key in sizes if "lora_" in key}
    layers = sum(n for key, n in sizes.items() if ".layers." in key and key not in adapters)
    learns = sum(sizes[key] for key, p in module.named_parameters() if key in adapters and p.requires_grad)
    output = config.hidden_size * config.vocab_size
    dense = 2 * layers * work.tokens + 2 * output * work.trained
    attention = 4 * config.num_hidden_layers * config.hidden_size * work.attended
    return float((2 if adapters else 3) * dense + 3 * attention + 6 * learns * work.tokens)
