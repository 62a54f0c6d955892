"""How whole models reach vLLM: a backend of its weight-transfer interface that reads files from an agreed folder.

vLLM's own backends move weights from GPU to GPU; this one serves CPUs, one machine, and machines that share a file
system. vLLM finds it by the entry point ``vllm.general_plugins`` in every process it starts, wherever macredit is
installed beside it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from vllm.distributed.weight_transfer import WeightTransferEngine, WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, UnquantizedEmbeddingMethod
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

BACKEND = "macredit"
"""Its name in ``weight_transfer_config``."""


def register() -> None:
    """Make the backend known to vLLM, once a process."""
    with contextlib.suppress(ValueError):  # it is known already
        WeightTransferEngineFactory.register_engine(BACKEND, FileTransfer)


@dataclass
class Folder(WeightTransferInitInfo):  # type: ignore[misc] # vLLM has no types here
    """What both sides agree on first."""

    folder: str


@dataclass
class File(WeightTransferUpdateInfo):  # type: ignore[misc]
    """What is sent."""

    file: str
    """A safetensors file in the folder, under the names that Hugging Face files give weights."""


class FileTransfer(WeightTransferEngine):  # type: ignore[misc]
    """The receiving side, in each of vLLM's workers."""

    init_info_cls = Folder
    update_info_cls = File

    def init_transfer_engine(self, init_info: Folder) -> None:
        """Take note of the folder."""
        self._folder = Path(init_info.folder).resolve()

    def start_weight_update(self) -> None:
        """Prepare the model for weights as files have them."""
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: File) -> None:
        """Read a file into the model.

        Raises:
            ValueError: the file is not in the folder.
        """
        path = (self._folder / update_info.file).resolve()
        if path.parent != self._folder:
            raise ValueError(f"weights {update_info.file!r} are not in {self._folder}")
        self.model.load_weights(_tensors(path))

    def finish_weight_update(self) -> None:
        """Bring the weights into the form the model computes with.

        A head tied to the embeddings is in no file, so that vLLM leaves it alone; on a CPU it computes with a packed
        copy, which is made again here.
        """
        finalize_layerwise_reload(self.model, self.model_config)
        for module in self.model.modules():
            if isinstance(module, ParallelLMHead) and isinstance(module.quant_method, UnquantizedEmbeddingMethod):
                module.quant_method.process_weights_after_loading(module)

    def shutdown(self) -> None:
        """Nothing is held."""


def _tensors(path: Path) -> Iterator[tuple[str, Any]]:
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 (no dict)
            yield name, file.get_tensor(name)
