"""TRL's GRPOTrainer with our team: what a rollout function returns, and real training on the tiny model."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from macredit.agents import make_policies
from macredit.envs import make_env
from macredit.errors import UserError
from macredit.integrations.trl import TeamRollout
from macredit.rollout import World, play, tasks_of

TINY = {"kind": "hf", "model": "tiny"}
HELP = {"kind": "scripted", "style": "perfect"}
TRAINER = SimpleNamespace(accelerator=SimpleNamespace(num_processes=1), state=SimpleNamespace(global_step=0))
"""What a rollout function reads of a trainer."""


def world(name: str = "coalition_v0", agent: str = "a", **args: Any) -> World:
    env = make_env(name, **args)
    return World(env, make_policies({who: TINY if who == agent else HELP for who in env.team.names}, env))


def test_a_sample_is_the_rollout_as_the_agent_saw_it() -> None:
    pytest.importorskip("torch")
    bridge = TeamRollout(world("solve_verify_v0", "planner", dataset="chain_sum"), "planner")
    got = bridge(["t0", "t0", "t1"], TRAINER)
    assert set(got) == {"prompt_ids", "completion_ids", "logprobs", "env_mask", "credit"}
    for prompt, ids, logprobs, mask in zip(
        got["prompt_ids"], got["completion_ids"], got["logprobs"], got["env_mask"], strict=True
    ):
        assert len(ids) == len(logprobs) == len(mask) > 0
        assert prompt
        assert all((logprob == 0) == (not own) for logprob, own in zip(logprobs, mask, strict=True))
    assert got["prompt_ids"][0] == got["prompt_ids"][1] != got["prompt_ids"][2]
    assert got["completion_ids"][0] != got["completion_ids"][1]


def test_an_agent_that_speaks_again_is_masked_in_between() -> None:
    pytest.importorskip("torch")
    rolled = world("solve_verify_v0", "solver", dataset="chain_sum", loops=2)
    episodes_of = TeamRollout(rolled, "solver")
    got = episodes_of(["t0"] * 4, TRAINER)
    twice = [mask for mask in got["env_mask"] if 0 in mask]
    assert twice, "no rollout had the solver speak twice"
    assert all(mask[0] == 1 and mask[-1] == 1 for mask in twice)


def test_a_task_that_comes_again_has_new_members() -> None:
    pytest.importorskip("torch")
    bridge = TeamRollout(world(), "a")
    first, again = bridge(["t0"], TRAINER), bridge(["t0"], TRAINER)
    assert first["prompt_ids"] == again["prompt_ids"]
    assert first["completion_ids"] != again["completion_ids"]


def test_a_rollout_without_the_agent_has_no_reward() -> None:
    pytest.importorskip("torch")
    bridge = TeamRollout(world(preset="never_invoked", agent="c"), "c")
    got = bridge(["t0"], TRAINER)
    assert got["credit"] == [None]
    assert got["env_mask"] == [[0]]


def test_credit_is_the_methods_total() -> None:
    """AND of a and b: silencing a costs exactly what was earned; c adds nothing."""
    pytest.importorskip("torch")
    own = world(preset="free_rider", agent="a")
    got = TeamRollout(own, "a", method="difference")(["t0"] * 8, TRAINER)
    assert set(got["credit"]) <= {0.0, 0.6}  # the worth of a is 0.6 where it helped


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"agent": "d"}, "unknown agent 'd'"),
        ({"agent": "b"}, "expected an hf policy"),
        ({"agent": "a", "method": "c3"}, "needs a tree"),
    ],
)
def test_wrong_input_is_named(change: dict[str, Any], said: str) -> None:
    pytest.importorskip("torch")
    with pytest.raises(UserError, match=said):
        TeamRollout(world(), **change)


def test_an_agent_that_the_method_leaves_out_is_named() -> None:
    pytest.importorskip("torch")
    bridge = TeamRollout(world("solve_verify_v0", "planner", dataset="chain_sum"), "planner", method="shapley")
    with pytest.raises(UserError, match=r"gives agent 'planner' no credit \(always present\)"):
        bridge(["t0"] * 2, TRAINER)


def test_advantages_of_a_group_on_several_processes_are_refused() -> None:
    pytest.importorskip("torch")
    spread = SimpleNamespace(accelerator=SimpleNamespace(num_processes=2), state=TRAINER.state)
    with pytest.raises(UserError, match="spreads over processes"):
        TeamRollout(world(), "a", signal="advantage")(["t0"], spread)


@pytest.mark.integrations
@pytest.mark.filterwarnings("ignore")  # TRL's and its packages' own warnings
@pytest.mark.parametrize(("method", "signal"), [("sharp", "credit"), ("dr_mas", "advantage")])
def test_trl_trains_one_agent_of_the_team(tmp_path: Path, method: str, signal: Any) -> None:
    import trl

    bridge = TeamRollout(world(preset="glove"), "a", method=method, signal=signal)
    args = trl.GRPOConfig(
        output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[], save_strategy="no", disable_tqdm=True,
        per_device_train_batch_size=16, num_generations=8, max_steps=12, logging_steps=1, learning_rate=3e-3,
        scale_rewards="none" if signal == "advantage" else "group", lr_scheduler_type="constant",
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=bridge.policy.module, processing_class=bridge.policy.tokenizer, train_dataset=bridge.dataset(64),
        rollout_func=bridge, reward_funcs=bridge.reward, args=args,
    )  # fmt: skip
    before = [p.detach().clone() for p in bridge.policy.module.parameters()]
    trainer.train()
    assert all((p != old).any() for p, old in zip(bridge.policy.module.parameters(), before, strict=True))
    fresh, trained = (mean_reward(one) for one in (world(preset="glove"), bridge.world))
    assert trained > fresh + 0.2


def mean_reward(of: World) -> float:
    """What a team earns on tasks of its own."""
    return sum(episode.reward or 0.0 for episode in play(of, tasks_of(1, 4, group=8))) / 32
