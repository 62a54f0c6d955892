"""A torch language model that can learn: log-probabilities, one optimiser step, state, export.

Only this policy's parameters get gradients: a whole model of its own, or its adapter on a base shared with others.
The module stays in evaluation mode, so that training sees the probabilities that were sampled from.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache, get_scheduler
from transformers.utils.logging import disable_progress_bar

from macredit.learn.batch import TrainRow, by_gradient, micro_batches, shared_prefix
from macredit.learn.learner import LearnerConfig, Metrics, Objective, State
from macredit.learn.loss import FloatK
from macredit.policy import BatchPolicy

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
            key: p for key, p in module.named_parameters() if adapter is None or _of_adapter(key, adapter)
        }
        self._origin, self._updates = _digest(module, adapter), 0
        self._config = LearnerConfig()
        super().__init__(name, version=f"{self._origin}.0", sampling=sampling)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(iter(self._parameters.values())).device

    def activate(self) -> None:
        """Make this policy's adapter the one that computes and may get gradients."""
        if self.adapter is not None:
            self.module.set_adapter(self.adapter)

    # -- Trainable ------------------------------------------------------------------------------------------------

    def prepare(self, config: LearnerConfig) -> None:
        """AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101) over this policy's parameters alone, and its schedule."""
        self._config = config
        rate = self._default_rate if config.rate is None else config.rate
        self._optimizer = torch.optim.AdamW(self._parameters.values(), lr=rate, weight_decay=config.weight_decay)
        self._schedule = get_scheduler(config.schedule, self._optimizer, config.warmup, config.steps)

    def logprobs(self, rows: Sequence[TrainRow], reference: bool = False) -> list[FloatK]:
        """float[L] a row, 0 where the mask is False; under the model before training if ``reference``."""
        found: dict[int, FloatK] = {}
        with torch.no_grad(), self._referring(reference) as module:
            for batch in micro_batches(rows, self._config.batch_tokens):
                logp = _array(_log_probabilities(module, batch, self._pad, self._temperature)[0])
                ends = np.cumsum([row.mask.sum() for row in batch])
                for row, part in zip(batch, np.split(logp, ends[:-1]), strict=True):
                    found[id(row)] = np.zeros(len(row.ids))
                    found[id(row)][row.mask] = part
        return [found[id(row)] for row in rows]

    def update(self, rows: Sequence[TrainRow], loss: Objective) -> Metrics:
        """One optimiser step, accumulated over micro-batches that add up to the whole batch exactly.

        Rows that cannot move the policy (:func:`macredit.learn.batch.by_gradient`) count in the coefficients but are
        not computed; the metrics take them as they were sampled, with −log-probability, whose mean is the entropy, for
        the entropy. If no row can, the step is AdamW's with gradient 0: moments decay, and momentum, weight decay and
        schedule go on.
        """
        moving, idle = (rows, []) if loss.imitate else by_gradient(rows)
        batches = micro_batches(moving, self._config.batch_tokens)
        tokens = loss.tokens([row for batch in (*batches, idle) for row in batch])
        self.activate()
        for p in self._parameters.values():
            p.grad = torch.zeros_like(p)
        logps, entropies, start = [], [], 0
        for batch in batches:
            logp, entropy = _log_probabilities(self.module, batch, self._pad, self._temperature)
            logps.append(_array(logp).astype(np.float64))
            entropies.append(_array(entropy))
            slope = loss(logps[-1], tokens.part(start, start + len(logp))).gradient
            (torch.as_tensor(slope, dtype=logp.dtype, device=logp.device) * logp).sum().backward()  # type: ignore[no-untyped-call]
            start += len(logp)
        logps.append(tokens.old[start:])
        entropies.append(-tokens.old[start:])
        norm = torch.nn.utils.clip_grad_norm_(self._parameters.values(), self._config.max_norm)
        rate = self._optimizer.param_groups[0]["lr"]
        self._optimizer.step()
        self._schedule.step()
        self._count(self._updates + 1)
        shown = loss.metrics(np.concatenate(logps), tokens)
        return shown | {
            "gradient": float(norm),
            "entropy": float(np.concatenate(entropies).mean()),
            "rate": float(rate),
        }

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

    @property
    def _temperature(self) -> float:
        return float(self.sampling.get("temperature", 1.0))

    def _count(self, updates: int) -> None:
        self._updates, self.version = updates, f"{self._origin}.{updates}"

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
    inner = module.get_base_model() if hasattr(module, "get_base_model") else module
    return "cache" if "cache" in inspect.signature(inner.forward).parameters else "past_key_values"


def _log_probabilities(module: Any, rows: Sequence[TrainRow], pad: int, temperature: float) -> tuple[Tensor, Tensor]:
    """float[K] log-probabilities of the masked ids, rows one after another, and the entropies where they stand.

    The prefix that all rows share is computed once, with gradient. What follows is padded at its end, where no causal
    attention looks: it needs no attention mask.
    """
    device = next(module.parameters()).device
    shared = shared_prefix(rows)
    inputs: dict[str, Any] = {"use_cache": False}
    if shared:
        cache = DynamicCache()
        inputs = {"use_cache": True, cache_argument(module): cache}
        module(input_ids=torch.as_tensor(rows[0].ids[None, :shared], device=device), logits_to_keep=1, **inputs)
        cache.batch_repeat_interleave(len(rows))
    ids = pad_sequence([torch.as_tensor(row.ids[shared:]) for row in rows], batch_first=True, padding_value=pad)
    mask = pad_sequence([torch.as_tensor(row.mask[shared:]) for row in rows], batch_first=True)
    ids, mask = ids.to(device), mask.to(device)  # int and bool [B, L]
    with _logits_only_at(module, mask.roll(-1, dims=1)):  # an id is predicted one place before it
        logits = module(input_ids=ids, **inputs).logits
    logp = torch.log_softmax(logits.float() / temperature, dim=-1)  # float[K, V]
    chosen = logp.gather(-1, ids[mask][:, None])[:, 0]
    with torch.no_grad():
        entropy = -(logp.exp() * logp).sum(-1)
    return chosen, entropy


@contextmanager
def _logits_only_at(module: Any, places: Tensor) -> Iterator[None]:
    """The output layer sees float[K, D], its input at the K places (bool[B, L]), so that no other logit is computed."""
    hook = module.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: (inputs[0][places],))
    try:
        yield
    finally:
        hook.remove()


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    """A copy as numpy; half precision, which numpy may lack, widens exactly to float32."""
    tensor = tensor.detach().cpu()
    wide = tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
    return np.array(wide.numpy())


def _of_adapter(key: str, adapter: str | None) -> bool:
    return "lora_" in key and f".{adapter}." in key


def _digest(module: Any, adapter: str | None) -> str:
    """Names the weights a policy starts from: of every tensor its name, shape and up to 64 values spread over it."""
    digest = hashlib.blake2b(digest_size=4)
    for key, p in module.named_parameters():
        if "lora_" in key and not _of_adapter(key, adapter):
            continue  # another policy's adapter on the shared base
        flat = p.detach().flatten()
        digest.update(f"{key}{tuple(p.shape)}".encode())
        digest.update(flat[:: max(1, len(flat) // 64)].float().cpu().numpy().tobytes())
    return digest.hexdigest()
