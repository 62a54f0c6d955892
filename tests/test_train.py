"""The whole circle: learning, resume, isolation, warm start."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from macredit.cli import main, world_of
from macredit.cli.words import solo_world
from macredit.config import AgentConfig, MethodConfig, RunConfig, TrainConfig
from macredit.credit import METHODS
from macredit.envs import make_env
from macredit.episode import write_episodes
from macredit.errors import UserError
from macredit.rollout import World, play, tasks_of
from macredit.train import Run, noted, train
from macredit.whatif import WhatIf

TABLES = {"*": {"kind": "table", "replies": ["help", "pass"]}, "planner": {"kind": "scripted", "style": "perfect"}}
PLANNER = (AgentConfig("planner", trainable=False),)


def config(method: str = "dr_mas", policies: Any = TABLES, agents: Any = PLANNER, **train_: Any) -> RunConfig:
    t = TrainConfig(**{"steps": 4, "tasks": 4, "group": 8, "evaluate_tasks": 0, "save_every": 2, **train_})
    return RunConfig({"name": "coalition_v0", "preset": "glove"}, policies, agents, MethodConfig(method), t)


def weights(run: Path, learner: str) -> bytes:
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    return (newest / learner / "state.safetensors").read_bytes()


@pytest.mark.parametrize("method", list(METHODS))
def test_tables_learn_with_every_method(tmp_path: Path, method: str) -> None:
    # what a step of replays costs, it learns: .97 or more in steps 3 and 4, for any seed of 0 to 2
    own = config(method, steps=4 if "replay" in METHODS[method].needs else 10)
    rewards = [row["reward"] for row in train(world_of(own), own, tmp_path)]
    # glove pays 1 if a and one of b, c help: 3/8 at first, when everyone helps half the time
    assert np.mean(rewards[:2]) < 0.75
    assert np.mean(rewards[-2:]) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("method", "steps"), [("dr_mas", 20), ("m_grpo", 20), ("sharp", 20), ("c3", 60)])
def test_tiny_language_models_learn_from_scratch(tmp_path: Path, method: str, steps: int) -> None:
    """C3 trains three of an episode's seven turns a tree, so that it takes more steps, each of them cheaper."""
    everyone = {"*": {"kind": "hf", "model": "tiny", "lora": {"rank": 16}}}
    own = config(method, everyone, (), steps=steps, tasks=8)
    own = replace(own, env={"name": "coalition_v0", "preset": "additive"})
    rewards = [row["reward"] for row in train(world_of(own), own, tmp_path)]
    assert np.mean(rewards[:2]) < 0.65
    assert np.mean(rewards[-3:]) > 0.8


