"""A configuration is read strictly; a misspelt name is answered with the nearest known one."""

from typing import Any

import pytest

from macredit.config import MethodConfig, RunConfig, TrainConfig, config_of, learner_config
from macredit.credit import METHODS
from macredit.errors import UserError

ENV = {"name": "coalition_v0"}


def test_what_is_not_said_is_the_default() -> None:
    assert config_of({"env": ENV}) == RunConfig(ENV)
    read = config_of({"env": ENV, "train": {"steps": 3, "success": 1}, "method": {"name": "sharp", "lam": 0.5}})
    assert read.train == TrainConfig(steps=3)
    assert read.method == MethodConfig("sharp", settings={"lam": 0.5})


def test_a_configuration_survives_its_json() -> None:
    read = config_of({"env": ENV, "agents": [{"name": "a", "trainable": False}], "method": {"eps": 0.1}})
    assert config_of({**read.json(), "agents": list(read.json()["agents"])}) == read


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"trian": {}}, "c.toml: unknown section 'trian'.*Did you mean 'train'"),
        ({"train": {"step": 3}}, "c.toml: train: unknown key 'step'.*Did you mean 'steps'"),
        ({"agents": [{"name": "a", "rol": "x"}]}, r"agents\[0\]: unknown key 'rol'.*Did you mean 'role'"),
        ({"method": {"nam": "sharp"}}, "method: unknown key 'nam'.*Did you mean 'name'"),
        ({"method": {"name": "sharp", "prest": "x"}}, "method: unknown key 'prest'.*Did you mean 'preset'"),
        ({"method": {"name": "sharp", "alhpa": 1}}, "method: unknown key 'alhpa'.*Did you mean 'alpha'"),
        ({"method": {"name": "sharp", "member": "row"}}, "method: unknown key 'member'"),
        ({"method": {"absence": "removd"}}, "method.absence: unknown choice 'removd'.*Did you mean 'removed'"),
        ({"train": {"steps": "3"}}, "train.steps: given '3', expected int"),
        ({"train": {"success": "1"}}, "train.success: given '1', expected a finite float"),
        ({"train": 3}, "train: expected a table"),
    ],
)
def test_mistakes_name_the_place_and_the_nearest_name(data: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        config_of({"env": ENV, **data}, "c.toml")


def test_settings_of_a_method_that_a_flag_will_name_may_stand_alone() -> None:
    assert config_of({"env": ENV, "method": {"lam": 0.5}}).method.settings == {"lam": 0.5}


@pytest.mark.parametrize(
    ("method", "aggregate", "ratio"),
    [
        ("dr_mas", "token-mean", "token"),
        ("m_grpo", "seq-mean-token-mean", "sequence-product"),
        ("sharp", "seq-mean-token-mean", "sequence-product"),
        ("c3", "token-mean", "token"),
    ],
)
def test_a_method_brings_its_loss_and_the_user_has_the_last_word(method: str, aggregate: str, ratio: str) -> None:
    learner = learner_config(METHODS[method], {})
    assert (learner.aggregate, learner.ratio, learner.dual_clip) == (aggregate, ratio, 3.0)
    assert (learner.clip_low, learner.clip_high) == (0.2, 0.2)
    assert learner_config(METHODS[method], {"ratio": "sequence-mean"}).ratio == "sequence-mean"
