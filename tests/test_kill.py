"""Killed and interrupted runs of the real command line: what was complete is kept, and goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from macredit.episode import read_episodes


def start(*words: str) -> subprocess.Popen[bytes]:
    """The command line as a terminal starts it: interruptible, even where the tests run in the background.

    On one thread, which other work on the machine slows down least.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "macredit.cli", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for(path: Path, lines: int) -> None:
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        if path.exists() and path.read_bytes().count(b"\n") >= lines:
            return
        time.sleep(0.01)  # polling a file another process writes
    raise TimeoutError(path)


LONG = ["play", "relay_v0", "--policy", "scripted:perfect", "-n", "60000"]


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_an_interrupted_play_leaves_a_valid_file(tmp_path: Path, sent: signal.Signals, status: int) -> None:
    path = tmp_path / "e.jsonl"
    with start(*LONG, "-o", str(path)) as running:
        wait_for(path, 50)
        running.send_signal(sent)
        running.communicate(timeout=60)
    assert running.returncode == status
    kept = read_episodes(path)
    assert 50 <= len(kept) < 60000
    assert all(e.end == "done" for e in kept)


TRAIN = ["train", "--env", "coalition_v0", "--model", "tiny", "--lora", "4", "--method", "sharp", "--tasks", "2"]
TRAIN += ["--group", "4", "--steps", "6", "--save-every", "2", "--evaluate-tasks", "0"]


def rewards_of(run: Path) -> list[float]:
    return [json.loads(line)["reward"] for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a run with these further words that nobody killed."""
    pytest.importorskip("torch")

    @cache
    def run(*words: str) -> Path:
        folder = tmp_path_factory.mktemp("unbroken") / "run"
        running = start(*TRAIN, *words, "-o", str(folder))
        running.communicate(timeout=300)
        assert running.returncode == 0
        return folder

    return run


RAY = ["--ray", "--ray-workers", "1"]


@pytest.mark.slow
@pytest.mark.parametrize(("where", "like"), [([], []), (["--engine", "copy"], []), (RAY, RAY)])
def test_a_killed_training_run_resumes_to_the_weights_of_an_unbroken_one(
    tmp_path: Path, unbroken: Callable[..., Path], where: list[str], like: list[str]
) -> None:
    whole, run = unbroken(*like), tmp_path / "run"
    with start(*TRAIN, *where, "-o", str(run)) as running:
        wait_for(run / "metrics.jsonl", 3)
        running.kill()
    again = start("train", "--resume", str(run), *where)
    again.communicate(timeout=300)
    assert again.returncode == 0
    for agent in ("planner", "a", "b", "c"):
        weights = f"{agent}/adapter_model.safetensors"
        assert (run / weights).read_bytes() == (whole / weights).read_bytes()
    assert rewards_of(run) == rewards_of(whole)


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_run_ahead_of_its_learners_stops_and_goes_on(tmp_path: Path, sent: signal.Signals, status: int) -> None:
    pytest.importorskip("torch")
    run = tmp_path / "run"
    with start(*TRAIN, "--engine", "copy", "--staleness", "1", "-o", str(run)) as running:
        wait_for(run / "metrics.jsonl", 3)
        running.send_signal(sent)
        running.communicate(timeout=60)
    assert running.returncode == status
    again = start("train", "--resume", str(run))
    again.communicate(timeout=300)
    assert again.returncode == 0
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in steps] == [1, 2, 3, 4, 5, 6]
    lag = [row["staleness"] for row in steps]
    assert lag[:2] == [0, 1]
    assert set(lag[2:]) <= {0, 1}
    assert 0 in lag[2:]  # the first batch after a checkpoint is made with the weights in it