@pytest.mark.parametrize("kind", ["table", pytest.param("tiny", marks=pytest.mark.slow)])
def test_a_killed_run_resumes_to_the_same_weights(tmp_path: Path, kind: str) -> None:
    everyone = {"*": {"kind": "hf", "model": "tiny", "lora": {"rank": 4}, "max_tokens": 2}}
    own = config("sharp", TABLES, PLANNER) if kind == "table" else config("dr_mas", everyone, (), tasks=1, group=4)
    train(world_of(own), own, tmp_path / "whole")
    broken = Run(world_of(own), own, tmp_path / "broken")
    broken.begin()
    for _ in range(3):  # a checkpoint after step 2, then the run dies after step 3
        batch = broken.credited(broken.collect(broken.step))
        broken.record(batch, broken.learn(batch.credits), {}, 1.0, lambda *_, **__: None)
        if broken.due(own.train.save_every):
            broken.save()
    with (tmp_path / "broken" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "rew')  # torn by the kill
    shutil.copytree(tmp_path / "whole" / "checkpoints" / "step-000002", tmp_path / "broken" / "checkpoints" / ".part")
    resumed = train(world_of(own), own, tmp_path / "broken", resume=True)
    assert [row["step"] for row in resumed] == [1, 2, 3, 4]
    for learner in ("a", "b", "c"):
        assert weights(tmp_path / "whole", learner) == weights(tmp_path / "broken", learner)
    whole, again = (
        [json.loads(line)["reward"] for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "broken")
    )
    assert whole == again


def test_frozen_agents_and_agents_without_rows_are_untouched(tmp_path: Path) -> None:
    own = config("dr_mas", agents=(*PLANNER, AgentConfig("c", trainable=False)))
    world = world_of(own)
    train(world, own, tmp_path)
    assert world.policies["c"].logits == {}  # type: ignore[attr-defined]
    assert world.policies["a"].logits != {}  # type: ignore[attr-defined]
    never = replace(config("dr_mas"), env={"name": "coalition_v0", "preset": "never_invoked"})
    world = world_of(never)
    train(world, never, tmp_path / "never")
    assert world.policies["c"].version.endswith(".0")
    assert world.policies["c"].logits == {}  # type: ignore[attr-defined]


def test_frozen_and_trainable_agents_may_not_share_a_policy(tmp_path: Path) -> None:
    shared = (*PLANNER, AgentConfig("a", policy="p"), AgentConfig("b", policy="p", trainable=False))
    own = config(policies={**TABLES, "p": TABLES["*"]}, agents=shared)
    with pytest.raises(UserError, match="share policy 'p'"):
        train(world_of(own), own, tmp_path)


def test_agents_may_share_a_policy_and_nobody_trainable_is_a_mistake(tmp_path: Path) -> None:
    own = config(agents=(*PLANNER, *(AgentConfig(a, policy="a") for a in "bc")))
    world = world_of(own)
    rewards = [row["reward"] for row in train(world, own, tmp_path)]
    assert len(world.policies["a"].logits) == 3  # type: ignore[attr-defined]
    assert rewards[-1] > rewards[0]
    frozen = config(agents=tuple(AgentConfig(a, trainable=False) for a in ("planner", "a", "b", "c")))
    with pytest.raises(UserError, match="every agent is frozen"):
        train(world_of(frozen), frozen, tmp_path / "x")


def test_a_run_is_not_overwritten_and_another_models_checkpoint_is_refused(tmp_path: Path) -> None:
    own = config(steps=2)
    train(world_of(own), own, tmp_path)
    with pytest.raises(UserError, match="holds a run already"):
        train(world_of(own), own, tmp_path)
    other = config(policies={**TABLES, "*": {"kind": "table", "replies": ["yes", "no"]}})
    with pytest.raises(UserError, match="checkpoint of another model"):
        train(world_of(other), other, tmp_path, resume=True)
    with pytest.raises(UserError, match="holds no checkpoint"):
        train(world_of(own), own, tmp_path / "none", resume=True)


def test_a_tree_larger_than_its_group_is_refused(tmp_path: Path) -> None:
    own = config("c3", group=4, fanout={"0": 2, "1": 4})
    with pytest.raises(UserError, match="a budget of 4 episodes a task is too small"):
        train(world_of(own), own, tmp_path)


def test_a_pool_of_tasks_comes_again_with_new_members(tmp_path: Path) -> None:
    own = config(pool=8, tasks=4, group=2)
    run = Run(world_of(own), own, tmp_path)
    names = []
    for step in range(3):
        run.step = step
        names.append([e.id for e in run.collect(run.step).episodes])
    assert names[0] == [f"t{t}-{g}" for t in range(4) for g in range(2)]
    assert names[1] == [f"t{t}-{g}" for t in range(4, 8) for g in range(2)]
    assert names[2] == [f"t{t}-{g}" for t in range(4) for g in (2, 3)]
    with pytest.raises(UserError, match="pool"):
        Run(world_of(own), replace(own, train=replace(own.train, pool=6)), tmp_path)


def test_a_warm_start_imitates_recorded_episodes(tmp_path: Path) -> None:
    env = make_env("coalition_v0", preset="glove")
    from macredit.agents import make_policies

    teachers = make_policies({a: {"kind": "scripted", "style": "perfect"} for a in env.team.names}, env)
    for name in "abc":
        teachers[name] = make_policies({name: {"kind": "scripted", "style": "stubborn", "says": "help"}})[name]
    write_episodes(tmp_path / "taught.jsonl", play(World(env, teachers), tasks_of(0, 4)))
    own = config(steps=1, warm_start=str(tmp_path / "taught.jsonl"))
    world = world_of(own)
    run = Run(world, own, tmp_path / "run")
    run.begin()
    assert all(world.policies[a].probabilities(a, f"You are {a}. Reply help or pass.")[0] > 0.9 for a in "abc")  # type: ignore[attr-defined]


def test_trained_agents_are_used_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--env", "coalition_v0", "--arg", "preset=glove", "--policy", "planner=table:@a,@b", "--method", "sharp"]
    words += ["--policy", "table:help,pass", "--steps", "4", "--tasks", "4", "--evaluate-tasks", "4"]
    assert main(["train", *words, "-o", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "report.html").exists()
    trained = [w for a in "abc" for w in ("--policy", f"{a}={tmp_path / 'run' / a}")]
    play_ = ["play", "coalition_v0", "--arg", "preset=glove", *trained, "--policy", "planner=scripted:perfect"]
    assert main([*play_, "-n", "32", "-o", str(tmp_path / "e.jsonl")]) == 0
    assert float(capsys.readouterr().err.split("mean reward ")[-1].split(",")[0]) > 0.8
    assert main(["train", "--resume", str(tmp_path / "run")]) == 0


def test_a_configuration_in_toml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "role.txt").write_text("You help.")
    toml = """
[env]
name = "coalition_v0"
preset = "or"
[[agents]]
name = "planner"
orchestrator = true
trainable = false
[[agents]]
name = "a"
role = "role.txt"
policy = "p"
[policies.planner]
kind = "scripted"
[policies.p]
kind = "table"
replies = ["help", "pass"]
[policies.b]
kind = "table"
replies = ["help", "pass"]
[method]
name = "sharp"
marginal = "shapley"
[learner]
rate = 2.0
[train]
steps = 2
tasks = 2
group = 4
evaluate_tasks = 4
evaluate_k = 2
"""
    path = tmp_path / "team.toml"
    path.write_text(toml)
    assert main(["train", str(path), "-o", str(tmp_path / "run"), "--seed", "3"]) == 0
    kept = json.loads((tmp_path / "run" / "config.json").read_text())
    assert kept["agents"][1]["role"] == "You help."
    assert kept["method"]["settings"] == {"marginal": "shapley"}
    assert (kept["train"]["seed"], kept["train"]["steps"]) == (3, 2)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2, 2]
    assert rows[0]["evaluation"]["tasks"] == 4
    capsys.readouterr()
    for wrong, said in [
        (toml.replace("steps = 2", "stpes = 2"), "stpes"),
        (toml.replace("steps = 2", 'steps = "2"'), "steps"),
        (toml.replace('marginal = "shapley"', "marginal = 3"), "marginal"),
        (toml.replace('name = "planner"', 'name = "boss"'), "boss"),
        (
            toml.replace("orchestrator = true", "").replace('name = "a"', 'name = "a"\norchestrator = true'),
            "orchestrator",
        ),
        (toml.replace('"role.txt"', '"none.txt"'), "none.txt"),
        ("[env", "expected TOML"),
    ]:
        path.write_text(wrong)
        assert main(["train", str(path), "-o", str(tmp_path / "wrong")]) == 2
        assert said in capsys.readouterr().err


