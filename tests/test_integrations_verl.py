"""verl's registry, batch and trainer function, our methods: against verl's own estimators where the formula is one."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from macredit.credit import METHODS
from macredit.errors import UserError
from macredit.integrations.columns import label

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]  # verl's and its packages' own warnings
torch = pytest.importorskip("torch")

UIDS = np.array(["g0", "g1", "g0", "g0", "g1", "alone", "g0", "g1"], dtype=object)


def batch(rows: int = 8, length: int = 5) -> dict[str, Any]:
    """Rewards on the last trained token, as verl's reward managers put them; replies of several lengths."""
    rng = np.random.default_rng(0)
    mask = torch.zeros(rows, length, dtype=torch.int64)
    rewards = torch.zeros(rows, length)
    for row in range(rows):
        size = 1 + row % length
        mask[row, :size] = 1
        rewards[row, size - 1] = float(rng.normal())
    return {"token_level_rewards": rewards, "response_mask": mask}


@pytest.fixture(scope="module")
def bridge() -> Any:
    from macredit.integrations import verl

    return verl


@pytest.fixture(scope="module")
def estimator() -> Any:
    """Name → what verl's registry has under it."""
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    import macredit.integrations.verl  # noqa: F401 (registers)

    return get_adv_estimator_fn


def test_every_method_is_in_verls_registry(estimator: Any) -> None:
    for method in METHODS:
        assert callable(estimator(f"macredit_{method}"))


def test_verl_finds_the_estimators_by_itself(tmp_path: Path) -> None:
    code = "import verl.trainer.ppo.core_algos as c; print(c.get_adv_estimator_fn('macredit_dr_mas').__module__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "macredit.integrations.verl"


@pytest.mark.parametrize(("ours", "verls"), [("macredit_grpo", "grpo"), ("macredit_rloo", "rloo")])
def test_the_same_formula_gives_verls_own_numbers(estimator: Any, ours: str, verls: str) -> None:
    """Preset code: sample deviation and, as verl does, the raw reward for a group of one."""
    got = estimator(ours)(**batch(), index=UIDS, config={"macredit": {"preset": "code"}})
    own = estimator(verls)(**batch(), index=UIDS)
    for mine, theirs in zip(got, own, strict=True):
        assert mine.shape == theirs.shape
        assert mine.dtype == theirs.dtype
        # verl does not divide a lone reward by 1 + eps in rloo; float32 on both sides
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_a_group_of_one_gets_nothing_in_the_papers_preset(estimator: Any) -> None:
    advantages, returns = estimator("macredit_grpo")(**batch(), index=UIDS)
    assert not advantages[5].any()
    assert torch.equal(advantages, returns)
    assert not advantages[batch()["response_mask"] == 0].any()


def two_agents() -> dict[str, np.ndarray[Any, Any]]:
    """One task, two rollouts: a speaks in each, b twice in the first and once in the second."""
    return {
        "uid": np.array(["t"] * 5, dtype=object),
        "episode": np.array([0, 0, 0, 1, 1], dtype=object),
        "agent": np.array(["a", "b", "b", "a", "b"], dtype=object),
        "turn": np.array([0, 1, 2, 0, 1], dtype=object),
    }


def test_dr_mas_normalises_each_agent_on_its_own(estimator: Any) -> None:
    mask = torch.ones(5, 1)
    rewards = torch.tensor([[1.0], [1.0], [1.0], [0.0], [0.0]])
    columns = two_agents()
    got, _ = estimator("macredit_dr_mas")(rewards, mask, index=columns["uid"], non_tensor_batch=columns)
    # a: mean 1/2, deviation 1/2; b: rows 1, 1, 0, mean 2/3, deviation √(2/9)
    b = np.sqrt(2 / 9)
    expected = [1.0, (1 / 3) / b, (1 / 3) / b, -1.0, (-2 / 3) / b]
    np.testing.assert_allclose(got[:, 0].numpy(), expected, rtol=1e-5)


def test_labels_in_uid_say_the_same_where_verl_hands_on_nothing_else(estimator: Any) -> None:
    mask, rewards, columns = torch.ones(5, 1), torch.tensor([[1.0], [1.0], [1.0], [0.0], [0.0]]), two_agents()
    estimate = estimator("macredit_dr_mas")
    by_column, _ = estimate(rewards, mask, index=columns["uid"], non_tensor_batch=columns)
    parts = (columns["uid"], columns["episode"], columns["agent"], columns["turn"])
    labels = np.array([label(*part) for part in zip(*parts, strict=True)], dtype=object)
    by_label, _ = estimate(rewards, mask, index=labels)
    torch.testing.assert_close(by_label, by_column)


def test_loss_weights_are_in_the_advantages(estimator: Any) -> None:
    """Preset balanced: b's two rows of one rollout weigh 1/2 each, and its mean over rollouts is 1/2."""
    columns = two_agents()
    rewards = torch.tensor([[1.0], [1.0], [1.0], [0.0], [0.0]])
    got, _ = estimator("macredit_dr_mas")(
        rewards, torch.ones(5, 1), index=columns["uid"], non_tensor_batch=columns,
        config={"macredit": {"preset": "balanced", "settings": {"scale": "none"}}},
    )  # fmt: skip
    np.testing.assert_allclose(got[:, 0].numpy(), [0.5, 0.25, 0.25, -0.5, -0.5], rtol=1e-5)


def test_verls_trainer_function_calls_ours(bridge: Any) -> None:
    """The very function of verl's trainers, on its DataProto, with its algorithm table."""
    from omegaconf import OmegaConf
    from verl import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage as verls

    config = OmegaConf.create({"adv_estimator": "macredit_rloo", "macredit": {"preset": "code"}})
    data = DataProto.from_dict(tensors=batch(), non_tensors={"uid": UIDS})
    through_verl = verls(data, "macredit_rloo", config=config).batch["advantages"]
    data = DataProto.from_dict(tensors=batch(), non_tensors={"uid": UIDS})
    own = bridge.compute_advantage(data, "rloo", config=config).batch["advantages"]  # not ours: verl's own
    torch.testing.assert_close(through_verl, own, rtol=1e-5, atol=1e-5)

    mask, rewards = torch.ones(5, 1), torch.tensor([[1.0], [1.0], [1.0], [0.0], [0.0]])
    data = DataProto.from_dict({"token_level_rewards": rewards, "response_mask": mask}, non_tensors=two_agents())
    ours = bridge.compute_advantage(data, "macredit_dr_mas").batch
    assert ours["advantages"][0, 0] == pytest.approx(1.0, rel=1e-5)
    assert torch.equal(ours["advantages"], ours["returns"])


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("balanced", "algorithm.macredit is 'balanced'; expected a table"),
        ({"settings": [1]}, r"the settings of dr_mas are \[1\]; expected names with values"),
        ({"preset": None}, "method 'dr_mas' has no preset None"),
    ],
)
def test_what_is_no_table_is_named(estimator: Any, table: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        estimator("macredit_dr_mas")(**batch(), index=UIDS, config={"macredit": table})


def test_a_batch_without_groups_is_named(estimator: Any) -> None:
    with pytest.raises(UserError, match="no 'uid'"):
        estimator("macredit_grpo")(**batch())
