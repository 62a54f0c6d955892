"""One policy's parameters, optimiser and update, blind to the credit method and to what the policy is made of.

A policy that can learn offers :class:`Trainable`; torch models get it from :mod:`macredit.learn.torch_policy`, tables
implement it in numpy.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from macredit.bounds import Within
from macredit.errors import UserError
from macredit.learn import loss as losses
from macredit.learn.batch import Tokens, TrainRow, by_gradient, by_sequence, tokens_of
from macredit.learn.correction import Correction, correct, mismatch
from macredit.learn.loss import Aggregate, FloatK, Loss, Ratio
from macredit.learn.saved import check_saved, check_values, read_saved, write_saved
from macredit.policy import Policy, Request, Said
from macredit.seeds import generator

Metrics = dict[str, float]
_FIELDS = {"scalars": dict, "identity": dict, "digest": str, "rollouts": int}
"""Of ``state.json``."""
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW keeps of each weight."""


@dataclass(frozen=True, slots=True)
class LearnerConfig:
    """How a policy learns."""

    rate: Annotated[float | None, Within(0)] = None
    """Learning rate; None takes the policy's own default."""
    epochs: Annotated[int, Within(1)] = 1
    """Passes over the rows of one rollout."""
    minibatches: Annotated[int, Within(1)] = 1
    """Optimiser steps in one pass."""
    aggregate: Aggregate = "token-mean"
    """How token losses become one number."""
    length: Annotated[float | None, Within(1)] = None
    """L of ``dr-grpo`` and ``seq-mean-token-sum-norm``: the largest reply in tokens."""
    ratio: Ratio = "token"
    """Level of the probability ratio."""
    clip_low: Annotated[float, Within(0, 1)] = 0.2
    """Clip range below a ratio of 1."""
    clip_high: Annotated[float, Within(0)] = 0.2
    """Clip range above a ratio of 1."""
    dual_clip: Annotated[float | None, Within(1)] = 3.0
    """Cap of the loss of tokens with a negative advantage, in multiples of it."""
    kl: Annotated[float, Within(0)] = 0.0
    """Weight of the k3 penalty towards the policy as it was before training."""
    schedule: Literal["constant", "constant_with_warmup", "linear", "cosine"] = "constant"
    """Learning-rate schedule, as transformers names them."""
    warmup: Annotated[int, Within(0)] = 0
    """Optimiser steps of linear warm-up."""
    steps: Annotated[int, Within(1)] = 1000
    """Optimiser steps until ``linear`` and ``cosine`` end."""
    weight_decay: Annotated[float, Within(0)] = 0.0
    """AdamW's decoupled weight decay."""
    max_norm: Annotated[float, Within(0)] = 1.0
    """Gradients with a larger norm are scaled down to it: 0 stops all learning, a large number never does anything."""
    batch_tokens: Annotated[int, Within(1)] = 4096
    """Tokens computed at once (see ``pack.packs``); more rows are accumulated."""
    seed: int = 0
    """Order of minibatches."""
    correction: Correction = "none"
    """Truncated importance weights of the learner against the behaviour: ``none``, by ``token``, by ``sequence``."""
    correction_cap: Annotated[float, Within(1)] = 2.0
    """The largest such weight."""
    chunk: Annotated[int, Within(1)] = 1024
    """Tokens whose logits over the whole vocabulary are alive at once."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What matrices are multiplied in; what learns, softmax and loss stay float32."""
    checkpointing: bool = False
    """Forget what is inside a layer and compute it again for the gradient: less memory, a third more time."""
    compile: bool = False
    """Compile the layers with torch.compile; sampling is not compiled."""
    offload: bool = False
    """Keep the optimiser's moments in main memory between updates."""


