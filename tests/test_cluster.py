"""Ray: the same numbers whoever computes them, and nothing lost or counted twice when somebody dies."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from macredit.cli import world_of
from macredit.cli.cluster import parts_of, worlds
from macredit.cli.words import env_of
from macredit.cluster import RayConfig
from macredit.config import AgentConfig, MethodConfig, RunConfig, TrainConfig
from macredit.episode import episode_line
from macredit.errors import UserError
from macredit.ledger import Ledger
from macredit.rollout import play, tasks_of
from macredit.train import train
from macredit.whatif import WhatIf

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

NOISY = {"*": {"kind": "scripted", "style": "noisy", "skill": 0.7}}
TABLES = {"*": {"kind": "table", "replies": ["help", "pass"]}, "planner": {"kind": "scripted", "style": "perfect"}}
HF = {"kind": "hf", "model": "tiny", "lora": {"rank": 4}, "max_tokens": 2}
TINY = {**TABLES, "a": HF, "b": HF}
PLANNER = (AgentConfig("planner", trainable=False),)
VALUED = MethodConfig("c3", settings={"variant": "value_assisted"})


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[Any]:
    """One cluster for all tests of this file, with room for any of their companies."""
    from macredit.cluster.connect import connected

    with connected(RayConfig(), [{"CPU": 8.0}]) as module:
        yield module


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user's own modules."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def config(policies: Any = TABLES, method: Any = "dr_mas", agents: Any = PLANNER, **train_: Any) -> RunConfig:
    t = TrainConfig(**{"steps": 3, "tasks": 2, "group": 8, "evaluate_tasks": 0, "save_every": 2, **train_})
    chosen = MethodConfig(method) if isinstance(method, str) else method
    return RunConfig({"name": "coalition_v0", "preset": "glove"}, policies, agents, chosen, t)


def without_time(row: Any) -> Any:
    """Metrics but for the clock's."""
    if not isinstance(row, dict):
        return row
    clock = ("seconds", "tokens_per_second", "hand_over", "staleness")  # the last two say that weights changed hands
    return {key: without_time(v) for key, v in row.items() if key not in clock}


def trained(own: RunConfig, out: Path, settings: RayConfig | None, resume: bool = False) -> list[Any]:
    with worlds(own, settings) as (world, solo):
        return [without_time(row) for row in train(world, own, out, solo=solo, resume=resume)]


def trained_past_death(
    own: RunConfig, out: Path, workers: int, before: str, step: int, who: Callable[[Any], Any]
) -> Any:
    """Rows of a run on Ray in which the actors of some seats are killed before a stage of one step."""
    from macredit.train import Run

    with worlds(own, RayConfig(workers=workers)) as (world, _), pytest.MonkeyPatch.context() as patch:
        inner: Any = world.elsewhere
        stage, died = getattr(Run, before), list[int]()

        def deadly(run: Run, given: Any) -> Any:
            if run.step == step:
                died.extend(pid_of(seat.actor) for seat in who(inner._company))
                for pid in died:
                    os.kill(pid, signal.SIGKILL)
            return stage(run, given)

        patch.setattr(Run, before, deadly)
        rows = [without_time(row) for row in train(world, own, out)]
        assert died
        return rows


def weights(run: Path, name: str) -> bytes:
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    return (newest / name / "state.safetensors").read_bytes()


# -- the same numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [RayConfig(workers=1), RayConfig(workers=2, engines=2)], ids=["worker", "engines"])
@pytest.mark.parametrize("policies", [NOISY, TABLES], ids=["scripted", "table"])
def test_episodes_and_replays_are_those_of_one_process(policies: Any, settings: RayConfig) -> None:
    own = config(policies)
    here, there = Ledger(), Ledger()
    plans = tasks_of(3, 5, 4)
    local = world_of(own)
    expected = play(local, plans, ledger=here)
    whatif = WhatIf(expected, local, ledger=here)
    questions = [(e, frozenset(who)) for e in range(len(expected)) for who in ("a", "b", "ac")]
    answers = whatif.ask(questions)
    with worlds(own, settings) as (world, _):
        played = play(world, plans, ledger=there)
        again = WhatIf(played, world, ledger=there).ask(questions)
    assert [episode_line(e) for e in played] == [episode_line(e) for e in expected]
    assert again == answers
    assert without_time(there.json()) == without_time(here.json())


