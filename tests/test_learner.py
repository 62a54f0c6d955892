from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
