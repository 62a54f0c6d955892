"""Trackers: the numbers arrive, a resumed run goes on, and every tracker is closed, after an error too."""

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from macredit.cli import main, world_of
from macredit.config import AgentConfig, RunConfig, TrainConfig
from macredit.errors import OutsideError, UserError
from macredit.trackers import flat, leaves, openers, recorded, tracking
from macredit.train import train

TABLES: dict[str, dict[str, Any]] = {
    "*": {"kind": "table", "replies": ["help", "pass"]},
    "planner": {"kind": "scripted", "style": "perfect"},
}
SMALL = RunConfig(
    {"name": "coalition_v0"},
    TABLES,
    (AgentConfig("planner", trainable=False),),
    train=TrainConfig(steps=2, tasks=1, group=2, evaluate_tasks=1, evaluate_k=1, save_every=1),
)


class Notes:
    """A tracker that remembers."""

    opened: list["Notes"] = []  # noqa: RUF012 (the tests read it)

    def __init__(self, run: Path, config: Mapping[str, Any], id: str) -> None:
        self.id, self.given, self.run = id or f"new-{len(self.opened)}", id, run.name
        self.got: list[tuple[int, Mapping[str, float]]] = []
        self.closed: list[bool] = []
        Notes.opened.append(self)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self.got.append((step, numbers))

    def close(self, failed: bool) -> None:
        self.closed.append(failed)


@pytest.fixture(autouse=True)
def _none_open() -> None:
    Notes.opened.clear()


def test_metrics_are_flattened() -> None:
    row = {"a": 1, "b": {"c": 2.5, "d": None}, "e": "x", "f": True}
    assert flat(row) == {"a": 1.0, "b/c": 2.5}
    assert dict(leaves(row)) == {"a": 1, "b/c": 2.5, "b/d": None, "e": "x", "f": True}


def test_every_number_of_a_run_arrives_and_a_resumed_run_goes_on(tmp_path: Path) -> None:
    train(world_of(SMALL), SMALL, tmp_path / "run", trackers={"notes": Notes})
    longer = replace(SMALL, train=replace(SMALL.train, steps=3))
    train(world_of(longer), longer, tmp_path / "run", trackers={"notes": Notes}, resume=True)
    first, second = Notes.opened
    assert (first.run, first.given, first.closed) == ("run", "", [False])
    assert (second.given, second.closed) == (first.id, [False])
    assert [step for step, _ in first.got] == [0, 1, 2, 2]  # evaluation, two steps, evaluation
    assert [step for step, _ in second.got] == [3, 3]
    assert first.got[1][1].keys() >= {"reward", "credit/a", "learners/a/loss", "seconds"}
    assert first.got[0][1].keys() >= {"evaluation/avg"}


def test_a_failed_run_closes_its_trackers_as_failed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), tracking({"notes": Notes}, tmp_path, {}):
        raise RuntimeError
    assert Notes.opened[0].closed == [True]


def test_a_tracker_that_does_not_open_closes_the_others(tmp_path: Path) -> None:
    class Broken(Notes):
        def __init__(self, run: Path, config: Mapping[str, Any], id: str) -> None:
            raise UserError("no server")

    with pytest.raises(UserError), tracking({"notes": Notes, "broken": Broken}, tmp_path, {}):
        pass
    assert Notes.opened[0].closed == [True]
    assert recorded(tmp_path) == {}


def test_a_tracker_that_does_not_close_keeps_no_other_from_closing(tmp_path: Path) -> None:
    class Stuck(Notes):
        def close(self, failed: bool) -> None:
            raise OutsideError("no server")

    with pytest.raises(OutsideError), tracking({"notes": Notes, "stuck": Stuck}, tmp_path, {}):
        pass
    assert Notes.opened[0].closed == [True]


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b'["wandb"]', "its content is a list"),
        (b"\xff\xfe", "no JSON: 'utf-8' codec"),
        (b'{"wandb"', "no JSON"),
        (b'{"wandb": 3}', r"its wandb is 3\); expected a text"),
    ],
)
def test_a_damaged_record_is_named(content: bytes, wrong: str, tmp_path: Path) -> None:
    (tmp_path / "trackers.json").write_bytes(content)
    with pytest.raises(UserError, match=rf"trackers.json is damaged \({wrong}.*; repair it, or delete it"):
        recorded(tmp_path)