@pytest.mark.parametrize("method", ["sharp", "c3"])
def test_a_training_run_is_that_of_one_process(tmp_path: Path, method: str) -> None:
    own = config(method=method, evaluate_tasks=4)
    expected = trained(own, tmp_path / "here", None)
    for name, settings in {"one": RayConfig(workers=1), "two": RayConfig(workers=2, engines=1)}.items():
        assert trained(own, tmp_path / name, settings) == expected
        assert all(weights(tmp_path / name, agent) == weights(tmp_path / "here", agent) for agent in "abc")


def test_language_models_learn_the_same(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    own = config(TINY, steps=2)
    expected = trained(own, tmp_path / "here", None)
    assert trained(own, tmp_path / "there", RayConfig(workers=2)) == expected
    assert all(weights(tmp_path / "there", agent) == weights(tmp_path / "here", agent) for agent in "abc")


def test_critics_read_models_where_they_learn(tmp_path: Path) -> None:
    """Also where the learner died since it was read last."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    own = config(TINY, VALUED)
    expected = trained(own, tmp_path / "here", None)
    assert set(expected[-1]["critic"]) == {"planner", "a", "b", "c"}
    found = trained_past_death(own, tmp_path / "there", 2, "credited", 2, lambda company: [company.learners["a"].seat])
    for row, here in zip(found, expected, strict=True):
        assert row["reward"] == here["reward"]
        for name, quality in here["critic"].items():
            assert row["critic"][name]["loss"] == pytest.approx(quality["loss"], rel=1e-4)


def test_a_frozen_model_has_no_critic_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    own = config({**TABLES, "planner": {**HF, "engine": "copy"}}, VALUED)
    with pytest.raises(UserError, match="policy 'planner' is frozen and its model in the processes that play"):
        trained(own, tmp_path, RayConfig(workers=1))


def test_critics_of_rollouts_that_run_ahead_are_the_same_whoever_plays_them(tmp_path: Path) -> None:
    own = config(method=VALUED, staleness=1)
    expected = trained(own, tmp_path / "one", RayConfig(workers=1))
    assert [any("no value of the critic" in text for text in row["warnings"]) for row in expected] == [1, 0, 0]
    assert trained(own, tmp_path / "two", RayConfig(workers=2)) == expected


def test_rollouts_that_run_ahead_are_the_same_whoever_plays_them(tmp_path: Path) -> None:
    own = config(staleness=1, steps=4)
    expected = trained(own, tmp_path / "one", RayConfig(workers=1))
    assert trained(own, tmp_path / "two", RayConfig(workers=1, engines=1)) == expected
    in_step = trained(config(steps=4), tmp_path / "here", None)
    assert [row["reward"] for row in expected] != [row["reward"] for row in in_step]


# -- who dies is replaced ------------------------------------------------------------------------------------------


def own_class(modules: Path, flag: Path, code: str) -> str:
    """A user's module that every process finds; ``once()`` is true the first time in all processes together."""
    name = f"own_{flag.parent.name}"
    (modules / f"{name}.py").write_text(
        "import os, signal\nfrom macredit.agents import Scripted, Table\n"
        f"def once():\n    try:\n        os.close(os.open({str(flag)!r}, os.O_CREAT | os.O_EXCL))\n"
        "    except FileExistsError:\n        return False\n    return True\n"
        f"def die():\n    os.kill(os.getpid(), signal.SIGKILL)\n{code}"
    )
    return name


DIES_SPEAKING = """
class Dies(Table):
    def say(self, batch):
        if any(request.key.task == "t1" and request.key.group == 2 for request in batch) and once():
            die()
        return super().say(batch)
"""


@pytest.mark.parametrize("engines", [0, 1], ids=["worker", "engine"])
def test_who_is_killed_while_speaking_is_replaced(modules: Path, tmp_path: Path, engines: int) -> None:
    module = own_class(modules, tmp_path / "flag", DIES_SPEAKING)
    plans, here, there = tasks_of(0, 3, 4), Ledger(), Ledger()
    expected = play(world_of(config()), plans, ledger=here)
    own = config({**TABLES, "*": {"kind": f"{module}:Dies", "replies": ["help", "pass"]}})
    ended: list[str] = []
    with worlds(own, RayConfig(workers=2, engines=engines)) as (world, _):
        played = play(world, plans, ledger=there, on_end=lambda episode: ended.append(episode.id))
    assert (tmp_path / "flag").exists()
    assert [episode_line(e) for e in played] == [episode_line(e) for e in expected]
    assert sorted(ended) == sorted(e.id for e in expected)  # each once
    assert without_time(there.json()) == without_time(here.json())


def test_a_worker_killed_from_outside_is_replaced_with_the_newest_weights(tmp_path: Path) -> None:
    """Between two steps of training, so that the new one has to be told weights that are not those of the start."""
    own = config(method="sharp", steps=3)
    expected = trained(own, tmp_path / "here", None)
    found = trained_past_death(own, tmp_path / "there", 2, "collect", 2, lambda company: company.workers)
    assert found == expected
    assert all(weights(tmp_path / "there", agent) == weights(tmp_path / "here", agent) for agent in "abc")


def pid_of(actor: Any) -> int:
    """The process of an actor."""
    import ray

    pid: int = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))
    return pid


