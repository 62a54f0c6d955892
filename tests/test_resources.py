from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from macredit.agents import HF, make_policies, make_policy
from macredit.errors import UserError
from macredit.learn import Learner, LearnerConfig, TrainRow
from macredit.learn.learner import Metrics
from macredit.learn.resources import compile_layers, layers, move_moments
from macredit.learn.scoring import Scorer
from macredit.policy import Chat, Request
from macredit.seeds import Key

torch.set_num_threads(1)
SPEC: dict[str, Any] = {"kind": "hf", "model": "tiny", "max_tokens": 4}


def policy_of(**settings: Any) -> HF:
    policy = make_policy({**SPEC, **settings}, name="p")
    assert isinstance(policy, HF)
    return policy


def rows_of(policy: HF, n: int = 6) -> list[TrainRow]:
    said = policy.say([Request("a", (Chat("user", "ask " * (5 + g % 3)),), Key(0, "t", g)) for g in range(n)])
    rows = []
    for g, one in enumerate(said):
        ids = np.array((one.prompt_ids or ()) + (one.token_ids or ()))
        mask = np.arange(len(ids)) >= len(one.prompt_ids or ())
        logprob = np.zeros(len(ids))
        logprob[mask] = one.logprobs
        rows.append(TrainRow(ids, mask, logprob, (-1.0) ** g * (1 + g), 1.0, g // 2))
    return rows


def learned(config: LearnerConfig, **settings: Any) -> tuple[dict[str, np.ndarray], Metrics, HF]:
    """Two updates on the same rows."""
    policy = policy_of(**settings)
    rows = rows_of(policy)
    learner = Learner(policy, config)
    learner.update(rows)
    metrics = learner.update(rows)
    return dict(policy.state().tensors), metrics, policy


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
@pytest.mark.parametrize("change", [{"checkpointing": True}, {"offload": True}])
def test_recomputing_and_moving_change_no_bit(change: dict[str, Any], lora: dict[str, int] | None) -> None:
    plain, plain_metrics, _ = learned(LearnerConfig(), lora=lora)
    other, other_metrics, policy = learned(LearnerConfig(**change), lora=lora)
    assert plain_metrics == other_metrics
    assert all(np.array_equal(plain[key], other[key]) for key in plain)
    assert all("forward" not in vars(layer) for layer in layers(policy.module))


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_chunks_of_the_vocabulary_change_only_rounding(lora: dict[str, int] | None) -> None:
    (plain, _, _), (other, _, _) = (learned(LearnerConfig(chunk=chunk, rate=1e-3), lora=lora) for chunk in (1024, 3))
    moments = [key for key in plain if key.startswith("exp_avg/")]
    assert moments
    for key in moments:
        assert np.allclose(plain[key], other[key], atol=1e-3 * np.abs(plain[key]).max())


def test_recomputed_layers_keep_less_alive() -> None:
    policy = policy_of()
    rows, scorer = rows_of(policy), Scorer(policy.module, "p")
    kept: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[-1] += tensor.numel()
        return tensor

    for checkpointing in (False, True):
        kept.append(0)
        with (
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
            scorer.ready(policy.module, LearnerConfig(checkpointing=checkpointing), gradient=True),
        ):
            scorer(policy.module, rows, 1.0, 1024)
    assert kept[1] < kept[0] / 2


@pytest.mark.parametrize(("lora", "dtype"), [(None, "float32"), (None, "bfloat16"), ({"rank": 4}, "bfloat16")])
def test_half_precision_computes_and_single_learns(lora: dict[str, int] | None, dtype: str) -> None:
    config = LearnerConfig(precision="bfloat16", rate=1e-3)
    policy = policy_of(lora=lora, dtype=dtype)
    learner = Learner(policy, config)
    rows = rows_of(policy)
    metrics = learner.update(rows)
    assert np.isfinite(list(metrics.values())).all()
    assert {p.dtype for p in policy._parameters.values()} == {torch.float32}
    assert {a.dtype for a in policy.state().tensors.values()} == {np.dtype(np.float32)}
    # it samples in the precision it learns in: log-probabilities differ by the rounding of shapes alone
    assert 0 < metrics["mismatch_max"] < 0.1
    exact = policy_of(lora=lora).logprobs(rows)
    assert max(np.abs(a - b).max() for a, b in zip(exact, policy_of(lora=lora).logprobs(rows), strict=True)) == 0


def test_a_step_too_small_for_half_precision_is_kept() -> None:
    """Weights near 1 cannot move by 1e-4 in bfloat16, whose next number is 1.0078."""
    policy = policy_of(dtype="bfloat16")
    learner = Learner(policy, LearnerConfig(precision="bfloat16", rate=1e-4))
    rows = rows_of(policy)
    name = next(key for key in policy._parameters if "norm" in key)
    before = policy.state().tensors[f"weight/{name}"]
    learner.update(rows)
    moved = np.abs(policy.state().tensors[f"weight/{name}"] - before)
    assert 0 < moved.max() < 2e-4


def test_moments_are_moved() -> None:
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([p])
    p.grad = torch.ones(3)
    optimizer.step()
    move_moments(optimizer, torch.device("meta"))
    state = optimizer.state[p]
    assert (state["exp_avg"].device.type, state["exp_avg_sq"].device.type) == ("meta", "meta")
    assert state["step"].item() == 1


def test_out_of_memory_names_what_to_lower() -> None:
    policy = policy_of()
    learner = Learner(policy)
    rows = rows_of(policy)
    learner.update(rows)
    before, version = policy.state(), policy.version

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore words.")

    hook = policy.module.model.layers[1].register_forward_pre_hook(full)
    longest = max(len(row.ids) for row in rows)
    told = f"'p' ran out of memory on a batch of {len(rows)} rows of up to"
    with pytest.raises(UserError, match=rf"{told} {longest} tokens .*2.00 GiB.*lower the learner's batch_tokens"):
        learner.update(rows)
    with pytest.raises(UserError, match=rf"{told} \d+ tokens .*lower its batch_tokens or max_tokens"):
        rows_of(policy)
    hook.remove()
    assert policy.version == version
    assert all(np.array_equal(array, policy.state().tensors[key]) for key, array in before.tensors.items())
    learner.update(rows)  # and it goes on


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute:UserWarning")  # torch's compiler
def test_compiled_layers_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced and differentiated by torch.compile, without its minutes of generating code."""
    monkeypatch.setattr("macredit.learn.torch_policy.compile_layers", partial(compile_layers, backend="aot_eager"))
    (plain, one, _), (compiled, two, policy) = (learned(LearnerConfig(compile=on, rate=1e-3)) for on in (False, True))
    assert all(layer._compiled_call_impl is not None for layer in layers(policy.module))
    assert one == pytest.approx(two, abs=1e-4)
    for key in (key for key in plain if key.startswith("weight/")):
        assert np.allclose(plain[key], compiled[key], atol=1e-4)
    assert rows_of(policy)  # sampling goes on uncompiled


def test_three_adapters_one_forward_each() -> None:
    """Several adapters on one base: an update of one computes once, and moves no bit of the others."""
    made = make_policies({name: {**SPEC, "lora": {"rank": 4}} for name in "abc"})
    policies: Sequence[HF] = [p for p in made.values() if isinstance(p, HF)]
    learners = [Learner(p, LearnerConfig(checkpointing=True, chunk=4)) for p in policies]
    rows = [rows_of(p) for p in policies]
    for learner, own in zip(learners, rows, strict=True):
        learner.update(own)
    before = [p.state().tensors for p in policies]
    logps = [p.logprobs(own) for p, own in zip(policies, rows, strict=True)]
    passes: list[int] = []
    hook = policies[0].module.register_forward_pre_hook(lambda *_: passes.append(1))
    learners[1].update([replace(row, advantage=row.advantage * 2) for row in rows[1]])
    hook.remove()
    assert passes == [1]
    for n in (0, 2):
        after = policies[n].state().tensors
        assert all(np.array_equal(array, after[key]) for key, array in before[n].items())
        for one, two in zip(policies[n].logprobs(rows[n]), logps[n], strict=True):
            assert np.array_equal(one, two)