def test_a_new_run_does_not_go_on_with_what_the_folder_records(tmp_path: Path) -> None:
    for resume, given in ((False, ""), (False, ""), (True, "new-1")):
        with tracking({"notes": Notes}, tmp_path, {}, resume):
            assert Notes.opened[-1].given == given


def test_an_unknown_tracker_is_named() -> None:
    with pytest.raises(UserError, match=r"unknown tracker 'wandbb'.*Did you mean 'wandb'"):
        openers(["wandbb"])


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("macredit.trackers.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r'pip install "macredit\[mlflow\]"'):
        openers(["mlflow"])


def test_tensorboard_gets_the_numbers_of_both_parts_of_a_resumed_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = str(tmp_path / "run")
    words = ["--env", "coalition_v0", "--policy", "table:help|pass", "--tasks", "1", "--group", "2"]
    assert main(["train", *words, "--evaluate-tasks", "0", "--steps", "1", "--tensorboard", "-o", run]) == 0
    kept = json.loads((tmp_path / "run" / "config.json").read_text())
    kept["train"]["steps"] = 2
    (tmp_path / "run" / "config.json").write_text(json.dumps(kept))
    assert main(["train", "--resume", run]) == 0
    events = EventAccumulator(run + "/tensorboard").Reload()
    assert [event.step for event in events.Tensors("reward")] == [1, 2]


@pytest.fixture
def tracked(tmp_path: Path) -> Any:
    """Trains a run of one step with trackers, and resumes it for a second; returns its folder."""

    def go(names: str) -> Path:
        run = tmp_path / "my-run"
        words = ["--env", "coalition_v0", "--policy", "table:help", "--tasks", "1", "--group", "2"]
        assert main(["train", *words, "--evaluate-tasks", "0", "--steps", "1", "--track", names, "-o", str(run)]) == 0
        kept = json.loads((run / "config.json").read_text())
        kept["train"]["steps"] = 2
        (run / "config.json").write_text(json.dumps(kept))
        assert main(["train", "--resume", str(run)]) == 0
        return run

    return go


@pytest.mark.integrations
@pytest.mark.filterwarnings("ignore")  # the trackers' own
def test_mlflow_keeps_one_run_in_local_files(tracked: Any) -> None:
    import mlflow

    run = tracked("mlflow")
    client = mlflow.MlflowClient((run / "mlflow").as_uri())
    (kept,) = client.search_runs([client.get_experiment_by_name("macredit").experiment_id])
    assert kept.info.run_name == "my-run"
    assert kept.info.status == "FINISHED"
    assert [metric.step for metric in client.get_metric_history(kept.info.run_id, "reward")] == [1, 2]
    assert kept.data.metrics.keys() >= {"credit/a", "learners/a/loss"}
    assert kept.data.params["env/name"] == "coalition_v0"
    assert kept.data.params["policies/_2a_/kind"] == "table"  # the configuration's policies/*/kind
    assert "config.json" in [file.path for file in client.list_artifacts(kept.info.run_id)]


@pytest.mark.integrations
@pytest.mark.filterwarnings("ignore")
def test_wandb_writes_both_parts_offline_under_one_id(tracked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    run = tracked("wandb")
    files = sorted((run / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2
    records = [Record.FromString(data) for file in files for data in written(file.read_bytes())]
    kept = {(record.run.run_id, record.run.display_name) for record in records if record.run.run_id}
    assert kept == {(recorded(run)["wandb"], "my-run")}
    rows = [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.history.item
    ]
    assert [row["_step"] for row in rows] == [1, 2]
    assert all(row.keys() >= {"reward", "credit/a", "learners/a/loss"} for row in rows)
    config = {item.key: json.loads(item.value_json) for record in records for item in record.run.config.update}
    assert config["env"]["name"] == "coalition_v0"


def written(data: bytes) -> Iterator[bytes]:
    """The records in a file of Weights & Biases: a LevelDB log after a header of 7 bytes, in blocks of 32 KiB."""
    at, record = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # the whole record, or its last part
            yield record
            record = b""


@pytest.mark.integrations
@pytest.mark.filterwarnings("ignore")
def test_trackio_keeps_one_run_in_a_local_database(
    tracked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    run = tracked("trackio")
    (kept,) = trackio.Api().runs("macredit")
    assert kept.name == recorded(run)["trackio"]
    assert kept.config["env"]["name"] == "coalition_v0"
    rows = SQLiteStorage.get_logs("macredit", kept.name, run_id=kept.id)
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[0].keys() >= {"reward", "credit/a", "learners/a/loss"}
