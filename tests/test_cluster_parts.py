"""What a cluster run is made of, as far as no cluster is needed."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from macredit.cli import main, world_of
from macredit.cli.cluster import cluster_of, parts_of
from macredit.cli.words import env_of
from macredit.cluster import RayConfig
from macredit.cluster.jobs import by_task
from macredit.config import RunConfig, read_config
from macredit.errors import UserError
from macredit.ledger import Ledger
from macredit.policy import Said
from macredit.rollout import Memory, Plan, tasks_of
from macredit.seeds import Key


def test_plans_are_parted_by_task_in_order() -> None:
    plans = [Plan("x", Key(0, "t1")), Plan("y", Key(0, "t0")), Plan("z", Key(0, "t1", 1))]
    assert [(job.task, job.places) for job in by_task(plans)] == [("t1", [0, 2]), ("t0", [1])]


def test_a_task_that_no_worker_survives_names_itself_in_every_episode() -> None:
    world = world_of(RunConfig({"name": "coalition_v0"}, {"*": {"kind": "scripted", "style": "perfect"}}))
    (job,) = by_task(tasks_of(0, 1, 2))
    job.deaths = 3
    episodes = job.failed(world)
    assert [(e.id, e.end, e.env) for e in episodes] == [(f"t0-{g}", "failed:worker", "coalition_v0") for g in (0, 1)]
    assert episodes[0].error == "OutsideError: task 't0' ended the process of its worker 3 times"


def test_a_task_keeps_its_engine_whose_cache_knows_its_prompts() -> None:
    pytest.importorskip("ray")
    from macredit.cluster.company import Company
    from macredit.cluster.seat import Seat

    own = RunConfig({"name": "coalition_v0"}, {"*": {"kind": "scripted", "style": "perfect"}})
    company = Company(parts_of(own, env_of(own)), RayConfig(engines=2))
    first, second = seats = [object.__new__(Seat) for _ in range(2)]
    company.engines = seats
    assert [company.engine_of(task) for task in "abcab"] == [first, second, first, first, second]


def test_memory_tells_what_it_knows_of_a_task() -> None:
    memory = Memory()
    memory.keep(("t0", "p"), Said("a"))
    memory.keep(("t1", "p"), Said("b"))
    assert memory.of("t0") == {("t0", "p"): Said("a")}
    assert memory.of("t2") == {}
    assert memory.recall(("t1", "p")) == Said("b")


def test_ledgers_add_up_but_for_the_clock() -> None:
    ledger = Ledger(calls=2, seconds=1.0)
    ledger.add(Ledger(calls=3, sampled_tokens=7, seconds=5.0))
    assert (ledger.calls, ledger.sampled_tokens, ledger.seconds) == (5, 7, 1.0)


def test_bundles_are_workers_then_engines_then_learners() -> None:
    settings = RayConfig(workers=2, engines=1, engine_cpus=2, engine_gpus=1, learner_cpus=0, learner_gpus=0.5)
    worker, engine, learner = {"CPU": 1.0}, {"CPU": 2, "GPU": 1}, {"GPU": 0.5}
    assert settings.bundles(2) == [worker, worker, engine, learner, learner]
    assert RayConfig(workers=1, worker_cpus=0).bundles(0) == [{"CPU": 0.001}]


def test_flags_change_the_table() -> None:
    table = RayConfig(workers=4, engines=1, engine_gpus=1)
    run = RunConfig({}, ray=table)
    assert cluster_of(run, None, 0, None) == table
    assert cluster_of(run, ("auto",), 8, 0) == RayConfig("auto", workers=8, engine_gpus=1)
    assert cluster_of(RunConfig({}), (), 0, None) == RayConfig()
    assert cluster_of(RunConfig({}), None, 0, None) is None
    with pytest.raises(UserError, match="expected --ray, or a"):
        cluster_of(RunConfig({}), None, 2, None)
    with pytest.raises(UserError, match=r"\[ray\] workers is -1; expected at least 1"):
        cluster_of(RunConfig({}), (), -1, None)


def test_toml_takes_a_ray_table(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[env]\nname = "relay_v0"\n[ray]\nengines = 2\nengine_gpus = 1\nplacement = "SPREAD"\n')
    assert read_config(file).ray == RayConfig(engines=2, engine_gpus=1, placement="SPREAD")
    file.write_text('[env]\nname = "relay_v0"\n[ray]\ngpus = 1\n')
    with pytest.raises(UserError, match="gpus"):
        read_config(file)


WORDS = ["train", "--env", "coalition_v0", "--policy", "table:help,pass", "--steps", "1"]


def test_an_address_where_nothing_answers_is_refused_soon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]  # bound, and nobody listens
        begun = time.monotonic()
        assert main([*WORDS, "-o", str(tmp_path / "run"), "--ray", f"127.0.0.1:{port}"]) == 2
    assert time.monotonic() - begun < 30
    said = capsys.readouterr().err
    assert f"no Ray cluster answers at '127.0.0.1:{port}'" in said
    assert "ray start --head" in said
    assert not (tmp_path / "run").exists()


def test_an_address_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    assert main([*WORDS, "-o", str(tmp_path / "run"), "--ray", "team.toml"]) == 2
    assert "'team.toml'; expected HOST:PORT" in capsys.readouterr().err


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    from macredit.cluster.connect import connected

    with pytest.raises(UserError, match=r'pip install "macredit\[ray\]"'), connected(RayConfig(), []):
        pass


def test_importing_the_cluster_imports_no_ray() -> None:
    code = "import sys, macredit.cluster, macredit.cli, macredit.config; sys.exit('ray' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
