"""The value head: regression by hand, hidden states as they are read one by one, and a model that stays as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from macredit.errors import UserError
from macredit.learn.critic import MEMORY
from macredit.moves import Move
from macredit.seeds import generator

torch = pytest.importorskip("torch")

from macredit.agents import HF, make_policies  # noqa: E402 (they need torch)
from macredit.learn.team_critic import TeamCritic, critic_of  # noqa: E402
from macredit.learn.torch_critic import Head, TorchCritic, last_states  # noqa: E402

LORA = {"kind": "hf", "model": "tiny", "lora": {"rank": 4}, "max_tokens": 2}


def move(*ids: int, agent: str = "a", reply: int = 1) -> Move:
    return Move("t", agent, agent, "", "x", ids[:-reply], ids[-reply:])


def head_of(width: int, x: np.ndarray, r: np.ndarray, weight: np.ndarray, prior: int = -1) -> Head:
    """A head in which one prior is in force: by default the weakest."""
    errors = np.ones(len(Head.PRIORS))
    errors[prior] = 0.0
    head = Head(width, errors=errors)
    head.fit(x, r, weight)
    return head


def test_the_head_by_hand() -> None:
    assert np.isnan(Head(1).predict(np.array([[3.0]]))).all()
    # x: 0, 2 with mean 1 and deviation 1; r: 0, 1: in these units Σ x x = 2, Σ x (r − ½) = 1, and with λ = 1 w = 1/3
    x, r, new = np.array([[0.0], [2.0]]), np.array([0.0, 1.0]), np.array([[1.0], [2.0], [4.0]])
    assert Head.PRIORS[0] == np.inf
    assert Head.PRIORS[3] == 1.0
    head = head_of(1, x, r, np.ones(2), prior=3)
    np.testing.assert_allclose(head.predict(new), [1 / 2, 1 / 2 + 1 / 3, 1 / 2 + 1])
    # what was seen counts .9 after another fit: mean of 0, 1 at .9 each and 3 at 1
    head.fit(np.array([[1.0]]), np.array([3.0]), np.ones(1))
    assert head.predict(np.array([[1.0]]))[0] == pytest.approx((MEMORY * 1.0 + 3.0) / (2 * MEMORY + 1))
    assert (head.errors[:3] > MEMORY).all()


def test_a_head_is_believed_as_far_as_it_was_right() -> None:
    rng = generator("believed")
    x = rng.normal(size=(40, 3))
    noise, signal = Head(3), Head(3)
    for head, r in ((noise, rng.normal(size=40)), (signal, x[:, 0])):
        head.fit(x, r, np.ones(40))
        np.testing.assert_allclose(head.predict(x), r.mean())
    for _ in range(4):
        x = rng.normal(size=(40, 3))
        noise.fit(x, rng.normal(size=40), np.ones(40))
        signal.fit(x, x[:, 0], np.ones(40))
    assert noise.errors.argmin() < 2
    assert signal.errors.argmin() == len(Head.PRIORS) - 1
    np.testing.assert_allclose(signal.predict(x), x[:, 0], atol=0.02)


def test_a_weight_is_so_many_copies_and_constant_states_say_nothing() -> None:
    rng = generator("head")
    x, r = rng.normal(size=(5, 3)), rng.normal(size=5)
    x[:, 2] = 7.0
    weighed = head_of(3, x, r, np.array([3.0, 1, 1, 1, 1]))
    copied = head_of(3, np.concatenate([x, x[:1], x[:1]]), np.concatenate([r, r[:1], r[:1]]), np.ones(7))
    np.testing.assert_allclose(weighed.predict(x), copied.predict(x))
    other = x + np.array([0, 0, 100.0])
    np.testing.assert_allclose(weighed.predict(other), weighed.predict(x))


def test_the_head_finds_a_line_in_much_data_whatever_the_units() -> None:
    rng = generator("line")
    x = rng.normal(size=(4000, 4)) * [1.0, 5.0, 0.1, 1.0] + 3.0
    slope = np.array([0.5, -0.2, 4.0, 0.0])
    head = head_of(4, x, x @ slope + 1.0, np.ones(4000))
    np.testing.assert_allclose(head.predict(x[:5]), x[:5] @ slope + 1.0, atol=0.02)


@pytest.mark.parametrize("packable", [True, False])
def test_states_are_those_of_each_sequence_alone(packable: bool) -> None:
    policy = make_policies({"a": LORA})["a"]
    assert isinstance(policy, HF)
    long = tuple(generator("ids").integers(0, 250, 40).tolist())
    asked = [long, long[:30], (*long[:20], 1, 2, 3), (*long[:20], 1, 2), (11, 12, 13, 14), (5,)]
    with policy.module.disable_adapter(), torch.no_grad():
        found = last_states(policy.module, asked, packable)
        for ids in asked:
            out = policy.module(input_ids=torch.tensor([ids]), output_hidden_states=True)
            np.testing.assert_allclose(found[ids], out.hidden_states[-1][0, -1].numpy(), atol=1e-5)


@pytest.mark.parametrize("lora", [{"rank": 4}, None])
def test_a_critic_learns_what_messages_return_and_leaves_the_model_alone(lora: dict[str, int] | None) -> None:
    policy = make_policies({"a": {**LORA, "lora": lora}})["a"]
    assert isinstance(policy, HF)
    before = policy.module.state_dict()
    before = {key: tensor.clone() for key, tensor in before.items()}
    critic = critic_of(policy)
    assert isinstance(critic, TorchCritic)
    moves = [move(*prompt, reply) for prompt in ((1, 2, 3), (4, 5)) for reply in (70, 80)]
    returns = np.array([1.0, 0.0, 1.0, 0.0])
    assert np.isnan(critic.predict(moves)).all()
    first = critic.fit(moves, returns, np.full(4, 50.0))
    for _ in range(2):
        again = critic.fit(moves, returns, np.full(4, 50.0))
    assert first["loss"] == 0.5
    assert (again["explained_variance"] or 0.0) > 0.8
    assert critic.predict([move(9, 9, 70)])[0] > critic.predict([move(9, 9, 80)])[0]
    assert all(torch.equal(tensor, before[key]) for key, tensor in policy.module.state_dict().items())
    said = critic.predict(moves)
    adapters = [p for key, p in policy.module.named_parameters() if "lora_" in key]
    with torch.no_grad():
        for p in adapters or policy.module.parameters():
            p.add_(0.1)
    critic.load(critic.state())
    critic._read = {}
    assert np.array_equal(critic.predict(moves), said) == bool(adapters)  # an adapter is not read, a whole model is


def test_agents_on_one_base_have_heads_of_their_own_and_save_them(tmp_path: Path) -> None:
    policies = make_policies({"a": LORA, "b": LORA, "c": {"kind": "table", "replies": ["x"]}})
    critic = TeamCritic(policies)
    moves = [move(1, 2, 70), move(1, 2, 70, agent="b"), Move("t", "c", "c", "", "x", None, None)]
    for one, r in zip(moves, (1.0, 2.0, 3.0), strict=True):
        critic.of(one.policy).fit([one], np.array([r]), np.ones(1))
    np.testing.assert_allclose(critic.predict(moves), [1, 2, 3])
    critic.save(tmp_path)
    again = TeamCritic(make_policies({"a": LORA, "b": LORA}))
    again.load(tmp_path)
    np.testing.assert_array_equal(again.predict(moves), critic.predict(moves))
    with pytest.raises(UserError, match=r"critic of policy 'a' .* is a head on a model of width 64.*takes a table"):
        TeamCritic({}).load(tmp_path)


def test_behind_an_engine_the_model_that_learns_is_read() -> None:
    served = make_policies({"a": {**LORA, "engine": "copy"}})["a"]
    assert not isinstance(served, HF)
    critic = critic_of(served)
    assert isinstance(critic, TorchCritic)
    assert critic.predict([move(1, 2, 70)]).shape == (1,)


def test_a_turn_without_ids_cannot_be_read() -> None:
    critic = TeamCritic(make_policies({"a": LORA}))
    with pytest.raises(UserError, match="a turn of agent 'a' on task 't' has no prompt ids"):
        critic.predict([Move("t", "a", "a", "", "x", None, None)])


@pytest.mark.parametrize(
    ("name", "array", "wrong"),
    [
        ("a/squares", np.zeros((3, 3)), r"its 'a/squares' is float64 of shape \[3, 3\]\); expected float64 of"),
        ("a/errors", np.zeros(6, np.int64), "its 'a/errors' is int64"),
        ("a/products", np.full(65, np.nan), "its 'a/products' has values that are not finite"),
        ("a/products", None, "it holds 2 tensors"),
    ],
)
def test_other_tensors_than_a_heads(name: str, array: np.ndarray | None, wrong: str, tmp_path: Path) -> None:
    critic = TeamCritic(make_policies({"a": LORA}))
    critic.of("a").fit([move(1, 2, 70)], np.ones(1), np.ones(1))
    critic.save(tmp_path)
    tensors = load_file(tmp_path / "critic.safetensors")
    changed = {**tensors, name: array} if array is not None else {key: tensors[key] for key in tensors if key != name}
    save_file(changed, tmp_path / "critic.safetensors")
    with pytest.raises(UserError, match=rf"critic.safetensors is damaged \({wrong}"):
        critic.load(tmp_path)
    assert critic.predict([move(1, 2, 70)])[0] == 1.0


@pytest.mark.parametrize("ids", [(1, 2, 10**12, 70), (1, -1, 70), (1, 2, 261), (1,)])
def test_ids_of_another_policy_are_named(ids: tuple[int, ...]) -> None:
    critic = TeamCritic(make_policies({"a": LORA}))
    with pytest.raises(UserError, match=r"agent 'a' on task 't' has (id .*knows 0 to 260|no prompt ids).*spoke in"):
        critic.predict([move(5, 6), move(*ids)])