@dataclass(frozen=True, slots=True)
class Objective:
    """What is minimised: the policy loss of a config, or imitation of recorded replies."""

    config: LearnerConfig
    imitate: bool = False

    def tokens(self, rows: Sequence[TrainRow]) -> Tokens:
        """The flat tokens of a whole batch, so that parts of it add up to the batch."""
        return tokens_of(rows, self.config.aggregate, self.config.length)

    def __call__(self, logp: FloatK, tokens: Tokens) -> Loss:
        """Value and gradient on some of a batch's tokens; ``logp``: float[K]."""
        c = self.config
        if self.imitate:
            return losses.imitate(logp, tokens.coefficient)
        loss = losses.ppo(
            logp, tokens.old, tokens.advantage, tokens.coefficient, tokens.sequence,
            c.ratio, c.clip_low, c.clip_high, c.dual_clip,
        )  # fmt: skip
        if tokens.reference is None:
            return loss
        kl = losses.kl_k3(logp, tokens.reference, tokens.coefficient)
        return Loss(loss.value + c.kl * kl.value, loss.gradient + c.kl * kl.gradient, loss.clipped)

    def metrics(self, logp: FloatK, tokens: Tokens, computed: int | None = None) -> Metrics:
        """What is worth watching, over a whole batch: loss, share of clipped tokens, k3 of the step's movement.

        The mismatch between learner and behaviour is that of the first ``computed`` tokens (None: all).
        """
        loss = self(logp, tokens)
        shown = {"loss": loss.value, "tokens": float(len(logp))}
        if not self.imitate:
            shown |= mismatch(logp[:computed], tokens.old[:computed])
            uniform = np.full(len(logp), 1.0 / len(logp))
            moved = losses.kl_k3(tokens.old, logp, uniform).value
            shown |= {"clip_fraction": float(loss.clipped.mean()), "kl": moved}
        if tokens.reference is not None:
            shown["kl_reference"] = losses.kl_k3(logp, tokens.reference, np.full(len(logp), 1.0 / len(logp))).value
        return shown


class State(NamedTuple):
    """Everything an update changes, and what it belongs to."""

    tensors: Mapping[str, npt.NDArray[Any]]
    """Weights by name, which of models are ``weight/NAME``; after the first step AdamW's ``MOMENT/NAME`` of each."""
    scalars: Mapping[str, Any]
    """JSON values: version, step counters."""
    identity: Mapping[str, Any]
    """JSON values that must agree between a checkpoint and the policy it is loaded into."""