def test_an_episode_is_replayed_by_the_team_that_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Roles and policies of a configuration travel in the record, so that replays ask the same prompts."""
    own = config("grpo", agents=(AgentConfig("planner", trainable=False), AgentConfig("a", "You help.", "p")),
                 policies={**TABLES, "p": TABLES["*"]}, steps=1)  # fmt: skip
    train(world_of(own), own, tmp_path / "run")
    words = ["credit", str(tmp_path / "run" / "episodes.jsonl"), "--method", "sharp", "--json"]
    tables = [w for name in ("p", "b", "c") for w in ("--policy", f"{name}={tmp_path / 'run' / name}")]
    assert main([*words, *tables, "--policy", "planner=scripted:perfect"]) == 0
    assert json.loads(capsys.readouterr().out)["cost"]["replays"] > 0


def test_another_teams_record_does_not_replay() -> None:
    own = config(agents=(*PLANNER, AgentConfig("a", "You help.")))
    said = play(world_of(own), tasks_of(0, 1))
    with pytest.raises(UserError, match="agents and roles are others"):
        WhatIf(said, world_of(config())).ask([(0, frozenset("a"))])


def test_a_runs_report_knows_what_was_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = config("sharp", steps=2)
    train(world_of(own), own, tmp_path / "run")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "rew')  # torn by a kill
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "r.json")]) == 0
    found = {m["name"]: m["error"] for m in json.loads((tmp_path / "r.json").read_text())["methods"]}
    assert found["sharp"] is None
    capsys.readouterr()


@pytest.mark.parametrize("kind", ["table:unknown,1,2", "hf:tiny"])
def test_one_agent_alone_is_the_baseline(tmp_path: Path, kind: str) -> None:
    words = ["train", "--env", "solve_verify_v0", "--arg", "dataset=chain_sum", "--policy", kind, "--steps", "1"]
    words += ["--tasks", "1", "--group", "2", "--evaluate-tasks", "2", "--evaluate-k", "1", "--solo"]
    assert main([*words, "-o", str(tmp_path)]) == 0
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [set(row) & {"evaluation", "solo", "reward"} for row in rows] == [
        {"evaluation"}, {"solo"}, {"reward"}, {"evaluation"}, {"solo"},
    ]  # fmt: skip
    assert [row["solo"]["tasks"] for row in rows if "solo" in row] == [2, 2]


def test_the_baseline_is_spoken_for_by_the_very_policy_that_learns() -> None:
    run = RunConfig({"name": "solve_verify_v0", "dataset": "chain_sum"}, {"*": {"kind": "table", "replies": ["1"]}})
    world = world_of(run)
    alone = solo_world(run, world)
    assert alone.env.team.names == ("solver",)
    assert alone.speaker("solver", {}) is world.policies["planner"]


def test_a_run_that_ended_before_its_first_checkpoint_begins_again(tmp_path: Path) -> None:
    broken = config(steps=2, warm_start=str(tmp_path / "none.jsonl"))
    with pytest.raises(UserError, match="cannot be read"):
        train(world_of(broken), broken, tmp_path / "run")
    own = config(steps=2)
    assert len(train(world_of(own), own, tmp_path / "run")) == 2
    assert json.loads((tmp_path / "run" / "config.json").read_text())["train"]["warm_start"] == ""


def test_a_step_in_a_line_names_what_an_engine_adds() -> None:
    row: dict[str, Any] = {"reward": 0.5, "credit": {"a": 0.25, "b": None}, "dead_groups": 0.5, "tokens_per_second": 8}
    row |= {"cache_hit_rate": None, "learners": {"a": {}, "b": {"mismatch_max": 2e-5}}}
    assert noted(row) == "reward 0.500 · a +0.25 · dead groups 50% · 8 tokens/s"
    row |= {"cache_hit_rate": 0.75, "hand_over": {}, "staleness": 1}
    assert noted(row).endswith(
        "8 tokens/s · prefix cache 75% · engine and learner 2.0e-05 nats apart · weights 1 behind"
    )
