"""A run's folder: checkpoints in order, numbers as JSON has them, and files that are not what was saved."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from macredit.cli import main
from macredit.config import read_config
from macredit.errors import UserError
from macredit.ledger import Ledger
from macredit.run_folder import RunFolder, checkpoints, read_metrics

ABOUT = {"ledger": Ledger().json(), "method": "sharp"}


class Number:
    """A part of a run."""

    def __init__(self, value: int) -> None:
        self.value = value

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "number").write_text(str(self.value))

    def load(self, folder: Path) -> None:
        self.value = int((folder / "number").read_text())


def folder_at(path: Path, steps: int = 2) -> RunFolder:
    """A run of some steps."""
    run = RunFolder(path, {"p": Number(7)})
    run.begin({})
    for step in range(1, steps + 1):
        run.log({"step": step, "reward": 0.5})
        run.save(step, ABOUT)
    return run


def test_a_run_goes_on_from_its_newest_checkpoint(tmp_path: Path) -> None:
    run = folder_at(tmp_path)
    run.log({"step": 3, "reward": 1.0})
    part = Number(0)
    about, rows = RunFolder(tmp_path, {"p": part}).load()
    assert (about["step"], part.value) == (2, 7)
    assert rows == read_metrics(tmp_path) == [{"step": 1, "reward": 0.5}, {"step": 2, "reward": 0.5}]


def test_checkpoints_go_by_their_number_and_strange_folders_are_none(tmp_path: Path) -> None:
    for name in ("step-1000000", "step-999999", "step-zzz", "step-", "step-000002b", ".part"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-999999", "step-1000000"]


def test_numbers_that_are_not_finite_are_null(tmp_path: Path) -> None:
    run = folder_at(tmp_path)
    nan, inf = float("nan"), float("inf")
    run.log({"step": 2, "evaluation": {"avg": nan, "interval": (0.0, inf)}, "learners": {"a": {"kl": [-inf]}}, "n": 1})
    expected = {
        "step": 2,
        "evaluation": {"avg": None, "interval": [0.0, None]},
        "learners": {"a": {"kl": [None]}},
        "n": 1,
    }
    assert read_metrics(tmp_path)[-1] == expected
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "kl": NaN}\n')  # as other writers of JSON put it
    run.load()
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text.splitlines()[-1], parse_constant=pytest.fail) == {"step": 2, "kl": None}


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"3\n", "its line 1 is 3"),
        (b'{"step": 1}\n[]\n', "its line 2 is a list"),
        (b'{"step": 1}\n{"a": 1}\n', "its line 2 has no step"),
        (b'{"step": "1"}\n', 'its step is "1"'),
        (b'{"step": 1\n{"step": 2}\n', "line 1 is no JSON"),
        (b"\xff\xfe\n", "it is no text"),
    ],
)
def test_lines_that_are_no_rows(content: bytes, wrong: str, tmp_path: Path) -> None:
    run = folder_at(tmp_path)
    (tmp_path / "metrics.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=rf"metrics.jsonl is damaged \({wrong}.*; repair that, or put an empty file"):
        run.load()
    assert (tmp_path / "metrics.jsonl").read_bytes() == content


def test_a_last_line_that_was_cut_off_is_left_out_and_an_empty_file_holds_no_rows(tmp_path: Path) -> None:
    run = folder_at(tmp_path)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "rew')
    assert [row["step"] for row in run.load()[1]] == [1, 2]
    (tmp_path / "metrics.jsonl").write_text("")
    assert run.load()[1] == []
    (tmp_path / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match=r"metrics.jsonl cannot be read \(No such file.*put it back, or an empty file"):
        run.load()


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ("[]", r"is damaged \(its content is a list\); expected an object with step, ledger"),
        ('{"step": 2', r"is damaged \(no JSON"),
        (json.dumps({**ABOUT, "step": "2"}), r'is damaged \(its step is "2"\); expected a whole number'),
        (json.dumps({**ABOUT, "step": True}), r"is damaged \(its step is true"),
        (json.dumps({**ABOUT, "step": -3}), r"is damaged \(its step is -3\); expected 2, that of its folder"),
        ('{"step": 2}', r"is damaged \(its content has no ledger"),
        ('{"step": 2, "ledger": 3}', r"is damaged \(its ledger is 3"),
        ('{"step": 2, "ledger": {"x": 1}}', r"is damaged \(its ledger has x = 1\)"),
        ('{"step": 2, "ledger": {"calls": "1"}}', r'is damaged \(its ledger has calls = "1"\)'),
        ('{"step": 2, "ledger": {"calls": NaN}}', r"is damaged \(its ledger has calls = NaN\)"),
        (None, r"cannot be read \(No such file or directory\); expected step and ledger"),
    ],
)
def test_what_a_checkpoint_says_of_itself(content: str | None, wrong: str, tmp_path: Path) -> None:
    folder_at(tmp_path)
    newest, part = checkpoints(tmp_path)[-1], Number(0)
    (newest / "run.json").unlink()
    if content is not None:
        (newest / "run.json").write_text(content)
    with pytest.raises(UserError, match=rf"run.json {wrong}.*; move {newest} away to go on with an older checkpoint"):
        RunFolder(tmp_path, {"p": part}).load()
    assert part.value == 0
    shutil.rmtree(newest)
    assert RunFolder(tmp_path, {"p": part}).load()[0]["step"] == 1


@pytest.mark.parametrize("data", [[], None, 3, "env"])
def test_a_configuration_has_sections(data: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match=r"config.json: it holds .*; expected an object of sections"):
        read_config(tmp_path / "config.json")


@pytest.mark.parametrize("content", [b"\xff\xfe", b'{"env"', b"[" * 100_000])
def test_a_kept_configuration_is_json(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UserError, match=r"config.json: .*; expected JSON, as a run keeps it"):
        read_config(tmp_path / "config.json")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of tables with a critic that ended after its second of three steps."""
    run = tmp_path_factory.mktemp("trained") / "run"
    words = [
        "--env",
        "coalition_v0",
        "--policy",
        "table:help,pass",
        "--tasks",
        "2",
        "--group",
        "4",
        "--save-every",
        "1",
    ]
    more = ["--evaluate-tasks", "0", "--steps", "2", "--method", "c3", "-o", str(run)]
    assert main(["train", *words, *more]) == 0
    kept = json.loads((run / "config.json").read_text())
    kept["train"]["steps"] = 3
    (run / "config.json").write_text(json.dumps(kept))
    return run


def lost(newest: Path) -> None:
    shutil.rmtree(newest / "planner")


def of_nan(newest: Path) -> None:
    file = newest / "planner" / "state.safetensors"
    save_file({name: np.full_like(array, np.nan) for name, array in load_file(file).items()}, file)


def of_nothing(newest: Path) -> None:
    save_file({}, newest / "planner" / "state.safetensors")


def listed(newest: Path) -> None:
    (newest / "planner" / "state.json").write_text("[]")


@pytest.mark.parametrize("change", [lost, of_nan, of_nothing, listed], ids=lambda one: one.__name__)
def test_a_damaged_run_ends_with_one_sentence_and_is_left_as_it_is(
    change: Callable[[Path], None], trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    newest = checkpoints(run)[-1]
    change(newest)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert main(["train", "--resume", str(run)]) == 2
    printed = capsys.readouterr().err
    assert "step-000002/planner" in printed
    assert "Traceback" not in printed
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    shutil.rmtree(newest)
    assert main(["train", "--resume", str(run)]) == 0