DIES_ALWAYS = """
class Dies(Scripted):
    def say(self, batch):
        if any(request.key.task == "t1" for request in batch):
            die()
        return super().say(batch)
"""


def test_a_task_that_kills_its_worker_again_and_again_ends_as_failed(modules: Path, tmp_path: Path) -> None:
    module = own_class(modules, tmp_path / "flag", DIES_ALWAYS)
    own = config({"*": {"kind": f"{module}:Dies", "style": "perfect"}})
    ledger = Ledger()
    with worlds(own, RayConfig(workers=2, tries=2), learn=False) as (world, _):
        played = play(world, tasks_of(0, 3, 2), ledger=ledger)
    assert [e.end for e in played] == ["done", "done", "failed:worker", "failed:worker", "done", "done"]
    assert played[2].error == "OutsideError: task 't1' ended the process of its worker 2 times"
    assert ledger.resets == 4


DIES_LEARNING = """
class Dies(Table):
    def update(self, rows, loss):
        metrics = super().update(rows, loss)
        if self.name == "a" and self._updates == 3 and once():
            die()
        return metrics
"""


def test_a_learner_killed_amid_an_update_is_restored_and_repeats_it(modules: Path, tmp_path: Path) -> None:
    """It dies in update 3, after a checkpoint of 2: the new one loads that, or begins anew where there is none."""
    module = own_class(modules, tmp_path / "flag", DIES_LEARNING)
    for save_every in (2, 0):
        expected = trained(config(save_every=save_every, steps=4), tmp_path / f"here-{save_every}", None)
        (tmp_path / "flag").unlink(missing_ok=True)
        own = config({**TABLES, "a": {"kind": f"{module}:Dies", "replies": ["help", "pass"]}}, save_every=save_every)
        own = replace(own, train=replace(own.train, steps=4))
        assert trained(own, tmp_path / f"there-{save_every}", RayConfig(workers=1)) == expected
        assert (tmp_path / "flag").exists()
        here, there = (weights(tmp_path / f"{run}-{save_every}", "a") for run in ("here", "there"))
        assert here == there


