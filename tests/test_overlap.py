"""Rollouts ahead of learning: in order, bounded, and with errors that arrive."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from macredit.cli import world_of
from macredit.config import MethodConfig, RunConfig, TrainConfig
from macredit.errors import UserError
from macredit.overlap import Ahead
from macredit.train import train


def learning(bound: int, steps: int = 5, first: int = 0) -> list[tuple[int, int]]:
    """(Step, weights its batch was made with) of a loop that hands weights over after every step."""
    weights, made = first, []

    def make(step: int) -> tuple[int, int]:
        return step, weights

    with Ahead(make, first, steps, bound) as ahead:
        for _ in range(first, steps):
            made.append(ahead.take())
            ahead.wait()
            weights += 1
    return made


def test_batches_come_in_order_with_weights_that_lack_the_bound_and_no_more() -> None:
    assert learning(0) == [(n, n) for n in range(5)]
    assert learning(1) == [(0, 0), (1, 0), (2, 1), (3, 2), (4, 3)]
    assert learning(2) == [(0, 0), (1, 0), (2, 0), (3, 1), (4, 2)]
    assert learning(9) == [(n, 0) for n in range(5)]  # never more steps than there are
    assert learning(1, first=3) == [(3, 3), (4, 3)]


def test_without_a_bound_batches_are_made_where_they_are_taken() -> None:
    with Ahead(lambda _: threading.current_thread(), 0, 1, 0) as ahead:
        assert ahead.take() is threading.current_thread()
    with Ahead(lambda _: threading.current_thread(), 0, 1, 1) as ahead:
        assert ahead.take() is not threading.current_thread()


def test_the_next_batch_is_made_while_one_is_used() -> None:
    made = {0: threading.Event(), 1: threading.Event()}

    def make(step: int) -> Callable[[], bool]:
        made[step].set()
        return lambda: made[1].wait(10)

    with Ahead(make, 0, 2, 1) as ahead:
        assert ahead.take()()  # the use of batch 0 ends only because batch 1 is made meanwhile
        assert ahead.take() is not None


def test_an_error_arrives_with_its_batch() -> None:
    def make(step: int) -> int:
        if step == 1:
            raise KeyError("step 1")
        return step

    with Ahead(make, 0, 4, 2) as ahead:
        assert ahead.take() == 0
        with pytest.raises(KeyError, match="step 1"):
            ahead.take()


def test_what_was_not_begun_is_not_made_after_the_loop_ended() -> None:
    begun, running, go_on = [], threading.Event(), threading.Event()

    def make(step: int) -> int:
        begun.append(step)
        if step == 1:
            running.set()
            go_on.wait(10)
        return step

    with Ahead(make, 0, 5, 4) as ahead:
        ahead.take()
        running.wait(10)
        threading.Timer(0.3, go_on.set).start()  # the loop ends while batch 1 is being made
    assert begun == [0, 1]


def overlapping(folder: Path, staleness: int, engine: bool = True) -> list[dict[str, Any]]:
    tiny = {"kind": "hf", "model": "tiny", "max_tokens": 2, "lora": {"rank": 4}} | (
        {"engine": "copy"} if engine else {}
    )
    t = TrainConfig(steps=4, tasks=2, group=4, evaluate_tasks=0, save_every=2, staleness=staleness)
    own = RunConfig({"name": "coalition_v0", "preset": "additive"}, {"*": tiny}, method=MethodConfig("sharp"), train=t)
    return train(world_of(own), own, folder)


def seen(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a run computed: everything but the clock."""
    clock = {"seconds", "tokens_per_second", "hand_over", "cost"}
    return [{key: value for key, value in row.items() if key not in clock} for row in rows]


@pytest.mark.slow
def test_overlapped_runs_lag_by_the_bound_and_come_out_alike_each_time(tmp_path: Path) -> None:
    once = overlapping(tmp_path / "once", 1)
    assert [row["staleness"] for row in once] == [0, 1, 1, 1]
    assert seen(once) == seen(overlapping(tmp_path / "twice", 1))
    fresh = overlapping(tmp_path / "fresh", 0)
    assert [row["staleness"] for row in fresh] == [0, 0, 0, 0]
    assert [row["reward"] for row in fresh[:1]] == [row["reward"] for row in once[:1]]
    assert seen(fresh)[2] != seen(once)[2]
    begun = [row["cost"]["resets"] - row["cost"]["replays"] for row in once]
    assert begun == [8, 16, 24, 32]  # of the steps so far, and nothing of the one that is played ahead


def test_running_ahead_needs_an_engine(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="staleness is 2, but policy 'planner' speaks with the very weights that"):
        overlapping(tmp_path, 2, engine=False)
