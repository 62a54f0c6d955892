"""An evaluation log as a Parquet table and back."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from macredit.cli import main
from macredit.errors import UserError
from macredit.values.log import Log, LogFile, Question, read_log
from macredit.values.log_table import write_parquet

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

LOG = Log(
    ("ä", "b"),
    {"game": "score {coalition}", "tasks": None},
    {Question((), 0, 7): 0.0, Question(("ä",), 2**62, 2**31): 0.1 + 0.2, Question(("ä", "b"), 0, 7): 1.0},
)


def test_what_is_exported_is_read(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "log.parquet"
    write_parquet(LOG, path)
    assert read_log(path) == LOG
    table = parquet.read_table(path)
    assert table.column_names == ["coalition", "task", "seed", "score"]
    assert table["coalition"].to_pylist() == [[], ["ä"], ["ä", "b"]]


def test_the_command_exports_and_reads_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, table = str(tmp_path / "log.jsonl"), str(tmp_path / "log.parquet")
    asked = ["--game", "echo 2", "--players", "a,b", "--budget", "12", "--log", log, "--export", table]
    assert main(["value", *asked, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err.endswith("log.parquet\n")
    assert main(["value", "--log", table, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["values"] == json.loads(out)["values"]
    np.testing.assert_array_equal(read_log(table).scores(), read_log(log).scores())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--log", "LOG", "--export", "x.csv"), "x.csv: cannot be exported in this form; expected a name that ends"),
        (("--game", "echo 1", "--players", "a", "--budget", "2", "--export", "x.parquet"), "give the log to copy as"),
        (("--game", "echo 1", "--players", "a", "--budget", "2", "--log", "x.parquet"), "a table cannot be added to"),
        (("--log", "x.parquet"), "x.parquet: cannot be read"),
    ],
)
def test_what_cannot_be_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: tuple[str, ...], said: str
) -> None:
    write_parquet(LOG, tmp_path / "log.parquet")
    assert main(["value", *[word.replace("LOG", str(tmp_path / "log.parquet")) for word in asked]]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_tables_that_are_no_log(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_text("no table")
    with pytest.raises(UserError, match=r"t\.parquet: not Parquet"):
        read_log(path)
    parquet.write_table(pyarrow.table({"coalition": ["a"], "worth": [1.0]}), path)
    with pytest.raises(UserError, match=r"a table of coalition, worth that is no log"):
        read_log(path)
    write_parquet(LOG, path)
    table = parquet.read_table(path)
    scores = pyarrow.array([0.0, None, 1.0])
    parquet.write_table(table.set_column(3, "score", scores), path)
    with pytest.raises(UserError, match="line 3: 'score' is None, which is of another type"):
        read_log(path)
    with pytest.raises(UserError, match="a seed of the log does not fit 64 bits"):
        write_parquet(Log(("a",), {}, {Question((), 0, 2**64): 1.0}), path)


def test_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"macredit\[tables\]"):
        write_parquet(LOG, tmp_path / "x.parquet")
    with pytest.raises(UserError, match="table cannot be added to"):
        LogFile(tmp_path / "x.parquet", ("a",), {})
