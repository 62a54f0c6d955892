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


def on_a_gpu(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    """A bench of full sizes that believes in a GPU."""
    bench = module("gpu_bench").Bench(torch.device("cpu"), tiny=False, folder=folder)
    monkeypatch.setattr(module("gpu_bench").Bench, "cuda", True)
    return bench


def test_targets_are_meant_for_full_sizes_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, bench = module("values_rows"), module("gpu_bench").Bench(torch.device("cpu"), tiny=False, folder=tmp_path)
    unjudged = {"mfu": 0.1, "target": None, "met": None}
    assert bench.judged("learner", {"mfu": 0.1}, "mfu", rows.at_least(0.4)) == unjudged
    bench = on_a_gpu(monkeypatch, tmp_path)
    assert bench.judged("learner", {"mfu": None}, "mfu", rows.at_least(0.4))["met"] is None  # its peak is not known
    assert bench.judged("learner", {"mfu": 0.4}, "mfu", rows.at_least(0.4))["met"] is True
    assert bench.judged("credit", {"share": 0.01}, "share", rows.at_most(0.01))["met"] is True
    assert bench.failures == []
    line = bench.judged("learner, 1.5B", {"mfu": 0.39}, "mfu", rows.at_least(0.4))
    assert line == {"mfu": 0.39, "target": "mfu >= 0.4", "met": False}
    bench.judged("credit, c3", {"share": 0.02}, "share", rows.at_most(0.01))
    assert bench.failures == [
        "learner, 1.5B: mfu is 0.39; expected mfu >= 0.4", "credit, c3: share is 0.02; expected share <= 0.01",
    ]  # fmt: skip
    bench.tiny = True
    assert bench.judged("learner", {"mfu": 0.1}, "mfu", rows.at_least(0.4)) == unjudged


def test_the_targets_of_learners_and_of_credit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, bench = module("gpu_learner"), on_a_gpu(monkeypatch, tmp_path)

    def side(_: Any, case: Any, make: Any) -> dict[str, Any]:
        ours = make is learner.learners
        found = {"mfu": 0.3, "peak_bytes": 2.0 if ours else 1.0, "seconds_per_step": 96.0, "rows": 96}
        return {**found, "tokens_per_second": 3.0 if case.compile else 2.0 if ours else 1.0}

    monkeypatch.setattr(learner, "side", side)
    monkeypatch.setattr(learner, "cannot_compile", lambda _: None)
    lines = list(learner.learner(bench))
    assert [line.get("target") for line in lines] == [
        None, None, "memory_ratio <= 1.0", "mfu >= 0.4", None, "memory_ratio <= 1.0", None,
    ]  # fmt: skip
    assert lines[-1]["compile_ratio"] == 1.5  # three tokens a second instead of two
    assert [failure.split("; ")[0] for failure in bench.failures] == [
        "learner, 0.5B, three full models: memory_ratio is 2",
        "learner, 1.5B, three adapters: mfu is 0.3",
        "learner, 1.5B, three adapters: memory_ratio is 2",
    ]
    shown = [module("gpu_credit").shown(bench, "grpo", 99, seconds) for seconds in (0.9, 9.0)]  # of 99 s of learning
    assert [line["met"] for line in shown] == [True, False]
    assert bench.failures[3:] == ["credit, grpo: share is 0.08333; expected share <= 0.01"]


def test_what_cannot_be_compiled_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, bench = module("gpu_learner"), module("gpu_bench").Bench(torch.device("cpu"), tiny=True, folder=tmp_path)
    case = learner.cases(bench)[-1]
    line = learner.compiled(bench, case)
    assert line["compile_ratio"] is None
    assert line["reason"].startswith("generating code for a CPU takes minutes")
    assert bench.failures == []

    def side(_: Any, case: Any, __: Any) -> dict[str, Any]:
        if case.compile:
            raise RuntimeError("graph break in attend\nand where")
        return {"tokens_per_second": 1.0}

    monkeypatch.setattr(learner, "side", side)
    monkeypatch.setattr(learner, "cannot_compile", lambda _: None)
    assert learner.compiled(bench, case)["reason"] == "RuntimeError: graph break in attend"
    (failure,) = bench.failures
    assert failure.endswith("one learner: compile = true: RuntimeError: graph break in attend")


def test_a_run_that_takes_too_long_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu, bench = module("gpu"), on_a_gpu(monkeypatch, tmp_path)
    monkeypatch.setattr(gpu, "run", lambda *_: None)
    monkeypatch.setattr(gpu, "SECONDS", -1)
    monkeypatch.setattr(gpu, "Bench", lambda *_: bench)
    monkeypatch.setattr(type(bench), "about", lambda _: {"part": "device"})
    assert gpu.main(["--device", "cpu", "--models", str(tmp_path)]) == 1
    verdict = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (verdict["target"], verdict["met"], verdict["ok"]) == ("seconds <= -1", False, False)


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
    assert not any(line.get("target") or line.get("met") for line in lines)  # they are a GPU's
    assert len([line for line in lines if "target" in line]) == 1 + 2 + 3 + 1  # use, memory, credit, the whole
    assert {line["part"] for line in lines} == {"device", "parity", "learner", "sampling", "credit", "verdict"}
    for one in [line for line in lines if line.get("side") == "macredit"]:
        assert one["distinct_tokens"] <= one["computed_tokens"] < one["tokens"]  # prefixes are computed once