@runtime_checkable
class Trainable(Protocol):
    """A policy that can learn."""

    name: str
    version: str
    sampling: Mapping[str, Any]

    def prepare(self, config: LearnerConfig) -> None:
        """Make the optimiser; nothing else changes."""
        ...

    def logprobs(self, rows: Sequence[TrainRow], reference: bool = False) -> list[FloatK]:
        """float[L] a row, 0 where the mask is False; under the weights before training if ``reference``."""
        ...

    def update(self, rows: Sequence[TrainRow], loss: Objective) -> Metrics:
        """One optimiser step."""
        ...

    def state(self) -> State:
        """A copy of everything an update changes."""
        ...

    def load(self, state: State) -> None:
        """The inverse of :meth:`state`."""
        ...

    def dictate(self, request: Request, text: str) -> Said:
        """What would have been recorded had it said ``text``: ids to imitate, without log-probabilities."""
        ...

    def export(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder from which the trained policy can be made anywhere."""
        ...


@runtime_checkable
class Grows(Protocol):
    """A policy whose state gets new tensors while it learns."""

    def blank(self, names: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
        """What its tensors of these names begin as; names that none of its tensors can have are left out."""
        ...


class Learner:
    """Trains one policy.

    Raises:
        UserError: the policy has no log-probabilities, or samples in a way that has no gradient.
    """

    def __init__(self, policy: Policy | Trainable, config: LearnerConfig | None = None) -> None:
        if not isinstance(policy, Trainable):
            raise UserError(
                f"policy {policy.name!r} ({type(policy).__name__}) cannot learn: it has no log-probabilities; "
                "use an hf or table policy, or freeze its agents (trainable = false)"
            )
        self.policy: Trainable = policy
        self.config = config or LearnerConfig()
        self.rollouts = 0
        """Updates so far that had rows."""
        truncated = policy.sampling.get("top_p") or policy.sampling.get("top_k")
        if truncated or policy.sampling.get("temperature", 1.0) == 0:
            raise UserError(
                f"policy {self.policy.name!r} samples with {dict(self.policy.sampling)}, which has no gradient; "
                "train with a temperature above 0, without top_p and top_k"
            )
        self.policy.prepare(self.config)

    def update(self, rows: Sequence[TrainRow]) -> Metrics:
        """Learn from one rollout; without rows nothing changes, the optimiser included.

        Metrics are means over the optimiser steps; ``mismatch_mean``, ``_max`` and ``_k3`` are those before the first.
        """
        if self.config.kl and rows:
            reference = self.policy.logprobs(rows, reference=True)
            rows = [replace(row, reference=logp) for row, logp in zip(rows, reference, strict=True)]
        rows, shown = self._corrected(rows)
        return self._learn(rows, Objective(self.config)) | shown

    def _corrected(self, rows: Sequence[TrainRow]) -> tuple[Sequence[TrainRow], Metrics]:
        """Rows with importance weights, if asked for, and the mismatch they come from."""
        moving = by_gradient(rows)[0]
        if self.config.correction == "none" or not moving:
            return rows, {}
        before = self.policy.logprobs(moving)
        pairs = [(logp[row.mask], row.logprob[row.mask]) for logp, row in zip(before, moving, strict=True)]
        shown = mismatch(*(np.concatenate(side) for side in zip(*pairs, strict=True)))
        corrected, cut = correct(moving, before, self.config.correction, self.config.correction_cap)
        became = {id(row): new for row, new in zip(moving, corrected, strict=True)}
        return [became.get(id(row), row) for row in rows], shown | {"correction_cut": cut}

    def imitate(self, rows: Sequence[TrainRow]) -> Metrics:
        """Raise the likelihood of recorded replies (a warm start)."""
        return self._learn(rows, Objective(self.config, imitate=True))

    def _learn(self, rows: Sequence[TrainRow], objective: Objective) -> Metrics:
        """``epochs`` × ``minibatches`` optimiser steps; metrics are means over them, the mismatch that of the first."""
        if not rows:
            return {}
        steps = [self.policy.update(batch, objective) for batch in self._minibatches(rows)]
        self.rollouts += 1
        means = {name: float(np.mean([step[name] for step in steps if name in step])) for name in steps[0]}
        return means | {name: value for name, value in steps[0].items() if name.startswith("mismatch")}

    def _minibatches(self, rows: Sequence[TrainRow]) -> Iterator[list[TrainRow]]:
        """Each epoch's rows in ``minibatches`` parts of whole sequences; in the order given if there is one part."""
        if self.config.minibatches == 1:
            yield from [list(rows)] * self.config.epochs
            return
        units = by_sequence(rows)
        for epoch in range(self.config.epochs):
            rng = generator("minibatches", self.config.seed, self.policy.name, self.rollouts, epoch)
            for part in np.array_split(rng.permutation(len(units)), self.config.minibatches):
                if len(part):
                    yield [row for unit in part for row in units[unit]]

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write weights, optimiser and counters: ``state.safetensors`` and ``state.json``."""
        tensors, scalars, identity = self.policy.state()
        about = {"scalars": scalars, "identity": identity, "digest": _digest(identity), "rollouts": self.rollouts}
        write_saved(Path(folder), "state", tensors, about)

    def load(self, folder: str | os.PathLike[str]) -> None:
        """Go on from a saved folder.

        Raises:
            UserError: the folder holds no checkpoint, a damaged one, or one of another model.
        """
        folder = Path(folder)
        missing = f"{folder} holds no checkpoint; expected state.json and state.safetensors in it"
        tensors, about = read_saved(folder, "state", missing, _FIELDS)
        own = self.policy.state()
        identity = json.loads(json.dumps(own.identity))
        if about["digest"] != _digest(identity) or about["identity"] != identity:
            differs = {k for k in {*identity, *about["identity"]} if identity.get(k) != about["identity"].get(k)}
            raise UserError(
                f"{folder} is a checkpoint of another model than policy {self.policy.name!r}: they differ in "
                f"{', '.join(sorted(differs or {'digest'}))}; make the policy with the settings the run was started "
                "with"
            )
        check_values(folder, "state", about["scalars"], json.loads(json.dumps(own.scalars)))
        fits = self.policy.blank(tensors) if isinstance(self.policy, Grows) else _fitting(own.tensors, tensors)
        check_saved(folder, "state", tensors, fits)
        self.policy.load(State(tensors, about["scalars"], about["identity"]))
        self.rollouts = about["rollouts"]


def check_finite(policy: str, step: int, **numbers: float) -> None:
    """Stop before something that is not finite gets into a policy or a file.

    Raises:
        UserError: one of the numbers of an optimiser step is not finite.
    """
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise UserError(
                f"policy {policy!r}: optimiser step {step} has a {name} of {value}; expected a finite number; nothing "
                "of it is written: go on from the newest checkpoint with --resume, or begin again with a lower rate"
            )


def _fitting(own: Mapping[str, npt.NDArray[Any]], found: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Arrays like those that fit a policy: its weights, and moments of all of them where a checkpoint has any.

    There are none before the first step, neither in a policy nor in a checkpoint.
    """
    weights = {name: array for name, array in own.items() if name.partition("/")[0] not in _MOMENTS}
    fits = dict(weights)
    if any(name.partition("/")[0] in _MOMENTS for name in found):
        for name, array in weights.items():
            key = name.removeprefix("weight/")
            fits |= {f"step/{key}": np.zeros((), np.float32), f"exp_avg/{key}": array, f"exp_avg_sq/{key}": array}
    return fits


def _digest(identity: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=8).hexdigest()
