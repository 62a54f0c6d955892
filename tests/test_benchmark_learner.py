"""The learner benchmark: its batches, and that a wrong gradient ends with exit status 1."""

from __future__ import annotations

import importlib
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "benchmarks"), *sys.path])
    return importlib.import_module("learner")


def test_turns_of_a_conversation_go_on_where_the_last_ended(benchmark: Any) -> None:
    rows = benchmark.rows_of(benchmark.Shape(tasks=1, group=1, turns=40), 99)
    rows = sorted(rows, key=lambda row: len(row.ids))
    assert len(rows) > 1
    for one, two in pairwise(rows):
        assert np.array_equal(two.ids[: len(one.ids)], one.ids)
    assert all(row.mask[-1] and not row.mask[0] for row in rows)


@pytest.mark.slow
def test_a_wrong_gradient_is_told(benchmark: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(benchmark, "peak", lambda *_: 1.0)
    arguments = ["--batches", "nothing in common", "--tasks", "2", "--repeats", "1"]
    assert benchmark.main(arguments) == 0
    assert "nothing in common" in capsys.readouterr().out
    monkeypatch.setattr(benchmark, "CLOSE", 0.0)
    assert benchmark.main(arguments) == 1
    assert "gradients differ by" in capsys.readouterr().err
