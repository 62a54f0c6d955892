"""Loading causal models: hub id, folder, ``.gguf`` file, adapter folder, or ``tiny``; adapters on a shared base."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from macredit.bounds import Within
from macredit.errors import UserError, unknown

from .settings import check_settings
from .tiny import tiny_model, tiny_tokenizer

_TINY = re.compile(r"tiny(?::(\d+))?")
LoraTable = Annotated[Mapping[str, Any] | None, "a table such as { rank = 16 }"]
"""What users write; see :class:`Lora`."""


@dataclass(frozen=True, slots=True)
class Lora:
    """The size of an adapter, and what it adapts."""

    rank: Annotated[int, Within(1)] = 16
    """Of the product that is added to each weight."""
    alpha: Annotated[float, Within(1e-3)] = 32
    """The product is multiplied by alpha / rank."""
    targets: Annotated[str | Sequence[str], 'a list of layers, or "all-linear"'] = "all-linear"
    """The last parts of layers' names, a regular expression of whole names, or ``all-linear``."""


def lora_of(table: Mapping[str, Any]) -> Lora:
    """A user's table, checked.

    Raises:
        UserError: a setting that is not known, of another type, or out of bounds.
    """
    check_settings(Lora, table, "LoRA setting", "lora.{}")
    return Lora(**table)


def is_tiny(model: str) -> bool:
    """Whether a model is built on the spot."""
    return _TINY.fullmatch(model) is not None


def load_model(model: str, dtype: str = "float32", device: str = "cpu") -> tuple[Any, Any]:
    """(module, tokenizer) of a hub id, a folder, a ``.gguf`` file, ``tiny`` or ``tiny:SEED``.

    Raises:
        UserError: there is no such model, or no such device.
    """
    if dtype not in ("float32", "bfloat16", "float16"):
        raise unknown("dtype", dtype, ("float32", "bfloat16", "float16"))
    _check_device(device)
    if tiny := _TINY.fullmatch(model):
        module: Any = tiny_model(int(tiny[1] or 0))
        return module.to(device=device, dtype=getattr(torch, dtype)), tiny_tokenizer()
    where: dict[str, Any] = {"pretrained_model_name_or_path": model}
    gguf = model.endswith(".gguf")
    if gguf:
        path = Path(model)
        where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    if (gguf or model.startswith((".", "/"))) and not Path(model).exists():
        raise _no_model(model, "there is no such path")
    try:
        tokenizer = AutoTokenizer.from_pretrained(**where)
        module = AutoModelForCausalLM.from_pretrained(**where, dtype=getattr(torch, dtype))
    except (OSError, ValueError) as error:
        raise _no_model(model, str(error).splitlines()[0]) from None
    if gguf:  # its weights were unpacked: from here on it is an ordinary model
        module.hf_quantizer = None
        del module.config.quantization_config
    return module.to(device), tokenizer


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (AssertionError, NotImplementedError, RuntimeError) as error:  # torch was built without it, or finds none
        raise UserError(
            f"device was given as {device!r}, where torch can put nothing ({str(error).splitlines()[0]}); expected "
            f"cpu{' or cuda' * torch.cuda.is_available()}"
        ) from None


def _no_model(model: str, why: str) -> UserError:
    return UserError(
        f"model {model!r} is no folder, no .gguf file and no model of the hub that can be reached from here ({why}); "
        "give one of these, or 'tiny'"
    )


def plain_folder(model: str, into: Path) -> str:
    """A hub id or a folder that others can load: ``model`` itself, or what it is made of, written to ``into``."""
    if not is_tiny(model) and not model.endswith(".gguf"):
        return model
    module, tokenizer = load_model(model)
    module.save_pretrained(into)
    tokenizer.save_pretrained(into)
    return str(into)


def digest(model: str) -> str:
    """Names a model without loading it: of every file of a folder its name, size and middle; of a hub id the id."""
    found = hashlib.blake2b(model.encode() if not Path(model).is_dir() else b"", digest_size=4)
    for path in sorted(Path(model).iterdir()) if Path(model).is_dir() else ():
        if path.is_file():
            size = path.stat().st_size
            found.update(f"{path.name} {size}".encode())
            with path.open("rb") as file:
                file.seek(size // 2)
                found.update(file.read(1 << 16))
    return found.hexdigest()


def rank_of(folder: str) -> int:
    """The rank of an exported adapter."""
    return int(json.loads((Path(folder) / "adapter_config.json").read_text())["r"])


def base_of(folder: str) -> str | None:
    """The base model that an adapter folder names; None if it is no adapter folder."""
    try:
        about = json.loads((Path(folder) / "adapter_config.json").read_text())
    except OSError:
        return None
    return str(about["base_model_name_or_path"])


def new_adapter(module: Any, name: str, base: str, lora: Mapping[str, Any]) -> PeftModel:
    """``module`` with one more LoRA adapter (Hu et al. 2021, arXiv 2106.09685), which starts as the identity.

    Raises:
        UserError: a setting as :func:`lora_of` says, or targets that are not there.
    """
    given = lora_of(lora)
    targets = given.targets if isinstance(given.targets, str) else list(given.targets)
    layers = [f".{key}" for key, _ in module.named_modules()]
    for target in () if isinstance(targets, str) else targets:
        if not any(layer.endswith(f".{target}") for layer in layers):
            raise _no_targets(module, base, target)
    config = LoraConfig(r=given.rank, lora_alpha=given.alpha, target_modules=targets, task_type="CAUSAL_LM")
    seed = hashlib.blake2b(json.dumps([name, base]).encode(), digest_size=7).digest()
    with torch.random.fork_rng(devices=[]), _calm():
        torch.manual_seed(int.from_bytes(seed, "big"))
        try:
            if isinstance(module, PeftModel):
                module.add_adapter(name, config)
            else:
                module = get_peft_model(module, config, adapter_name=name)
        except (ValueError, re.error):
            raise _no_targets(module, base, targets) from None
    module.peft_config[name].base_model_name_or_path = str(Path(base).resolve()) if Path(base).exists() else base
    return module


def _no_targets(module: Any, base: str, targets: Any) -> UserError:
    linear = {key.rpartition(".")[2] for key, part in module.named_modules() if isinstance(part, torch.nn.Linear)}
    return UserError(
        f"LoRA looked for {targets!r} in {base!r} ({type(module).__name__}) and found none it can adapt; its "
        f"linear layers are called {', '.join(sorted(linear)) or 'nothing: there are none'}; name some of its layers "
        "as targets"
    )


def load_adapter(module: Any, name: str, folder: str) -> PeftModel:
    """``module`` with the adapter of an exported folder."""
    with _calm():
        if not isinstance(module, PeftModel):
            return PeftModel.from_pretrained(module, folder, adapter_name=name, is_trainable=True)
        module.load_adapter(folder, adapter_name=name, is_trainable=True)
    return module


@contextmanager
def _calm() -> Iterator[None]:
    """Without the warnings of PEFT's calls to names that transformers is about to rename: nobody can act on them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
