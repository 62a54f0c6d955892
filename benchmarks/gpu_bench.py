"""The device under test: its name and peak, its clock and memory, what is wrong so far, and the models it runs."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from gpu_models import make_folder
from values_rows import Limits

Line = dict[str, Any]

PEAK_TFLOPS = {
    "H100 PCIe": 756.5,
    "H100 NVL": 835.5,
    "H100": 989.4,
    "H200 NVL": 835.5,
    "H200": 989.4,
    "B200": 2250.0,
    "A100": 312.0,
    "L40S": 362.05,
    "L40": 181.05,
    "L4": 121.0,
    "A10G": 70.0,
}
"""Dense bfloat16 tensor-core TFLOP/s with float32 accumulation, from NVIDIA's data sheets (their figures "with
sparsity" halved), by part of the device's name: the first that is found in it, so special forms stand first."""


def peak_flops(name: str) -> float | None:
    """Dense bfloat16 FLOP/s of a device; None where it is not known."""
    return next((1e12 * peak for part, peak in PEAK_TFLOPS.items() if part in name), None)


@dataclass
class Bench:
    """One run on one device."""

    device: torch.device
    tiny: bool
    folder: Path
    """Where models are made."""
    budget: int = 0
    """Computed tokens of a micro-batch, 0: the default."""
    failures: list[str] = field(default_factory=list)
    seconds_per_row: float | None = None
    """Of a learner's step with the larger model, once it was measured."""

    def __post_init__(self) -> None:
        torch.set_float32_matmul_precision("highest")  # float32 means float32: no TF32 behind the comparison
        self.name = torch.cuda.get_device_name(self.device) if self.cuda else "cpu"
        self.peak = peak_flops(self.name)
        self.precision: Literal["float32", "bfloat16"] = "bfloat16" if self.cuda else "float32"
        self.batch_tokens = self.budget or (1024 if self.tiny else 4096)

    @property
    def cuda(self) -> bool:
        """Whether there is a GPU."""
        return self.device.type == "cuda"

    def about(self) -> Line:
        """What the numbers are measured on."""
        return {
            "part": "device", "device": self.name, "torch": torch.__version__, "cuda": torch.version.cuda,
            "transformers": transformers.__version__, "tiny": self.tiny, "threads": torch.get_num_threads(),
            "peak_bf16_flops": self.peak, "peak_source": "NVIDIA data sheets, dense" if self.peak else None,
            "matmul_flops": round(self.matmul_flops()), "float32_matmul": torch.get_float32_matmul_precision(),
        }  # fmt: skip

    def matmul_flops(self) -> float:
        """FLOP/s of one large matrix product in the precision that is timed: what the peak is worth here."""
        n = 8192 if self.cuda else 512
        a = torch.randn(n, n, device=self.device, dtype=getattr(torch, self.precision))
        self.seconds(lambda: a @ a)
        return 2 * n**3 / min(self.seconds(lambda: a @ a) for _ in range(5))

    def model(self, size: str, dtype: str = "float32") -> str:
        """The folder of a model of that size, made when first asked for."""
        folder = self.folder / f"{size}-{dtype}"
        if not folder.exists():
            make_folder(folder, size, dtype, self.device)
        return str(folder)

    def seconds(self, work: Callable[[], object]) -> float:
        """Wall time of some work, until the device has done it."""
        self._wait()
        start = time.perf_counter()
        work()
        self._wait()
        return time.perf_counter() - start

    def _wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def clear(self) -> None:
        """Give up what nobody uses, and forget the peak of memory."""
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)

    def peak_memory(self) -> int | None:
        """Most bytes that tensors took at once since :meth:`clear`; None where nobody counts."""
        return int(torch.cuda.max_memory_allocated(self.device)) if self.cuda else None

    def check(self, holds: bool, reason: str) -> None:
        """Keep the reason where something does not hold."""
        if not holds:
            self.failures.append(reason)

    def judged(self, where: str, line: Line, key: str, must: Limits) -> Line:
        """The line with the target of one of its numbers, and whether that is met; a target that is not is a failure.

        Targets are meant for full sizes on a GPU: elsewhere, or where nobody could measure the number, both are None.
        """
        value = line.get(key)
        if value is None or self.tiny or not self.cuda:
            return {**line, "target": None, "met": None}
        low, high = must
        target = f"{key} <= {high}" if math.isinf(low) else f"{key} >= {low}"
        met = low <= value <= high
        self.check(met, f"{where}: {key} is {value:.4g}; expected {target}")
        return {**line, "target": target, "met": met}

    def check_finite(self, where: str, line: Line) -> Line:
        """The line itself; its numbers must be finite."""
        wrong = [key for key, value in line.items() if isinstance(value, float) and not math.isfinite(value)]
        self.check(not wrong, f"{where}: {', '.join(wrong)} is not finite")
        return line
