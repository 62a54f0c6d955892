"""A torch language model that can learn: log-probabilities, one optimiser step, state, export.

Only this policy's parameters get gradients: a whole model of its own, or its adapter on a base shared with others.
The module stays in evaluation mode, so that training sees the probabilities that were sampled from.
"""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import get_scheduler
from transformers.utils.logging import disable_progress_bar

from macredit.learn.attention import plain_model
from macredit.learn.batch import TrainRow, by_gradient
from macredit.learn.learner import LearnerConfig, Metrics, Objective, State, check_finite
from macredit.learn.loss import FloatK
from macredit.learn.origin import of_adapter, origin
from macredit.learn.pack import packs
from macredit.learn.resources import compile_layers, move_moments, multiplied_in, named_when_memory_is_out
from macredit.learn.scoring import Scorer
from macredit.learn.vocabulary import Scored
from macredit.policy import BatchPolicy

_LESS = (
    "lower the learner's batch_tokens, which are computed at once, or chunk, or set checkpointing, offload or "
    "precision = 'bfloat16'"
)
disable_progress_bar()  # loading and saving of single files; macredit shows its own progress


class TorchPolicy(BatchPolicy):
    """A policy over (module, tokenizer, adapter name); subclasses speak.

    Args:
        name: the policy's name.
        module: a Hugging Face causal model, or a PEFT model that carries ``adapter``.
        tokenizer: its tokenizer.
        adapter: the adapter that is this policy's own; None: the whole module is.
        original: makes the module anew as it was before training, the reference of a full model's KL term.
        sampling: ``temperature`` and, for policies that do not learn, ``top_k`` and ``top_p``.
        rate: the default learning rate.
    """

    def __init__(
        self,
        name: str,
        module: Any,
        tokenizer: Any,
        adapter: str | None,
        original: Callable[[], Any],
        sampling: Mapping[str, Any],
        rate: float,
    ) -> None:
        self.module, self.tokenizer, self.adapter = module.eval(), tokenizer, adapter
        self._original, self._reference = original, None
        self._default_rate = rate
        self._parameters: dict[str, Tensor] = {
            key: p for key, p in module.named_parameters() if adapter is None or of_adapter(key, adapter)
        }
        self._origin, self._updates = origin(module, adapter), 0
        self._config = LearnerConfig()
        super().__init__(name, version=f"{self._origin}.0", sampling=sampling)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(iter(self._parameters.values())).device

    @property
    def precision(self) -> str:
        """The dtype of the module's weights."""
        return str(self.module.dtype).removeprefix("torch.")

    def activate(self) -> None:
        """Make this policy's adapter the one that computes and may get gradients."""
        if self.adapter is not None:
            self.module.set_adapter(self.adapter)

    @contextmanager
    def speaking(self, prompts: Sequence[Sized]) -> Iterator[None]:
        """This policy's adapter computes, in the precision it learns in, so that it samples from what it trains.

        Compiled layers compute as if they were not: sampling has shapes that change with every token.
        """
        self.activate()
        with ExitStack() as stack:
            stack.enter_context(named_when_memory_is_out(self.name, prompts, "lower its batch_tokens or max_tokens"))
            stack.enter_context(multiplied_in(self._config.precision, self.device))
            if self._config.compile:
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            yield

    # -- Trainable ------------------------------------------------------------------------------------------------

    def prepare(self, config: LearnerConfig) -> None:
        """AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101) over this policy's parameters alone, and its schedule."""
        self._config = config
        if config.precision != "float32":
            for p in self._parameters.values():
                p.data = p.data.float()
        if config.compile:
            compile_layers(self.module)
        rate = self._default_rate if config.rate is None else config.rate
        self._optimizer = torch.optim.AdamW(self._parameters.values(), lr=rate, weight_decay=config.weight_decay)
        self._schedule = get_scheduler(config.schedule, self._optimizer, config.warmup, config.steps)

    def logprobs(self, rows: Sequence[TrainRow], reference: bool = False) -> list[FloatK]:
        """float[L] a row, 0 where the mask is False; under the model before training if ``reference``."""
        found: dict[int, FloatK] = {}
        with torch.no_grad(), self._referring(reference) as module, self._ready(module, rows, gradient=False):
            batches = packs(rows, self._config.batch_tokens)
            for batch, scored in zip(batches, self._scored(module, batches), strict=True):
                logp = _array(scored[0])
                ends = np.cumsum([row.mask.sum() for row in batch])
                for row, part in zip(batch, np.split(logp, ends[:-1]), strict=True):
                    found[id(row)] = np.zeros(len(row.ids))
                    found[id(row)][row.mask] = part
        return [found[id(row)] for row in rows]

    def update(self, rows: Sequence[TrainRow], loss: Objective) -> Metrics:
        """One optimiser step, accumulated over packs that add up to the whole batch exactly.

        Rows that cannot move the policy (:func:`macredit.learn.batch.by_gradient`) count in the coefficients but are
        not computed; the metrics take them as they were sampled, with −log-probability, whose mean is the entropy, for
        the entropy. If no row can, the step is AdamW's with gradient 0: moments decay, and momentum, weight decay and
        schedule go on.
        """
        moving, idle = (rows, []) if loss.imitate else by_gradient(rows)
        batches = packs(moving, self._config.batch_tokens)
        tokens = loss.tokens([row for batch in (*batches, idle) for row in batch])
        self.activate()
        for p in self._parameters.values():
            p.grad = torch.zeros_like(p)
        logps, entropies, start = [], [], 0
        with self._ready(self.module, rows, gradient=True):
            for logp, entropy in self._scored(self.module, batches):
                logps.append(_array(logp).astype(np.float64))
                entropies.append(_array(entropy))
                slope = loss(logps[-1], tokens.part(start, start + len(logp))).gradient
                (torch.as_tensor(slope, dtype=logp.dtype, device=logp.device) * logp).sum().backward()  # type: ignore[no-untyped-call]
                start += len(logp)
            shown = loss.metrics(np.concatenate([*logps, tokens.old[start:]]), tokens, start)
            check_finite(self.name, self._updates + 1, loss=shown["loss"])
            norm, rate = self._step()
        entropy_K = np.concatenate([*entropies, -tokens.old[start:]])
        return shown | {"gradient": norm, "entropy": float(entropy_K.mean()), "rate": rate}

    def _step(self) -> tuple[float, float]:
        """Move along the accumulated gradient: its norm, and the learning rate."""
        norm = torch.nn.utils.clip_grad_norm_(self._parameters.values(), self._config.max_norm)
        check_finite(self.name, self._updates + 1, **{"gradient norm": float(norm)})
        rate = self._optimizer.param_groups[0]["lr"]
        if self._config.offload:
            move_moments(self._optimizer, self.device)
        self._optimizer.step()
        if self._config.offload:
            move_moments(self._optimizer, torch.device("cpu"))
        size = torch.nn.utils.get_total_norm(list(self._parameters.values()))
        check_finite(self.name, self._updates + 1, **{"norm of the weights": float(size)})
        self._schedule.step()
        self._count(self._updates + 1)
        return float(norm), float(rate)

    def state(self) -> State:
        """Parameters, both moments and step of AdamW, schedule."""
        tensors = {f"weight/{key}": _array(p) for key, p in self._parameters.items()}
        for key, p in self._parameters.items():
            tensors |= {f"{kind}/{key}": _array(t) for kind, t in self._optimizer.state.get(p, {}).items()}
        scalars = {
            "updates": self._updates,
            "optimizer": self._optimizer.state_dict()["param_groups"],
            "schedule": self._schedule.state_dict(),
        }
        shapes = {key: list(p.shape) for key, p in self._parameters.items()}
        return State(tensors, scalars, {"kind": "torch", "shapes": shapes, "origin": self._origin})

    def load(self, state: State) -> None:
        """Go on from a state of the same model."""
        moments: dict[int, dict[str, Tensor]] = {}
        place = {key: i for i, key in enumerate(self._parameters)}
        for name, array in state.tensors.items():
            kind, key = name.split("/", 1)
            if kind == "weight":
                self._parameters[key].data.copy_(torch.as_tensor(array))
            else:
                moments.setdefault(place[key], {})[kind] = torch.as_tensor(array).clone()
        groups = [dict(group, betas=tuple(group["betas"])) for group in state.scalars["optimizer"]]
        self._optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self._schedule.load_state_dict(dict(state.scalars["schedule"]))
        self._count(state.scalars["updates"])

    def export(self, folder: str | os.PathLike[str]) -> None:
        """Write a plain Hugging Face folder, or a PEFT adapter folder that names its base; the tokenizer with it."""
        folder = Path(folder)
        if self.adapter is None:
            self.module.save_pretrained(folder)
        else:
            self.module.save_pretrained(folder, selected_adapters=[self.adapter], save_embedding_layers=False)
            below = folder / self.adapter  # PEFT puts every adapter not called "default" one level down
            shutil.copytree(below, folder, dirs_exist_ok=True)
            shutil.rmtree(below)
        self.tokenizer.save_pretrained(folder)

    # -- parts ----------------------------------------------------------------------------------------------------

    @property
    def _pad(self) -> int:
        pad = self.tokenizer.pad_token_id
        return int(pad if pad is not None else self.tokenizer.eos_token_id)

    def _count(self, updates: int) -> None:
        self._updates, self.version = updates, f"{self._origin}.{updates}"

    @cached_property
    def _scorer(self) -> Scorer:
        return Scorer(self.module, self.name)

    def _scored(self, module: Any, batches: Sequence[Sequence[TrainRow]]) -> Iterator[Scored]:
        """Each pack's scores, computed when they are asked for."""
        for rows in batches:
            yield self._scorer(module, rows, float(self.sampling.get("temperature", 1.0)), self._config.chunk)

    @contextmanager
    def _ready(self, module: Any, rows: Sequence[TrainRow], gradient: bool) -> Iterator[None]:
        """A module computes rows as this policy's config says."""
        with (
            named_when_memory_is_out(self.name, [row.ids for row in rows], _LESS),
            self._scorer.ready(module, self._config, gradient),
        ):
            yield

    @contextmanager
    def _referring(self, reference: bool) -> Iterator[Any]:
        """The module to compute with: this policy's, or for the reference its base or a fresh copy."""
        self.activate()
        if not reference:
            yield self.module
        elif self.adapter is not None:
            with self.module.disable_adapter():
                yield self.module
        else:
            if self._reference is None:
                self._reference = self._original().eval()
            yield self._reference


def cache_argument(module: Any) -> str:
    """What a model's forward calls its cache: the older name of transformers, or the newer."""
    return "cache" if "cache" in inspect.signature(plain_model(module).forward).parameters else "past_key_values"


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    """A copy as numpy, for the first rank alone where ranks hold shards; half precision widens exactly to float32."""
    if isinstance(tensor, DTensor):
        whole, rank = tensor.full_tensor(), tensor.device_mesh.get_rank()
        tensor = whole if rank == 0 else whole[:0]
    tensor = tensor.detach().cpu()
    wide = tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
    return np.array(wide.numpy())
