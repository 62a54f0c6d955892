"""The README tells the truth: its code runs, its tables are generated, its commands exist."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from macredit.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("table", ["methods", "envs"])
def test_the_tables_are_generated(capsys: pytest.CaptureFixture[str], table: str) -> None:
    assert main([table, "--markdown"]) == 0
    shown = re.search(rf"<!-- {table} -->\n(.*?)<!-- end {table} -->", README, re.DOTALL)
    assert shown is not None
    assert shown[1] == capsys.readouterr().out


def test_python_blocks_run(tmp_path: Path) -> None:
    _, block = blocks("python")
    (tmp_path / "whisper.py").write_text(block)
    done = subprocess.run([sys.executable, "whisper.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "1.0\n"


def test_the_record_in_the_readme_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (record,) = blocks("json")
    path = tmp_path / "e.jsonl"
    path.write_text(json.dumps(json.loads(record)))
    assert main(["credit", str(path), "--method", "sharp", "--json"]) == 0
    agents = json.loads(capsys.readouterr().out)["agents"]
    assert {a["agent"]: a["credit"] for a in agents} == {"planner": 1.0, "solver": 1.0}


def test_the_configuration_in_the_readme_trains(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (toml,) = blocks("toml")
    (tmp_path / "team.toml").write_text(toml)
    assert main(["train", str(tmp_path / "team.toml"), "-o", str(tmp_path / "run")]) == 0


def commands() -> list[list[str]]:
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("macredit ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


def test_the_commands_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (record,) = blocks("json")
    Path("episodes.jsonl").write_text(json.dumps(json.loads(record)))
    Path("score.py").write_text(blocks("python")[0])
    Path("game.json").write_text('{"players": ["a", "b", "c"], "worths": {"": 0, "a": 1, "b": 1, "c": 0, "a,b": 1, '
                                 '"a,c": 2, "b,c": 2, "a,b,c": 3}}')  # fmt: skip
    Path("unions.json").write_text('{"unions": [["a", "b"], ["c"]]}')
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    small = {"--steps": "1", "-n": "4", "--seeds": "1", "--budget": "16"}
    run = ["--tasks", "1", "--group", "4", "--evaluate-tasks", "2"]
    for words in commands():
        shortened = [small.get(before, word) for before, word in zip(["", *words], words, strict=False)]
        shortened += run if words[0] == "train" and "--resume" not in words else []
        assert main(shortened) == 0, words


@pytest.mark.slow
def test_the_demo_prints_what_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["demo", "-o", str(tmp_path / "demo")]) == 0
    shown = blocks("text")[0]
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert "\n".join(lines).startswith(shown.rstrip())
    assert (tmp_path / "demo" / "report.html").exists()
