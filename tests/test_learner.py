import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from macredit.agents import HF, make_policy
from macredit.errors import UserError
from macredit.learn import Learner, LearnerConfig, Objective, TrainRow
from macredit.learn.batch import by_sequence
from macredit.learn.learner import Metrics
from macredit.learn.loss import Aggregate, Ratio
from macredit.learn.pack import packed, packs
from macredit.policy import Chat, Request
from macredit.seeds import Key

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
SPECS: dict[str, dict[str, Any]] = {
    "full": {"kind": "hf", "model": "tiny", "max_tokens": 4},
    "lora": {"kind": "hf", "model": "tiny", "max_tokens": 4, "lora": {"rank": 4}},
    "table": {"kind": "table", "replies": ["x", "y", "z"]},
}
made = pytest.mark.parametrize("kind", list(SPECS))


def learner_of(kind: str, config: LearnerConfig | None = None, **settings: object) -> Learner:
    return Learner(make_policy({**SPECS[kind], **settings}, name="p"), config)


def rows_of(learner: Learner, n: int = 6, seed: int = 0) -> list[TrainRow]:
    """Sampled rows of several lengths; two rows a sequence, advantages of both signs."""
    requests = [Request("a", (Chat("user", "ask" * (g % 3)),), Key(seed, "t", g)) for g in range(n)]
    rows = []
    for g, said in enumerate(learner.policy.say(requests)):  # type: ignore[attr-defined]
        ids = np.array(said.prompt_ids + said.token_ids)
        mask = np.arange(len(ids)) >= len(said.prompt_ids)
        logprob = np.zeros(len(ids))
        logprob[mask] = said.logprobs
        rows.append(TrainRow(ids, mask, logprob, (-1.0) ** g * (1 + g), 1.0 + g % 2, g // 2))
    return rows


def tensors(learner: Learner) -> dict[str, np.ndarray]:
    return dict(learner.policy.state().tensors)


def same(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> bool:
    return one.keys() == two.keys() and all(np.array_equal(one[key], two[key]) for key in one)


def gradients(learner: Learner, rows: Sequence[TrainRow], budget: int) -> list[np.ndarray]:
    policy = learner.policy
    assert isinstance(policy, HF)
    policy.prepare(replace(learner.config, batch_tokens=budget, max_norm=1e9, rate=0.0))
    policy.update(rows, Objective(learner.config))
    return [p.grad.numpy().copy() for p in policy._parameters.values() if p.grad is not None]


@pytest.mark.parametrize(
    ("aggregate", "ratio"),
    [
        ("token-mean", "token"),
        ("seq-mean-token-mean", "sequence-mean"),
        ("seq-mean-token-sum", "sequence-product"),
        ("dr-grpo", "token"),
    ],
)
def test_accumulation_and_padding_change_nothing(aggregate: Aggregate, ratio: Ratio) -> None:
    learner = learner_of("full", LearnerConfig(aggregate=aggregate, ratio=ratio, length=4))
    rows = rows_of(learner)
    whole, parts = gradients(learner, rows, 10**6), gradients(learner, rows, 1)
    assert max(np.abs(g).max() for g in whole) > 1e-3
    padded = gradients(learner, [*rows, replace(rows[0], weight=0.0, sequence=99)], 10**6)
    for one, two, three in zip(whole, parts, padded, strict=True):
        assert np.allclose(one, two, atol=1e-6 * np.abs(one).max())
        assert np.allclose(one, three, atol=1e-6 * np.abs(one).max())


def test_the_torch_gradient_is_that_of_the_written_out_loss() -> None:
    learner = learner_of("full", LearnerConfig(clip_high=0.3))
    rows = [replace(row, logprob=row.logprob - 0.05 * row.mask) for row in rows_of(learner)]
    ours = gradients(learner, rows, 10**6)
    policy = learner.policy
    assert isinstance(policy, HF)
    policy.module.zero_grad()
    total, weight = 0.0, 0.0
    for row in rows:  # one by one, unpadded
        ids = torch.tensor(row.ids)[None]
        logp = torch.log_softmax(policy.module(input_ids=ids).logits[0, :-1], -1)
        chosen = logp[torch.arange(len(row.ids) - 1), ids[0, 1:]][torch.tensor(row.mask[1:])]
        ratio = torch.exp(chosen - torch.tensor(row.logprob[row.mask]))
        a = row.advantage
        token = torch.maximum(-a * ratio, -a * ratio.clamp(0.8, 1.3))
        total = total + row.weight * (token.clamp(max=-3 * a) if a < 0 else token).sum()
        weight += row.weight * row.mask.sum()
    (total / weight).backward()  # type: ignore[attr-defined]
    written = [p.grad.numpy() for p in policy._parameters.values() if p.grad is not None]
    for one, two in zip(ours, written, strict=True):
        assert np.allclose(one, two, atol=2e-6)


ROLE = "You answer in one word, as in: two and two? four. "


def written(prompt: str, reply: str, advantage: float, sequence: int) -> TrainRow:
    """A row of bytes, which are the ids of the tiny tokenizer."""
    ids = np.array([*(prompt + reply).encode()])
    mask = np.arange(len(ids)) >= len(prompt)
    return TrainRow(ids, mask, np.where(mask, -5.5, 0.0), advantage, 1.0, sequence)


SHARING: dict[str, tuple[int, list[TrainRow]]] = {
    # ids computed: of each row all before the last, what rows begin with alike (from 16 ids on) once
    "ragged": (50 + 3 + 7 + 5 + 14, [
        written(ROLE + ask, "no" * n, n - 2.5, n) for n, ask in enumerate(("a?", "bcd?", "", "efghij?"), start=1)
    ]),
    "two prompts": (50 + 1 + 1, [
        written(ROLE + ask, reply, 1.0, n) for n, (ask, reply) in enumerate(zip("aabb", "wxyz", strict=True))
    ]),
    "one row": (52, [written(ROLE, "yes", 1.0, 0)]),
    "one prompt": (51, [written(ROLE, reply, len(reply) - 1.5, n) for n, reply in enumerate(("a", "ab", "ab", "c"))]),
    "nothing in common": (5 + 7 + 9, [
        written(ask, "yes" * n, 1.0, n) for n, ask in enumerate(("abc", "bc", "c"), start=1)
    ]),
    "a conversation": (50 + 20 + 20 + 9, [
        written(ROLE + "it goes on and then?" * n, "it goes on", 1.0, 0) for n in range(3)
    ]),
    "a fork": (50 + 20 + 2 * 16 + 3 * 5, [
        written(ROLE + "it goes on and then?" + ask, "so 1 2", 1.0, n)
        for n, ask in enumerate(("", "where it is cold", "once it was warm"))
    ]),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize("case", SHARING)
def test_a_shared_prefix_computed_once_changes_nothing(kind: str, case: str) -> None:
    expected, rows = SHARING[case]
    learner = learner_of(kind, LearnerConfig(ratio="sequence-mean", clip_high=1e9, clip_low=1, dual_clip=None))
    learner.imitate(rows)  # or half of a fresh adapter has no gradient
    assert len(packed(rows).ids) == expected
    assert len(packs(rows, 10**6)) == 1

    together = gradients(learner, rows, 10**6)
    again, policy = gradients(learner, rows, 10**6), learner.policy
    assert isinstance(policy, HF)
    alone = _gradients_one_by_one(policy, rows)
    assert len(together) == len(alone)
    for one, two, three in zip(together, again, alone, strict=True):
        assert np.array_equal(one, two)
        assert np.allclose(one, three, atol=2e-6 * max(1, np.abs(three).max()))
    assert max(np.abs(g).max() for g in together) > 1e-3
    for row, logp in zip(rows, policy.logprobs(rows), strict=True):
        assert np.allclose(logp[row.mask], _plain(policy, row).detach().numpy(), atol=1e-5)
        assert not logp[~row.mask].any()


def _plain(policy: HF, row: TrainRow) -> Any:
    """Log-probabilities of a row's reply, from the whole row in one pass."""
    ids = torch.tensor(row.ids)[None]
    logp = torch.log_softmax(policy.module(input_ids=ids).logits[0, :-1], -1)
    return logp[torch.arange(len(row.ids) - 1), ids[0, 1:]][torch.tensor(row.mask[1:])]


def _gradients_one_by_one(policy: HF, rows: Sequence[TrainRow]) -> list[np.ndarray]:
    """Of the token-mean of −A exp(mean of logp − old over a sequence), no clip."""
    policy.module.zero_grad()
    total = torch.zeros(())
    for unit in by_sequence(rows):
        moved = torch.cat([_plain(policy, row) - torch.tensor(row.logprob[row.mask]) for row in unit])
        total = total - unit[0].advantage * len(moved) * moved.mean().exp()
    (total / sum(row.mask.sum() for row in rows)).backward()
    return [p.grad.numpy() for p in policy._parameters.values() if p.grad is not None]


def passes(learner: Learner, rows: Sequence[TrainRow]) -> tuple[list[int], Metrics]:
    """How many ids each forward pass of an update had, and the update's metrics."""
    seen: list[int] = []
    policy = learner.policy
    assert isinstance(policy, HF)
    hook = policy.module.register_forward_pre_hook(
        lambda _, __, inputs: seen.append(inputs["input_ids"].numel()), with_kwargs=True
    )
    metrics = learner.update(rows)
    hook.remove()
    return seen, metrics


def test_rows_without_a_gradient_count_but_are_not_computed() -> None:
    learner = learner_of("full", LearnerConfig(clip_low=9, clip_high=9, dual_clip=None))
    moving = SHARING["ragged"][1]
    idle = [replace(row, advantage=0.0, sequence=9 + n) for n, row in enumerate(SHARING["one prompt"][1])]
    few, whole = gradients(learner, moving, 10**6), gradients(learner, [*idle, *moving], 10**6)
    for one, two in zip(few, whole, strict=True):  # 2 + 4 + 6 + 8 trained ids move, 1 + 2 + 2 + 1 do not
        assert np.allclose(20 / 26 * one, two, atol=1e-6 * np.abs(one).max())
    seen, metrics = passes(learner, [*idle, *moving])
    assert seen == [SHARING["ragged"][0]]
    assert metrics["tokens"] == 26


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_step_in_which_no_row_has_a_gradient(kind: str) -> None:
    learner = learner_of(kind, LearnerConfig(rate=0.01, weight_decay=0.1))
    rows = SHARING["ragged"][1]
    learner.update(rows)
    before = tensors(learner)
    seen, metrics = passes(learner, [replace(row, advantage=0.0) for row in rows])
    assert seen == []
    assert metrics == {
        "loss": 0, "tokens": 20, "clip_fraction": 0, "kl": 0, "gradient": 0, "entropy": 5.5, "rate": 0.01
    }  # fmt: skip
    for name, now in tensors(learner).items():  # AdamW with gradient 0 at its second step
        what, key = name.split("/", 1)
        m, v = 0.9 * before[f"exp_avg/{key}"], 0.999 * before[f"exp_avg_sq/{key}"]
        moved = 0.01 * m / (1 - 0.9**2) / (np.sqrt(v / (1 - 0.999**2)) + 1e-8)
        weight = before[f"weight/{key}"] * (1 - 0.01 * 0.1) - moved
        expected = {"weight": weight, "exp_avg": m, "exp_avg_sq": v, "step": np.array(2.0)}
        assert np.allclose(now, expected[what], rtol=1e-5, atol=1e-7)


@made
def test_resumed_equals_unbroken(kind: str, tmp_path: Path) -> None:
    config = LearnerConfig(
        epochs=2, minibatches=2, kl=0.1, schedule="constant" if kind == "table" else "cosine", steps=9
    )
    unbroken = learner_of(kind, config)
    unbroken.update(rows_of(unbroken))
    unbroken.save(tmp_path / "p")
    second = rows_of(unbroken, seed=1)
    metrics = unbroken.update(second)

    resumed = learner_of(kind, config)
    resumed.load(tmp_path / "p")
    for one, two in zip(rows_of(resumed, seed=1), second, strict=True):
        assert np.array_equal(one.ids, two.ids)
        assert np.array_equal(one.logprob, two.logprob)
    assert resumed.update(second) == metrics
    assert same(tensors(resumed), tensors(unbroken))
    assert resumed.policy.version == unbroken.policy.version
    assert resumed.policy.state().scalars == unbroken.policy.state().scalars


@made
def test_no_rows_no_change(kind: str) -> None:
    learner = learner_of(kind)
    learner.update(rows_of(learner))
    before, version = tensors(learner), learner.policy.version
    assert learner.update([]) == {}
    assert learner.imitate([]) == {}
    assert same(tensors(learner), before)
    assert learner.policy.version == version


@pytest.mark.parametrize(
    ("kind", "other", "differs"),
    [
        ("lora", {"lora": {"rank": 8}}, "origin, shapes"),
        ("full", {"model": "tiny:1"}, "origin"),
        ("table", {"replies": ["x"]}, "origin, replies"),
    ],
)
def test_a_checkpoint_of_another_model(kind: str, other: dict[str, Any], differs: str, tmp_path: Path) -> None:
    learner_of(kind).save(tmp_path)
    with pytest.raises(UserError, match=f"another model than policy 'p': they differ in {differs}"):
        learner_of(kind, **other).load(tmp_path)


@pytest.mark.parametrize("part", ["state.json", "state.safetensors"])
def test_a_damaged_checkpoint(part: str, tmp_path: Path) -> None:
    learner_of("table").save(tmp_path)
    (tmp_path / part).write_bytes((tmp_path / part).read_bytes()[:-9])
    with pytest.raises(UserError, match="is damaged"):
        learner_of("table").load(tmp_path)


def saved(kind: str, folder: Path) -> dict[str, np.ndarray]:
    """The tensors of a checkpoint after one update."""
    learner = learner_of(kind)
    learner.update(rows_of(learner))
    learner.save(folder)
    tensors_: dict[str, np.ndarray] = load_file(folder / "state.safetensors")
    return tensors_


DAMAGE: dict[str, tuple[Callable[[dict[str, np.ndarray], str], dict[str, np.ndarray]], str]] = {
    "shape": (lambda all_, one: {**all_, one: np.zeros((3, *all_[one].shape), all_[one].dtype)}, "expected float.. of"),
    "dtype": (lambda all_, one: {**all_, one: all_[one].astype(np.float16)}, "float16 of shape .*expected float.. of"),
    "whole numbers": (lambda all_, one: {**all_, one: all_[one].astype(np.int64)}, "is int64 of shape"),
    "values": (lambda all_, one: {**all_, one: np.full_like(all_[one], np.nan)}, "values that are not finite"),
    "missing": (lambda all_, one: {name: array for name, array in all_.items() if name != one}, r"it (lacks|holds \d)"),
    "another": (
        lambda all_, _: {**all_, "weight/foo": np.zeros(3)},
        "(has an unknown 'weight/foo'|holds \\d+ tensors)",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("kind", ["lora", "table"])
def test_whole_files_of_other_tensors(kind: str, damage: str, tmp_path: Path) -> None:
    tensors_, learner = saved(kind, tmp_path), learner_of(kind)
    before = tensors(learner)
    for one in (min(tensors_), max(tensors_)):  # of a model a moment and a weight
        change, wrong = DAMAGE[damage]
        save_file(change(tensors_, one), tmp_path / "state.safetensors")
        with pytest.raises(UserError, match=rf"state.safetensors is damaged \(.*{wrong}"):
            learner.load(tmp_path)
        assert same(tensors(learner), before)
        assert learner.rollouts == 0


def test_a_table_knows_its_own_contexts(tmp_path: Path) -> None:
    logits = saved("table", tmp_path)
    name = next(iter(logits))
    for other in ("1/5", "0/x", "0", "x/5", "0/5/5", "/5"):
        save_file({other if one == name else one: logits[one] for one in logits}, tmp_path / "state.safetensors")
        with pytest.raises(UserError, match=f"has an unknown '{other}'"):
            learner_of("table").load(tmp_path)
    save_file(logits, tmp_path / "state.safetensors")
    learner_of("table").load(tmp_path)


def test_tensors_that_numpy_has_not(tmp_path: Path) -> None:
    from safetensors.torch import save_file as save_torch

    saved("lora", tmp_path)
    for dtype in (torch.bfloat16, torch.float8_e4m3fn):
        save_torch({"weight/x": torch.zeros(2).to(dtype)}, tmp_path / "state.safetensors")
        with pytest.raises(UserError, match=r"state.safetensors is damaged"):
            learner_of("lora").load(tmp_path)


@pytest.mark.parametrize("content", ["[]", "null", "3", "{}", "[" * 100_000, b"\xff\xfe"])
def test_json_that_is_no_checkpoint(content: str | bytes, tmp_path: Path) -> None:
    learner_of("table").save(tmp_path)
    (tmp_path / "state.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=r"state.json is damaged \(.*expected .*; move its checkpoint away"):
        learner_of("table").load(tmp_path)


@pytest.mark.parametrize(
    ("place", "value", "wrong"),
    [
        (("rollouts",), "4", 'its rollouts is "4"\\); expected a whole number'),
        (("rollouts",), None, "its rollouts is null"),
        (("digest",), None, "its digest is null"),
        (("scalars",), [], "its scalars is a list"),
        (("scalars", "updates"), "1", 'its scalars/updates is "1"'),
        (("scalars", "updates"), 10**400, "its scalars/updates is 1000"),
        (("scalars", "optimizer"), {}, "its scalars/optimizer is an object"),
        (("scalars", "optimizer"), [], "its scalars/optimizer is a list\\); expected a list of 1"),
        (("scalars", "optimizer", 0, "betas"), 3, "its scalars/optimizer/0/betas is 3"),
        (("scalars", "optimizer", 0, "lr"), float("nan"), "its scalars/optimizer/0/lr is NaN"),
        (("scalars", "schedule", "last_epoch"), None, "its scalars/schedule/last_epoch is null"),
    ],
)
def test_json_of_other_values(place: tuple[Any, ...], value: object, wrong: str, tmp_path: Path) -> None:
    saved("lora", tmp_path)
    about = json.loads((tmp_path / "state.json").read_text())
    inner = about
    for key in place[:-1]:
        inner = inner[key]
    kept, inner[place[-1]] = inner[place[-1]], value
    (tmp_path / "state.json").write_text(json.dumps(about))
    with pytest.raises(UserError, match=wrong):
        learner_of("lora").load(tmp_path)
    if not isinstance(kept, list):
        inner[place[-1]] = kept
        (tmp_path / "state.json").write_text(json.dumps(about))
        learner_of("lora").load(tmp_path)


def test_flags_of_another_version_of_torch_may_be_absent_and_nothing_else(tmp_path: Path) -> None:
    saved("lora", tmp_path)
    about = json.loads((tmp_path / "state.json").read_text())
    del about["scalars"]["optimizer"][0]["fused"]
    (tmp_path / "state.json").write_text(json.dumps(about))
    learner_of("lora").load(tmp_path)
    del about["scalars"]["optimizer"][0]["betas"]
    (tmp_path / "state.json").write_text(json.dumps(about))
    with pytest.raises(UserError, match="it has no scalars/optimizer/0/betas"):
        learner_of("lora").load(tmp_path)


@made
def test_a_checkpoint_from_before_the_first_update(kind: str, tmp_path: Path) -> None:
    first, second = learner_of(kind), learner_of(kind)
    rows = rows_of(first)
    first.save(tmp_path)
    second.load(tmp_path)
    for learner in (first, second):
        learner.update(rows)
    assert same(tensors(first), tensors(second))
    second.load(tmp_path)
    assert same(tensors(second), dict(tensors(learner_of(kind))))


def test_a_checkpoint_has_the_moments_of_all_weights_or_of_none(tmp_path: Path) -> None:
    all_ = saved("lora", tmp_path)
    save_file(
        {name: array for name, array in all_.items() if name.startswith("weight/")}, tmp_path / "state.safetensors"
    )
    with pytest.raises(UserError, match=rf"it holds {len(all_) // 4} tensors\); expected the {len(all_)} that"):
        learner_of("lora").load(tmp_path)
    about = json.loads((tmp_path / "state.json").read_text())
    (tmp_path / "state.json").write_text(json.dumps({**about, "tensors": len(all_) - 1}))
    gone = next(name for name in all_ if name.startswith("exp_avg_sq/"))
    save_file({name: array for name, array in all_.items() if name != gone}, tmp_path / "state.safetensors")
    with pytest.raises(UserError, match=f"it lacks '{gone}'"):
        learner_of("lora").load(tmp_path)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of the same numbers
@made
def test_an_update_that_is_not_finite_stops_with_nothing_applied(kind: str) -> None:
    learner = learner_of(kind)
    rows = rows_of(learner)
    learner.update(rows)
    before, version = tensors(learner), learner.policy.version
    large = 1e200 if kind == "table" else 1e30  # its square is too large for a float
    for wrong, what in (
        ([replace(row, advantage=np.nan) for row in rows], "loss of nan"),
        ([replace(row, advantage=large * row.advantage) for row in rows], "gradient norm of inf"),
    ):
        with pytest.raises(UserError, match=f"policy 'p': optimiser step 2 has a {what}; expected a finite number"):
            learner.update(wrong)
        assert same(tensors(learner), before)
        assert learner.policy.version == version
        assert learner.rollouts == 1


@made
def test_weights_that_are_not_finite_stop_the_run_and_are_never_written(kind: str, tmp_path: Path) -> None:
    learner = learner_of(kind, LearnerConfig(rate=1e37 if kind != "table" else 1e308, max_norm=1e9))
    with pytest.raises(UserError, match=r"optimiser step 1 has a norm of the weights of inf"):
        learner.update(rows_of(learner))
    if kind != "table":
        policy = learner.policy
        assert isinstance(policy, HF)
        next(iter(policy._parameters.values())).data.fill_(np.nan)
        with pytest.raises(UserError, match=r"state.safetensors was not written: its 'weight/.*' has values that are"):
            learner.save(tmp_path)
        assert not list(tmp_path.iterdir())


def test_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no checkpoint"):
        learner_of("table").load(tmp_path)


@made
def test_metrics(kind: str) -> None:
    learner = learner_of(kind, LearnerConfig(kl=0.5))
    first, second = learner.update(rows_of(learner)), learner.update(rows_of(learner, seed=1))
    expected = {"loss", "tokens", "clip_fraction", "kl", "kl_reference", "gradient", "entropy", "rate"}
    expected |= {"mismatch_mean", "mismatch_max", "mismatch_k3"}
    assert first.keys() == second.keys() == expected
    assert first["kl"] == pytest.approx(0, abs=1e-6)  # the first step is on policy
    assert first["kl_reference"] == pytest.approx(0, abs=1e-6)
    assert second["kl_reference"] > 1e-5


@made
def test_the_kl_term_pulls_back(kind: str) -> None:
    learner = learner_of(kind, LearnerConfig(kl=1.0, rate=1.0 if kind == "table" else 2e-3))
    rows = rows_of(learner)

    def distance() -> float:
        now, then = learner.policy.logprobs(rows), learner.policy.logprobs(rows, reference=True)
        return float(np.mean([np.abs(a - b).max() for a, b in zip(now, then, strict=True)]))

    for _ in range(5):
        learner.imitate(rows)
    away = distance()
    for _ in range(20):
        learner.update([replace(row, advantage=0.0) for row in rows])
    assert distance() < away / 2


def test_a_sequence_ratio_counts_a_sequence_once() -> None:
    rows = rows_of(learner_of("full"))
    objective = Objective(LearnerConfig(ratio="sequence-product", aggregate="seq-mean-token-mean"))
    rows = [replace(row, advantage=1.5, weight=2.0) for row in rows]
    tokens = objective.tokens(rows)
    # on policy every ratio is 1, so the loss is −Σ w A / Σ w = −1.5 over sequences, however long each is
    assert objective(tokens.old, tokens).value == pytest.approx(-1.5)


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_tiny_learns_a_bandit(kind: str) -> None:
    learner = learner_of(kind, max_tokens=2)
    shares = []
    for step in range(25):
        rows = rows_of(learner, 24, seed=step)
        reward = np.array([row.ids[row.mask][0] % 2 for row in rows], dtype=float)
        learner.update([
            replace(row, advantage=(r - reward.mean()) / (reward.std() + 1e-6), weight=1.0, sequence=g)
            for g, (row, r) in enumerate(zip(rows, reward, strict=True))
        ])  # fmt: skip
        shares.append(reward.mean())
    assert np.mean(shares[:3]) < 0.75
    assert np.mean(shares[-5:]) > 0.9


def test_who_cannot_learn() -> None:
    with pytest.raises(UserError, match=r"'p' \(Scripted\) cannot learn.*freeze its agents"):
        Learner(make_policy({"kind": "scripted", "style": "silent"}, name="p"))
    for sampling in ({"temperature": 0}, {"top_p": 0.9}):
        with pytest.raises(UserError, match="which has no gradient"):
            learner_of("full", sampling=sampling)
