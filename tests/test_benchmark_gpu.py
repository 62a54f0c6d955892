"""The GPU script: what it counts, what it refuses, and that it needs nothing but what a PyTorch image holds."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[1]
ALONE = """
import sys
ALLOWED = {"numpy", "scipy", "numba", "llvmlite", "networkx", "macredit", *sys.stdlib_module_names}
class Rest:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in ALLOWED and not top.startswith("_"):
            raise ModuleNotFoundError(f"no {name}", name=name)
sys.meta_path.insert(0, Rest())
from macredit.credit import credit
from macredit.episode import Episode, Turn
from macredit.values import exact_values
import macredit.learn.loss, macredit.learn, macredit.advantage
episodes = [Episode(f"e{n}", "t", (Turn("a", "x", id=f"{n}"),), reward=float(n), group=n) for n in range(2)]
print(credit(episodes, "grpo").advantage.round(3).tolist(), exact_values(["a"], [0.0, 2.0])["shapley"])
"""
IMAGE = """
import runpy, sys
from pathlib import Path
class Rest:
    def find_spec(self, name, path=None, target=None):
        absent = {"bm25s", "cattrs", "cyclopts", "gymnasium", "pettingzoo", "reasoning_gym"}
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"no {name}", name=name)
sys.meta_path.insert(0, Rest())
del sys.argv[0]
sys.path[0] = str(Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def module(name: str) -> Any:
    return importlib.import_module(name)


def row(ids: list[int], trained: int) -> Any:
    from macredit.learn import TrainRow

    mask = np.arange(len(ids)) >= len(ids) - trained
    return TrainRow(np.array(ids), mask, np.zeros(len(ids)), 1.0, 1.0, 0)


def test_the_mathematics_imports_and_runs_alone() -> None:
    out = subprocess.run([sys.executable, "-c", ALONE], check=True, capture_output=True, text=True).stdout
    assert out == "[-1.0, 1.0] {'a': 2.0}\n"  # (0 − 0.5) / 0.5 and (1 − 0.5) / 0.5, to three digits


def test_what_must_be_computed_at_least_once() -> None:
    rows = [row([1, 2, 3, 4, 5], 1), row([1, 2, 9, 5], 1), row([7, 5], 1)]
    work = module("gpu_rows").work_of
    assert work(rows, shared=False) == module("gpu_rows").Work(tokens=8, attended=10 + 6 + 1, trained=3)
    # 1 2 3 4, then 9 after 1 2 (it attends to three), then 7
    assert work(rows, shared=True) == module("gpu_rows").Work(tokens=6, attended=10 + 3 + 1, trained=3)


def test_floating_point_operations_by_hand() -> None:
    config = SimpleNamespace(hidden_size=2, vocab_size=5, num_hidden_layers=1)
    weights = {"model.layers.0.w": 10, "model.embed.w": 10, "model.layers.0.lora_A.a.w": 3}

    def flops(names: list[str]) -> float:
        parameters = [(name, torch.zeros(weights[name], requires_grad="embed" not in name)) for name in names]
        model = SimpleNamespace(config=config, named_parameters=lambda: parameters)
        return float(module("gpu_rows").model_flops(module("gpu_rows").Work(4, 10, 1), model))

    # three passes of 2 · 10 · 4 for the layer and 2 · 2 · 5 · 1 for the output, and 3 · 4 · 1 · 2 · 10 for attention
    assert flops(list(weights)[:2]) == 3 * (80 + 20) + 240
    assert flops(list(weights)) == 2 * (80 + 20) + 240 + 6 * 3 * 4  # the layer is frozen, the adapter learns


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989.4e12),
        ("NVIDIA H100 PCIe", 756.5e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA L40S", 362.05e12),
        ("NVIDIA L4", 121e12),
        ("Radeon", None),
    ],
)
def test_the_peak_of_a_device(name: str, peak: float | None) -> None:
    assert module("gpu_bench").peak_flops(name) == peak


def test_a_wrong_result_is_named_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = module("gpu")

    def diverging(bench: Any) -> Any:
        bench.check(False, "the loss of a fixed batch went from 1 to 2")
        yield bench.check_finite("learner", {"loss": float("nan"), "rows": 3})

    def full(_: Any) -> Any:
        raise torch.OutOfMemoryError("tried to allocate 80 GiB")

    monkeypatch.setattr(gpu, "PARTS", {"learner": diverging, "sampling": full})
    assert gpu.main(["--device", "cpu", "--tiny", "--only", "learner,sampling", "--models", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    *_, verdict = map(json.loads, shown.out.splitlines())
    assert verdict["failures"] == shown.err.splitlines()
    assert verdict["failures"] == [
        "the loss of a fixed batch went from 1 to 2", "learner: loss is not finite",
        "sampling: tried to allocate 80 GiB; --batch-tokens lowers what is computed at once",
    ]  # fmt: skip
    with pytest.raises(SystemExit):
        gpu.main(["--only", "chess", "--models", str(tmp_path)])


@pytest.mark.slow
def test_the_script_runs_where_only_a_pytorch_image_is(tmp_path: Path) -> None:
    (tmp_path / "image.py").write_text(IMAGE)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/image.py "$@"\n')
    python.chmod(0o755)
    environment = os.environ | {"PYTHON": str(python), "OMP_NUM_THREADS": "1"}
    command = [str(ROOT / "benchmarks" / "gpu.sh"), "--device", "cpu", "--tiny"]
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=tmp_path).stdout
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[-1]["ok"]
    assert {line["part"] for line in lines} == {"device", "parity", "learner", "sampling", "credit", "verdict"}
    for one in [line for line in lines if line.get("side") == "macredit"]:
        assert one["distinct_tokens"] <= one["computed_tokens"] < one["tokens"]  # prefixes are computed once
