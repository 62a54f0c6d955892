"""Weights change hands between a learner and its engine, and nothing is taken on trust."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from macredit.agents import Copy, Served, make_policies, make_policy
from macredit.check.policy import ask
from macredit.cli import main
from macredit.errors import UserError
from macredit.learn import Learner, LearnerConfig, Trainable, TrainRow
from macredit.learn.batch import row_of
from macredit.learn.handover import Engine, HandsOver, Weights
from macredit.policy import Chat, Policy, Request, Said
from macredit.run_folder import read_metrics
from macredit.seeds import Key

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

BOTH = pytest.mark.parametrize("lora", [None, {"rank": 4}], ids=["full", "lora"])
REQUESTS = [Request("x", (Chat("user", "hello"),), Key(0, "t", g)) for g in range(4)]


def served(names: str, **settings: Any) -> list[Served]:
    spec = {"kind": "hf", "model": "tiny", "max_tokens": 6, "engine": "copy", **settings}
    made = make_policies(dict.fromkeys(names, spec)).values()
    return [policy for policy in made if isinstance(policy, Served)]


def rows(policy: Policy) -> list[TrainRow]:
    return [row(said, g, g) for g, said in enumerate(ask(policy, REQUESTS))]


def row(said: Said, advantage: float, sequence: int) -> TrainRow:
    return row_of(said.prompt_ids or (), said.token_ids or (), said.logprobs, advantage, 1.0, sequence)


def learn(policy: Served, rate: float = 1e-2) -> None:
    Learner(policy, LearnerConfig(rate=rate)).update(rows(policy))


@BOTH
def test_the_contracts_are_kept(lora: Any) -> None:
    policy = served("a", lora=lora)[0]
    assert all(isinstance(policy, contract) for contract in (Policy, Trainable, HandsOver))
    assert isinstance(policy.engine, Engine)
    assert isinstance(policy.engine, Copy)
    assert policy.engine.module is not policy.learner.module


@BOTH
def test_a_change_of_one_leaves_what_the_other_says_identical(lora: Any) -> None:
    a, b = served("ab", lora=lora)
    before = ask(a, REQUESTS), ask(b, REQUESTS)
    learn(b)
    assert (ask(a, REQUESTS), ask(b, REQUESTS)) == before  # nothing is handed over yet
    old = b.version
    shown = b.hand_over()
    assert b.version == b.learner.version != old
    assert shown["canary"] == 0.0  # the same sums on both sides
    assert ask(a, REQUESTS) == before[0]
    assert ask(b, REQUESTS) != before[1]
    assert a.hand_over()["canary"] == 0.0  # the learner of A has not moved either


@BOTH
def test_what_the_engine_says_after_a_hand_over_is_what_the_learner_would_say(lora: Any) -> None:
    policy = served("a", lora=lora)[0]
    learn(policy)
    policy.hand_over()
    assert ask(policy, REQUESTS) == ask(policy.learner, REQUESTS)


def nothing(engine: Copy, weights: Weights) -> None:
    engine.version = weights.version


def halved(engine: Copy, weights: Weights) -> None:
    Copy.receive(engine, Weights(weights.version, {name: t * 0.5 for name, t in weights.tensors.items()}))


def lost(engine: Copy, weights: Weights) -> None:
    Copy.receive(engine, Weights(weights.version, {name: t * torch.nan for name, t in weights.tensors.items()}))


@pytest.mark.parametrize(
    ("receive", "rate", "said"),
    [
        (nothing, 1e-1, r"the log-probability -\d\S+ and the learner -\d\S+; expected a difference of at most 0.001"),
        (nothing, 1e-6, r"moved by -?\d\S+ and the engine's by 0; expected both to move"),
        (halved, 1e-2, "expected a difference of at most 0.001"),
        (lost, 1e-2, "log-probability nan"),
    ],
)
def test_a_hand_over_that_goes_wrong_is_refused_with_both_numbers(
    monkeypatch: pytest.MonkeyPatch, receive: Callable[[Copy, Weights], None], rate: float, said: str
) -> None:
    policy = served("a")[0]
    engine = policy.engine
    assert isinstance(engine, Copy)
    monkeypatch.setattr(engine, "receive", lambda weights: receive(engine, weights))
    learn(policy, rate)
    with pytest.raises(UserError, match=f"policy 'a': after the hand-over of version {policy.learner.version}.*{said}"):
        policy.hand_over()


def test_an_engine_with_another_model_is_refused_when_the_policy_is_made() -> None:
    with pytest.raises(UserError, match="give both the same model"):
        served("a", lora={"rank": 4}, engine={"kind": "copy", "model": "tiny:1"})


def test_bad_engines() -> None:
    with pytest.raises(UserError, match="unknown engine 'cpoy'; expected one of copy"):
        served("a", engine="cpoy")
    with pytest.raises(UserError, match="unknown setting of a scripted policy 'engine'"):
        make_policy({"kind": "scripted", "engine": "copy"})
    with pytest.raises(UserError, match="unknown setting of a copy policy 'speed'"):
        served("a", engine={"kind": "copy", "speed": 3})


WORDS = ["--env", "coalition_v0", "--arg", "preset=glove", "--policy", "planner=table:@a,@b", "--model", "tiny"]
RUN = ["--steps", "2", "--tasks", "1", "--group", "4", "--evaluate-tasks", "0", "--save-every", "1"]


def numbers(run: Path) -> list[dict[str, Any]]:
    """Metrics without clocks and what only a run with an engine has."""
    timed = ("seconds", "tokens_per_second", "cost", "hand_over", "staleness")
    return [{name: value for name, value in row.items() if name not in timed} for row in read_metrics(run)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a run with these further words, trained once and only read from then on."""

    @cache
    def run(*words: str) -> Path:
        folder = tmp_path_factory.mktemp("trained") / "run"
        assert main(["train", *WORDS, *RUN, *words, "-o", str(folder)]) == 0
        return folder

    return run


@pytest.mark.parametrize("lora", [(), ("--lora", "4")], ids=["full", "lora"])
def test_training_with_a_copy_is_training_without(trained: Callable[..., Path], lora: tuple[str, ...]) -> None:
    plain, with_copy = trained(*lora), trained(*lora, "--engine", "copy")
    assert numbers(with_copy) == numbers(plain)
    steps = [row for row in read_metrics(with_copy) if "hand_over" in row]
    assert [row["step"] for row in steps] == [1, 2]
    assert all(set(row["hand_over"]) == set("abc") for row in steps)
    assert {value["canary"] for row in steps for value in row["hand_over"].values()} == {0.0}


@pytest.mark.parametrize(("begun", "resumed"), [((), "copy"), (("--engine", "copy"), "none")])
def test_a_run_goes_on_with_another_engine_or_none(
    trained: Callable[..., Path], tmp_path: Path, begun: tuple[str, ...], resumed: str
) -> None:
    shutil.copytree(trained(*begun), tmp_path / "part")
    shutil.rmtree(tmp_path / "part" / "checkpoints" / "step-000002")  # as if it had been killed after step 1
    assert main(["train", "--resume", str(tmp_path / "part"), "--engine", resumed]) == 0
    assert numbers(tmp_path / "part") == numbers(trained())
    handed = ["hand_over" in row for row in read_metrics(tmp_path / "part") if "reward" in row]
    assert handed == [bool(begun), resumed == "copy"]


def test_an_engine_needs_an_hf_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--env", "coalition_v0", "--policy", "table:help,pass", "--engine", "copy"]
    assert main([*words, "-o", str(tmp_path)]) == 2
    assert "no policy is of kind hf" in capsys.readouterr().err
