"""The page about scale says what its script computes."""

import importlib
import math
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("scale")


def test_the_page_holds_the_tables_that_the_script_prints(scale: Any) -> None:
    assert scale.written(BENCHMARKS / "SCALE.md") == scale.tables()


def test_three_numbers_worked_by_hand(scale: Any) -> None:
    work = scale.Work()
    # trees of 16 leaves over 8 turns: 8 + 7.2 + 2 · 5.4 + 4 · 3.6 + 8 · 1.8 = 54.8 turns, times 64 tasks
    assert math.isclose(work.c3, 64 * 54.8)
    # role 512, new 256, and (8/3 - 1)/2 = 5/6 of an own turn before, of 512 tokens
    assert math.isclose(work.context, 512 + 256 + 5 / 6 * 512)
    # a token of the 7B: keys and values of 28 layers × 4 heads × 128, two bytes each
    assert scale.LARGE.kv_token == 2 * 28 * 4 * 128 * 2


def test_one_line_worked_by_hand(scale: Any) -> None:
    plan = scale.Plan(scale.LARGE, False, 8, scale.Work(), 5)
    flops, bandwidth, row = 0.40 * 989e12, 0.70 * 3.35e12, 512 + 256 + 5 / 6 * 512 + 256
    step = 0.005 + (2 * 7.61e9 + 1024 / 5 * 57344 * (row - 128)) / bandwidth  # memory takes longer than arithmetic
    engines = 2 * 8192 / 5 * (256 / (1024 / 5) * step + 256 * 2 * 7.61e9 / flops)
    assert plan.stages("sharp")["engines"] == pytest.approx(engines)
    assert plan.stages("sharp")["learners"] == pytest.approx(6 * 7.61e9 * 8192 / 3 * row / flops)
    results = {line.split(" | ")[0].removeprefix("| "): line for line in scale.tables()["worked"].splitlines()}
    assert results["engines"].endswith(f" | {engines:.1f} s |")
    assert results["a learner's GPU"].endswith("/ 1 | 15.9 GB |")  # 15.22 + 16 · 0.0404


@pytest.mark.parametrize("method", ["dr_mas", "sharp", "c3"])
def test_a_learner_is_planned_on_one_machine(scale: Any, method: str) -> None:
    plans = [scale.best(*model, gpus, work, method) for gpus, work in scale.CASES for model in scale.MODELS]
    sizes = [plan.per_learner for plan in plans if plan is not None]
    assert max(sizes) == 8
    assert not scale.Plan(scale.LARGE, False, 64, scale.Work(), 37).fits  # nine GPUs a learner


def test_what_fits_nowhere_is_left_out(scale: Any) -> None:
    assert scale.best(scale.LARGE, True, 8, scale.Work()) is None  # two GPUs: (15.22 + 121.76) / 2 = 68 of 80 · 0.75
    assert not any(line.startswith("| 8 |") and "three 7B" in line for line in scale.tables()["sharp"].splitlines())


def test_an_adapter_is_a_small_part_of_its_model(scale: Any) -> None:
    plan, small, work = scale.Plan, scale.SMALL, scale.Work()
    adapter, model = (plan(small, full, 8, work, 5).handed for full in (False, True))
    assert adapter == 4 * 16 * 28 * (4 * 1536 + 2 * (1536 + 256) + 3 * (1536 + 8960))
    assert model / adapter == pytest.approx(41.7, abs=0.1)
