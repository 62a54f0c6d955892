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


@pytest.mark.parametrize(
    ("speed", "memory", "differ", "strict", "missed"),
    [
        (4.0, 30.0, 1e-7, True, []),
        (1.9, 30.0, 1e-7, False, []),  # a busy machine may be to blame
        (1.9, 30.0, 1e-7, True, ["speed"]),
        (4.0, 61.0, 1e-7, False, ["memory"]),
        (4.0, 30.0, float("nan"), False, ["gradients"]),
    ],
)
def test_a_missed_target_ends_with_status_1(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any,
    speed: float, memory: float, differ: float, strict: bool, missed: list[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(benchmark, "compared", lambda *_: ({"ours": speed, "padded loop": 1.0}, 99, differ))
    monkeypatch.setattr(benchmark, "peak", lambda *arguments: memory if arguments[-1] == "ours" else 60.0)
    monkeypatch.setattr(benchmark.platform, "system", lambda: "Linux")
    arguments = ["--batches", "conversations", *["--strict"] * strict]
    assert benchmark.main(arguments) == int(bool(missed))
    told = capsys.readouterr().err.splitlines()
    assert [line.removeprefix("missed: conversations: ").split()[0].rstrip(",") for line in told] == missed


def test_memory_that_nobody_measured_is_no_miss(benchmark: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(benchmark, "compared", lambda *_: ({"ours": 4.0, "padded loop": 1.0}, 99, 0.0))
    monkeypatch.setattr(benchmark.platform, "system", lambda: "Darwin")
    assert benchmark.main(["--strict"]) == 0
    assert capsys.readouterr().out.count("not measured") == 3
