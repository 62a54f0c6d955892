"""One vLLM engine and who shares it: requests in as they come, outputs sorted by who asked, adapters, new weights.

It computes in processes of its own, so that it never waits for this one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import RLock
from typing import Any

from macredit.errors import OutsideError, UserError, missing_extra

from .models import digest, plain_folder
from .weights import Outbox

_LOG = {"VLLM_LOGGING_LEVEL": "WARNING", "VLLM_LOGGING_STREAM": "ext://sys.stderr"}
"""Unless the user set it otherwise: results go to standard output, so vLLM's log may not."""
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM makes room for."""
_ADAPTERS = 16
"""Adapters that may speak at once."""
_ON_CPU = {"enforce_eager": True, "block_size": 32, "enable_chunked_prefill": False}
"""Compiling takes minutes there, and the usual block is longer than most prefixes that agents share. A prompt that is
computed in pieces ends vLLM 0.32 there if its request has a seed, which it cannot wind back on a CPU."""


class Core:
    """Starts vLLM.

    Args:
        model: a hub id, a folder, a ``.gguf`` file or ``tiny``.
        dtype: what it computes in.
        rank: the largest rank of an adapter; None: a whole model that may get new weights.
        options: further arguments of ``vllm.LLM``.

    Raises:
        UserError: vLLM is not installed, or does not take the model or an option.
        OutsideError: it does not start.
    """

    def __init__(self, model: str, dtype: str, rank: int | None, options: Mapping[str, Any]) -> None:
        llm, on_cpu = _vllm()
        self.rank = None if rank is None else _room_for(rank)
        self._unpacked = Outbox()
        self.folder = plain_folder(model, self._unpacked.folder / "model")
        self.version = digest(self.folder)
        self._lock, self._number = RLock(), count(1)
        self._asked: dict[str, tuple[object, int]] = {}
        self._answers: dict[int, list[tuple[int, Any]]] = {}
        self._transfers: Path | None = None
        settings = {**(_ON_CPU if on_cpu else {}), "dtype": dtype, **self._needs(), **options}
        with _no_compiler(on_cpu), _named(model, settings, on_cpu):
            self._llm = llm(str(self.folder), **settings)
        self.context: int = self._llm.model_config.max_model_len

    def _needs(self) -> dict[str, Any]:
        """What this library needs of vLLM."""
        needs = {"enable_prefix_caching": True, "logprobs_mode": "processed_logprobs"}
        if self.rank is None:
            from .vllm_transfer import BACKEND

            return {**needs, "weight_transfer_config": {"backend": BACKEND}}
        room = {"max_loras": _ADAPTERS, "max_cpu_loras": 2 * _ADAPTERS, "max_lora_rank": self.rank}
        return {**needs, "enable_lora": True, **room}

    # -- requests --------------------------------------------------------------------------------------------------

    def ask(self, who: object, ticket: int, prompt: Sequence[int], adapter: Any, settings: Mapping[str, Any]) -> None:
        """Send one request; the engine begins at once."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        wanted = SamplingParams(**settings, detokenize=False, output_kind=RequestOutputKind.FINAL_ONLY)
        with self._lock:
            name = str(next(self._number))
            self._asked[name] = who, ticket
            self._llm.llm_engine.add_request(name, {"prompt_token_ids": list(prompt)}, wanted, lora_request=adapter)

    def answers(self, who: object) -> list[tuple[int, Any]]:
        """Finished outputs of one asker, by ticket; blocks until there is one.

        Raises:
            OutsideError: the engine died.
        """
        from vllm.v1.engine.exceptions import EngineDeadError

        with self._lock:
            while not self._answers.get(id(who)):
                try:
                    outputs = self._llm.llm_engine.step()
                except EngineDeadError:
                    raise OutsideError("vLLM died; its log is above, and a run goes on with --resume") from None
                for output in outputs:
                    asker, ticket = self._asked.pop(output.request_id)
                    self._answers.setdefault(id(asker), []).append((ticket, output))
            return self._answers.pop(id(who))

    # -- new weights -----------------------------------------------------------------------------------------------

    def load(self, folder: Path, name: str, instead: Any) -> Any:
        """Load an adapter under a number of its own, drop the one it replaces, empty the prefix cache."""
        from vllm.lora.request import LoRARequest

        adapter = LoRARequest(name, next(self._number), str(folder))
        with self._lock:
            if not self._llm.llm_engine.add_lora(adapter):
                raise OutsideError(f"vLLM did not load the adapter {name!r} from {folder}; its log is above")
            if instead is not None:
                self._llm.llm_engine.remove_lora(instead.lora_int_id)
            self._forget()
        return adapter

    def transfer(self, file: Path, version: str) -> None:
        """Replace the whole model by vLLM's weight-transfer interface.

        Raises:
            OutsideError: vLLM goes on under another version.
        """
        with self._lock:
            if self._transfers != file.parent:
                self._llm.init_weight_transfer_engine({"init_info": {"folder": str(file.parent)}})
                self._transfers = file.parent
            self._llm.start_weight_update()
            self._llm.update_weights({"update_info": {"file": file.name}})
            self._llm.finish_weight_update(version)
            self._forget()
            found = self._llm.get_weight_version()
        if found != version:
            raise OutsideError(f"vLLM goes on with version {found!r} of the weights; {version!r} was handed over")

    def _forget(self) -> None:
        """Nothing that old weights computed may be read again."""
        if not self._llm.reset_prefix_cache():
            raise OutsideError("vLLM does not empty its prefix cache while requests are under way; wait for them first")


def _vllm() -> tuple[Any, bool]:
    """Its class, and whether it computes on a CPU.

    Raises:
        UserError: it is not installed, or cannot be imported.
    """
    for name, value in _LOG.items():
        os.environ.setdefault(name, value)
    try:
        from vllm import LLM
        from vllm.platforms import current_platform
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "vllm":
            raise missing_extra("vllm", "vllm") from None
        raise UserError(
            f"vLLM is installed and cannot be imported ({error}); install it anew, in an environment of its own"
        ) from None
    return LLM, current_platform.is_cpu()


@contextmanager
def _named(model: str, settings: Mapping[str, Any], on_cpu: bool) -> Iterator[None]:
    """Says what does not start; why, vLLM's log says."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise UserError(f"vLLM does not take {model!r} with {dict(settings)}: {error}; change options") from None
    except RuntimeError as error:
        space = "VLLM_CPU_KVCACHE_SPACE in the environment" if on_cpu else "gpu_memory_utilization"
        raise OutsideError(
            f"vLLM did not start with {model!r} ({error}); its log is above; if memory ran out, lower {space}, "
            "max_model_len or max_num_seqs"
        ) from None


def _room_for(rank: int) -> int:
    for room in _RANKS:
        if rank <= room:
            return room
    raise UserError(f"LoRA rank is {rank}; vLLM takes at most {_RANKS[-1]}")


@contextmanager
def _no_compiler(on_cpu: bool) -> Iterator[None]:
    """Processes started meanwhile do not compile: on a CPU that takes longer than it saves."""
    name, before = "TORCHDYNAMO_DISABLE", os.environ.get("TORCHDYNAMO_DISABLE")
    if on_cpu and before is None:
        os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
