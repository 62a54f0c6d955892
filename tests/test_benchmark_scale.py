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


def test_an_adapter_is_a_small_part_of_its_model(scale: Any) -> None:
    plan, small, work = scale.Plan, scale.SMALL, scale.Work()
    adapter, model = (plan(small, full, 8, work, 5).handed for full in (False, True))
    assert adapter == 4 * 16 * 28 * (4 * 1536 + 2 * (1536 + 256) + 3 * (1536 + 8960))
    assert model / adapter == pytest.approx(41.7, abs=0.1)
