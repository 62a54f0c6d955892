"""A learner's weights: as they are handed over, and as the files that vLLM reads."""

from __future__ import annotations

import json
import shutil
import weakref
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from peft import get_peft_model_state_dict
from safetensors.torch import save_file

from macredit.learn.handover import Weights
from macredit.learn.torch_policy import TorchPolicy


def weights_of(learner: TorchPolicy) -> Weights:
    """A learner's weights, not copied."""
    if learner.adapter is None:
        return Weights(learner.version, learner.module.state_dict())
    tensors = get_peft_model_state_dict(learner.module, adapter_name=learner.adapter, save_embedding_layers=False)
    return Weights(learner.version, tensors, learner.module.peft_config[learner.adapter].to_dict())


class Outbox:
    """A folder from which an engine reads weights; the adapter it has loaded stays there.

    Args:
        folder: which; None: a temporary one.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = Path(folder or mkdtemp(prefix="macredit-")).resolve()
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self._kept: Path | None = None

    def put(self, weights: Weights) -> Path:
        """Write one safetensors file of a whole model, or a PEFT adapter folder; returns which."""
        if weights.lora is None:
            path = self.folder / f"{weights.version}.safetensors"
            save_file(_apart(weights), path)
            return path
        path = self.folder / weights.version
        path.mkdir(exist_ok=True)
        save_file(_apart(weights), path / "adapter_model.safetensors")
        (path / "adapter_config.json").write_text(json.dumps(weights.lora, default=sorted))  # sets of module names
        return path

    def keep(self, adapter: Path) -> None:
        """The engine has loaded this adapter: the one before it goes."""
        if self._kept is not None and self._kept != adapter:
            shutil.rmtree(self._kept)
        self._kept = adapter


def _apart(weights: Weights) -> dict[str, Any]:
    """Tensors that share no memory, as files want them: of tied weights the first, as models save them."""
    first: dict[int, str] = {}
    for name, tensor in weights.tensors.items():
        first.setdefault(tensor.data_ptr(), name)
    return {name: weights.tensors[name].detach().contiguous() for name in first.values()}
