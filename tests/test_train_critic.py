"""c3 with a critic, end to end: trained in the run, never on what it is subtracted from, saved, resumed, used again."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from macredit.cli import main, world_of
from macredit.config import AgentConfig, MethodConfig, RunConfig, TrainConfig
from macredit.credit import METHODS, credit
from macredit.errors import UserError
from macredit.learn.team_critic import TeamCritic, critic_of
from macredit.policy import Policy
from macredit.train import Run, train
from macredit.whatif import WhatIf

TABLES = {"*": {"kind": "table", "replies": ["help", "pass"]}, "planner": {"kind": "scripted", "style": "perfect"}}
TINY = {"*": {"kind": "hf", "model": "tiny", "lora": {"rank": 4}, "max_tokens": 2}}
VALUED = {"variant": "value_assisted"}


def config(policies: Any = TABLES, **train_: Any) -> RunConfig:
    t = TrainConfig(**{"steps": 4, "tasks": 4, "group": 8, "evaluate_tasks": 0, "save_every": 2, **train_})
    agents = (AgentConfig("planner", trainable=False),) if policies is TABLES else ()
    env = {"name": "coalition_v0", "preset": "glove"}
    return RunConfig(env, policies, agents, MethodConfig("c3", settings=VALUED), t)


def tiny(**train_: Any) -> RunConfig:
    return config(TINY, **{"tasks": 1, "group": 4, **train_})


def test_tables_learn_and_so_does_their_critic(tmp_path: Path) -> None:
    own = config(steps=10)
    rows = train(world_of(own), own, tmp_path)
    assert np.mean([row["reward"] for row in rows[-2:]]) > 0.9
    assert [set(row["critic"]) for row in rows] == [{"planner", "a", "b", "c"}] * 10
    assert "contexts have no value of the critic yet" in rows[0]["warnings"][-1]
    assert not any("no value of the critic" in text for row in rows[1:] for text in row["warnings"])
    # before the first fit it says 0; glove's a decides whether anything is earned at all
    assert rows[0]["critic"]["a"]["explained_variance"] == pytest.approx(0.0)
    assert rows[1]["critic"]["a"]["explained_variance"] > 0.5


def test_a_steps_returns_are_not_in_their_own_baseline(tmp_path: Path) -> None:
    own = config()
    run = Run(world_of(own), own, tmp_path)
    run.learn(run.credited(run.collect(0)).credits)
    assert run.critic is not None
    run.critic.save(tmp_path)
    run.step, batch = 1, run.credited(run.collect(1))
    run.learn(batch.credits)
    before = TeamCritic({})
    before.load(tmp_path)
    whatif = WhatIf(batch.episodes, critic=before)
    again = credit(batch.episodes, "c3", settings=VALUED, whatif=whatif)
    np.testing.assert_array_equal(batch.credits.advantage, again.advantage)
    whatif.critic = run.critic
    assert not np.array_equal(credit(batch.episodes, "c3", settings=VALUED, whatif=whatif).advantage, again.advantage)


@pytest.mark.parametrize("own", [config(), pytest.param(tiny(), id="tiny", marks=pytest.mark.slow)])
def test_a_killed_run_resumes_with_the_same_critic(tmp_path: Path, own: RunConfig) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    first = train(world_of(own), own, whole)
    shutil.copytree(whole, broken)
    shutil.rmtree(broken / "checkpoints" / "step-000004")
    resumed = train(world_of(own), own, broken, resume=True)
    for row, other in zip(first, resumed, strict=True):
        assert (row["reward"], row["critic"], row["learners"]) == (other["reward"], other["critic"], other["learners"])
    for file in sorted((whole / "checkpoints" / "step-000004").rglob("*.safetensors")):
        assert file.read_bytes() == (broken / file.relative_to(whole)).read_bytes(), file
    assert (broken / "checkpoints" / "step-000004" / "critic.safetensors").exists()


@pytest.mark.slow
def test_who_looks_ahead_asks_the_critic_once_it_has_learned(tmp_path: Path) -> None:
    served = {"*": {**TINY["*"], "engine": "copy"}}
    now, ahead, again = (config(served, tasks=1, group=4, staleness=n) for n in (0, 1, 1))
    rows = [train(world_of(own), own, tmp_path / str(n)) for n, own in enumerate((now, ahead, again))]
    assert [row["staleness"] for row in rows[1]] == [0, 1, 1, 1]
    unknown = [n for n, row in enumerate(rows[1]) if any("no value of the critic" in text for text in row["warnings"])]
    assert unknown == [0]  # the second step was played before the first was learned, and is credited after
    assert rows[0][0]["critic"] == rows[1][0]["critic"]
    for one, other in zip(rows[1], rows[2], strict=True):
        assert (one["critic"], one["learners"]) == (other["critic"], other["learners"])


def test_a_model_that_speaks_meanwhile_is_not_read(tmp_path: Path) -> None:
    policies = {"*": {**TINY["*"], "engine": "copy"}, "planner": TINY["*"]}
    own = replace(config(policies, staleness=1), agents=(AgentConfig("planner", trainable=False),))
    with pytest.raises(UserError, match="policy 'planner' speaks with the very model that its critic reads; put an"):
        Run(world_of(own), own, tmp_path)


def test_replays_are_not_made_ahead_of_a_critic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = {"*": {**TINY["*"], "engine": "copy"}}
    own, both = config(served, staleness=1), replace(METHODS["c3"], needs=METHODS["c3"].needs | {"replay"})
    monkeypatch.setitem(METHODS, "c3", both)
    with pytest.raises(UserError, match="staleness is 1, but c3 asks for replays, which come with"):
        Run(world_of(own), own, tmp_path)


def test_a_model_in_other_processes_cannot_be_read() -> None:
    class Far:
        name, version, sampling = "far", "0", {"temperature": 1.0}
        prepare = logprobs = update = state = load = dictate = export = submit = collect = print

    far = cast(Policy, Far())
    with pytest.raises(UserError, match="policy 'far' holds its model in other processes"):
        critic_of(far)


def test_a_method_without_need_makes_none(tmp_path: Path) -> None:
    own = replace(config(steps=2), method=MethodConfig("c3"))
    assert "critic" not in train(world_of(own), own, tmp_path)[-1]
    assert not list(tmp_path.rglob("critic.*"))


TOML = """
[env]
name = "coalition_v0"
preset = "glove"
[policies."*"]
POLICY
[policies.planner]
kind = "scripted"
[[agents]]
name = "planner"
trainable = false
[method]
name = "c3"
preset = "code"
variant = "value_assisted"
a = 0.75
[train]
steps = 2
tasks = 2
group = 4
evaluate_tasks = 0
"""
KINDS = {
    "table": 'kind = "table"\nreplies = ["help", "pass"]',
    "hf": 'kind = "hf"\nmodel = "tiny"\nmax_tokens = 2\nlora = {rank = 4}',
}


def output(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> str:
    capsys.readouterr()
    assert main([str(word) for word in words]) == status
    printed = capsys.readouterr()
    return printed.out if status == 0 else printed.err


@pytest.mark.parametrize("kind", KINDS)
def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    (tmp_path / "c.toml").write_text(TOML.replace("POLICY", KINDS[kind]))
    run, other = tmp_path / "run", tmp_path / "other"
    output(capsys, "train", tmp_path / "c.toml", "-o", run)
    output(capsys, "train", tmp_path / "c.toml", "-o", other, "--seed", "1")
    words = ["credit", other / "episodes.jsonl", "--method", "c3", "--set", "variant=value_assisted"]
    assert "needs a critic q(context, message), and none was given" in output(capsys, *words, status=2)
    crossed = json.loads(output(capsys, *words, "--critic", "cross-fit", "--json"))
    assert crossed["settings"]["variant"] == "value_assisted"
    assert crossed["notes"]["contexts unknown to the critic"] == 0
    alone = json.loads(output(capsys, "credit", words[1], "--method", "c3", "--json"))
    assert [turn["advantage"] for turn in crossed["turns"]] != [turn["advantage"] for turn in alone["turns"]]
    given = [*words, "--critic", run]
    if kind == "hf":
        assert "the policy given here takes a table" in output(capsys, *given, status=2)
        given += [w for name in "abc" for w in ("--policy", f"{name}={run / name}")]
        given += ["--policy", "planner=scripted:perfect"]
    found = json.loads(output(capsys, *given, "--json"))
    assert found["notes"]["contexts unknown to the critic"] == 0
    assert sum(turn["weight"] for turn in found["turns"]) > 0
    if kind == "hf":
        output(capsys, "play", "coalition_v0", "--policy", "table:help,pass", "-n", "2", "-o", tmp_path / "t.jsonl")
        assert "give episodes that this policy spoke in" in output(
            capsys, *given[:1], tmp_path / "t.jsonl", *given[2:], status=2
        )
    own = [*given[:1], run / "episodes.jsonl", *given[2:]]
    assert "was fitted on these very episodes" in output(capsys, *own, status=2)


def test_critics_that_cannot_be_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.toml").write_text(TOML.replace("POLICY", KINDS["table"]))
    run, plain = tmp_path / "run", tmp_path / "plain"
    output(capsys, "train", tmp_path / "c.toml", "-o", run)
    (tmp_path / "p.toml").write_text((tmp_path / "c.toml").read_text().replace("value_assisted", "reward_only"))
    output(capsys, "train", tmp_path / "p.toml", "-o", plain, "--seed", "1")
    base = ["credit", plain / "episodes.jsonl", "--method", "c3"]
    assert "c3 uses no critic with these settings" in output(capsys, *base, "--critic", run, status=2)
    words = [*base, "--set", "variant=value_only", "--critic"]
    assert "holds no critic" in output(capsys, *words, plain, status=2)
    assert "expected cross-fit, or the folder of a run" in output(capsys, *words, tmp_path / "none", status=2)
    renamed = tmp_path / "renamed.jsonl"
    renamed.write_text((plain / "episodes.jsonl").read_text().replace('"policy":"b"', '"policy":"d"'))
    assert "in this record d speak too" in output(capsys, "credit", renamed, *words[2:], run, status=2)
