"""Two processes that hold a policy together learn what one does, and their checkpoints are interchangeable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from macredit.agents import make_policy
from macredit.errors import OutsideError, UserError
from macredit.learn import Learner, LearnerConfig, TrainRow
from macredit.policy import Chat, Request
from macredit.seeds import Key

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
SPEC: dict[str, Any] = {"kind": "hf", "model": "tiny", "max_tokens": 4}
# three packs for two ranks
KINDS: dict[str, tuple[dict[str, Any], LearnerConfig]] = {
    "full": (SPEC, LearnerConfig(batch_tokens=18, kl=0.1)),
    "adapter": (
        {**SPEC, "lora": {"rank": 4}, "dtype": "bfloat16"},
        LearnerConfig(batch_tokens=18, precision="bfloat16", checkpointing=True),
    ),
}
REQUESTS = [Request("a", (Chat("user", "ask" * (g % 3)),), Key(0, "t", g)) for g in range(5)]


@pytest.fixture(autouse=True)
def _one_thread_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(params=list(KINDS))
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Learner, Learner]]:
    """One process, and two ranks."""
    spec, config = KINDS[request.param]
    ranks: Any = make_policy({**spec, "shards": 2}, name="p")
    yield Learner(make_policy(spec, name="p"), config), Learner(ranks, config)
    ranks.close()


def rows_of(policy: Any, advantages: tuple[float, ...]) -> list[TrainRow]:
    policy.submit(list(enumerate(REQUESTS)))
    rows = []
    for (g, said), advantage in zip(policy.collect(), advantages, strict=True):
        ids = np.array(said.prompt_ids + said.token_ids)
        mask = np.arange(len(ids)) >= len(said.prompt_ids)
        logprob = np.zeros(len(ids))
        logprob[mask] = said.logprobs
        rows.append(TrainRow(ids, mask, logprob, advantage, 1.0, g))
    return rows


def assert_alike(one: Learner, two: Learner, atol: float) -> None:
    first, second = one.policy.state(), two.policy.state()
    assert first.scalars == second.scalars
    assert first.identity == second.identity
    assert first.tensors.keys() == second.tensors.keys()
    for name, tensor in first.tensors.items():
        assert tensor.dtype == second.tensors[name].dtype
        np.testing.assert_allclose(tensor, second.tensors[name], atol=atol * max(1, np.abs(tensor).max()), err_msg=name)


@pytest.mark.slow
def test_ranks_learn_what_one_process_does(pair: tuple[Learner, Learner], tmp_path: Path) -> None:
    one, two = pair
    coarse = one.config.precision == "bfloat16"
    rows = rows_of(one.policy, (1.0, -2.0, 3.0, 0.0, 0.5))
    for own, others in zip(rows, rows_of(two.policy, (1.0, -2.0, 3.0, 0.0, 0.5)), strict=True):
        assert np.array_equal(own.ids, others.ids)
        np.testing.assert_allclose(own.logprob, others.logprob, atol=0.05 if coarse else 1e-5)
    began = one.policy.state().tensors
    metrics = one.update(rows), two.update(rows)
    for name, value in metrics[0].items():
        assert metrics[1][name] == pytest.approx(value, rel=0.05 if coarse else 1e-4, abs=1e-2 if coarse else 1e-6), (
            name
        )
    assert two.policy.version == one.policy.version
    assert any(np.abs(one.policy.state().tensors[name] - tensor).max() > 1e-3 for name, tensor in began.items())
    assert_alike(one, two, 2e-2 if coarse else 1e-4)

    one.save(tmp_path / "one")
    two.save(tmp_path / "two")
    one.load(tmp_path / "two")
    two.load(tmp_path / "one")
    one.load(tmp_path / "one")
    assert_alike(one, two, 0.0)  # what was loaded, to the bit
    more = rows_of(one.policy, (-1.0, 1.0, 2.0, -3.0, 0.0))
    one.update(more)
    two.update(more)
    assert_alike(one, two, 4e-2 if coarse else 2e-4)

    two.policy.export(tmp_path / "exported")
    exported: Any = make_policy({**SPEC, "model": str(tmp_path / "exported")}, name="p")
    found = Learner(exported, one.config).policy.logprobs(more)
    for ours, theirs in zip(found, two.policy.logprobs(more), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=0.1 if coarse else 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_an_engine_speaks_with_what_ranks_learned(lora: dict[str, int] | None) -> None:
    served: Any = make_policy({**SPEC, "lora": lora, "shards": 2, "engine": "copy"}, name="p")
    learner = Learner(served, LearnerConfig(rate=0.05))
    before = served.engine.score(rows := rows_of(served, (1.0, -2.0, 3.0, 0.0, 0.5)))
    learner.update(rows)
    assert np.array_equal(served.engine.score(rows)[0], before[0])
    assert served.hand_over()["canary"] < 1e-4
    assert served.version == served.learner.version
    for spoken, learned, old in zip(served.engine.score(rows), served.logprobs(rows), before, strict=True):
        np.testing.assert_allclose(spoken, learned, atol=1e-4)
        assert np.abs(spoken - old).max() > 1e-3
    served.learner.close()


@pytest.mark.slow
def test_a_rank_that_dies_is_named_and_the_others_end() -> None:
    policy: Any = make_policy({**SPEC, "shards": 2}, name="p")
    learner = Learner(policy)
    rows = rows_of(policy, (1.0,) * 5)
    policy._ranks._processes[1].kill()
    with pytest.raises(OutsideError, match="rank 1 of policy 'p' died"):
        learner.update(rows)
    assert not any(process.is_alive() for process in policy._ranks._processes)
    with pytest.raises(OutsideError, match="lost its ranks"):
        learner.update(rows)


@pytest.mark.slow
def test_what_ranks_do_not_do_is_said() -> None:
    policy: Any = make_policy({**SPEC, "shards": 2}, name="p")
    with pytest.raises(UserError, match="offload = True; expected both false"):
        Learner(policy, LearnerConfig(offload=True))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shards": 1}, "given shards = 1; expected 2 or more"),
        ({"shards": "two"}, "given shards = 'two'; expected 2 or more"),
        ({"shards": 2, "lorra": {}}, "unknown setting of a hf policy 'lorra'"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_policy({**SPEC, **settings}, name="p")