def test_the_learner_of_a_language_model_is_restored_with_its_optimiser(tmp_path: Path) -> None:
    """It dies after update 3, of which the checkpoint has 2, and repeats the last one before it makes the fourth."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    own = config(TINY, steps=4)
    expected = trained(own, tmp_path / "here", None)
    found = trained_past_death(own, tmp_path / "there", 1, "learn", 3, lambda company: [company.learners["a"].seat])
    assert found == expected
    assert all(weights(tmp_path / "there", agent) == weights(tmp_path / "here", agent) for agent in "abc")


def test_a_run_goes_on_with_or_without_ray(tmp_path: Path) -> None:
    expected = trained(config(steps=4), tmp_path / "whole", None)
    for first, then in ((None, RayConfig(workers=1)), (RayConfig(workers=1), None)):
        out = tmp_path / ("here" if first is None else "there")
        trained(config(steps=2), out, first)
        assert trained(config(steps=4), out, then, resume=True) == expected
        assert weights(out, "a") == weights(tmp_path / "whole", "a")


# -- refusals ------------------------------------------------------------------------------------------------------


def test_a_worker_with_older_weights_refuses_to_play() -> None:
    from macredit.cluster.company import Company
    from macredit.cluster.seat import fetch
    from macredit.cluster.worker import StaleError

    own = config()
    with Company(parts_of(own, env_of(own)), RayConfig(workers=1), ["a"]) as company:
        cards = company.cards(company.world.policies)
        newer = [replace(card, version="f00d.1") if card.name == "a" else card for card in cards]
        actor = company.workers[0].actor
        with pytest.raises(StaleError, match=r"'a' is to speak as version f00d\.1, and this process holds \w+\.0"):
            fetch(actor.play.remote("team", tasks_of(0, 1), newer, None, None))
        assert len(fetch(actor.play.remote("team", tasks_of(0, 1), cards, None, None)).episodes) == 1


DEAF = """
from macredit.agents import Copy
class Deaf(Copy):
    def receive(self, weights):
        self.version = weights.version
"""


def test_who_takes_no_weights_is_found_out_by_the_canary(modules: Path, tmp_path: Path) -> None:
    module = own_class(modules, tmp_path / "flag", DEAF)
    deaf = {"kind": f"{module}:Deaf", "model": "tiny", "lora": {"rank": 4}, "max_tokens": 2}
    with pytest.raises(UserError, match=r"policy .a.: after the hand-over of version .* canary"):
        trained(config({**TABLES, "a": deaf}), tmp_path / "run", RayConfig(workers=1))


def test_a_cluster_without_room_says_what_was_asked() -> None:
    with (
        pytest.raises(UserError, match=r"no room for 2 actors in 1 s: they take {'CPU': 2\.0, 'GPU': 2\.0}"),
        worlds(config(), RayConfig(workers=2, worker_gpus=1.0, patience=1), learn=False),
    ):
        pass


def test_the_command_line_computes_on_ray(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from macredit.cli import main

    words = ["train", "--env", "coalition_v0", "--policy", "table:help,pass", "--steps", "2", "--tasks", "2"]
    words += ["--group", "4", "--evaluate-tasks", "0"]
    assert main([*words, "-o", str(tmp_path / "here")]) == 0
    assert main([*words, "-o", str(tmp_path / "there"), "--ray", "--ray-workers", "1"]) == 0
    rows = [
        [without_time(json.loads(line)) for line in (tmp_path / run / "metrics.jsonl").read_text().splitlines()]
        for run in ("here", "there")
    ]
    assert rows[0] == rows[1]
    compared = ["compare", "coalition_v0", "--methods", "difference,c3", "--seeds", "2", "--budget", "24"]
    assert main([*compared, "-o", str(tmp_path / "c")]) == 0
    assert main([*compared, "-o", str(tmp_path / "d"), "--ray", "--ray-workers", "1"]) == 0
    here, there = (json.loads((tmp_path / run / "comparison.json").read_text()) for run in "cd")
    assert [without_time(method) for method in there] == [without_time(method) for method in here]
    capsys.readouterr()


def test_the_command_line_joins_a_cluster_that_runs(tmp_path: Path, ray: Any) -> None:
    words = ["train", "--env", "coalition_v0", "--policy", "table:help,pass", "--steps", "2", "--tasks", "2"]
    words += ["--group", "4", "--evaluate-tasks", "0", "--ray-workers", "1"]
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-m", "macredit.cli", *words, "--ray", address, "-o", str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    steps = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2]
    assert ray.is_initialized()
