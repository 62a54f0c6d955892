"""The front door: names, presets and settings, from Python values and from command-line text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from macredit.credit import METHODS, credit, resolve, settings_dict
from macredit.credit.settings import settings_from
from macredit.episode import episode_from_json
from macredit.errors import UserError
from macredit.rows import rows_of


@dataclass(frozen=True, slots=True)
class Sample:
    kind: Literal["a", "b"] = "a"
    order: Literal[0, 1] = 0
    count: int = 1
    size: float = 0.5
    on: bool = False
    name: str = ""


def test_text_is_read_as_the_type_of_its_field() -> None:
    given = {"kind": "b", "order": "1", "count": "3", "size": "1e-3", "on": "true", "name": "x"}
    assert settings_from(Sample, "sample", given) == Sample("b", 1, 3, 0.001, True, "x")
    assert settings_from(Sample, "sample", {"size": 2, "on": True}) == Sample(size=2.0, on=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cuont": 1}, "unknown setting of sample 'cuont'.*Did you mean 'count'"),
        ({"kind": "c"}, "'kind' of sample is 'c'; expected one of a, b"),
        ({"order": True}, "is True; expected one of 0, 1"),
        ({"count": "1.5"}, "'count' of sample is '1.5'; expected an integer"),
        ({"count": True}, "expected an integer"),
        ({"size": "nan"}, "expected a finite number"),
        ({"size": None}, "expected a finite number"),
        ({"on": "yes"}, "expected true or false"),
        ({"on": 1}, "expected true or false"),
        ({"name": 1}, "expected text"),
    ],
)
def test_settings_that_cannot_be_meant(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        settings_from(Sample, "sample", given)


@pytest.mark.parametrize(
    ("method", "preset", "settings", "message"),
    [
        ("dr_maz", "paper", {}, "unknown method 'dr_maz'.*Did you mean 'dr_mas'"),
        ("grpo", "balanced", {}, "method 'grpo' has no preset 'balanced'; expected one of paper, code"),
        ("dr_mas", "best", {}, "expected one of paper, code, balanced"),
        ("sharp", "code", {}, "method 'sharp' has no preset 'code'; expected one of paper"),
        ("difference", "paper", {"eps": 1}, "difference has no settings"),
        ("c3", "code", {"variant": "value"}, "expected one of reward_only, value_only, value_assisted"),
        ("c3", "paper", {"alternatives": 1}, "expected at least 2"),
        ("m_grpo", "paper", {"depth": 0}, "expected at least 1"),
    ],
)
def test_what_the_front_door_refuses(method: str, preset: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        resolve(method, preset, settings)


def test_presets_are_pinned() -> None:
    presets = {name: set(method.presets) for name, method in METHODS.items()}
    assert presets == {
        "grpo": {"paper", "code"}, "rloo": {"paper", "code"}, "dr_mas": {"paper", "code", "balanced"},
        "m_grpo": {"paper"}, "sharp": {"paper"}, "c3": {"paper", "code"}, "difference": {"paper"}, "shapley": {"paper"},
        "banzhaf": {"paper"}, "owen": {"paper"}, "myerson": {"paper"}, "position": {"paper"},
    }  # fmt: skip
    assert settings_dict(resolve("dr_mas", "code")[1]) == {
        "member": "row", "centre_by": "agent", "scale_by": "agent", "scale": "std", "ddof": 1, "eps": 1e-6,
        "single": "raw", "invalid_penalty": 0.0,
    }  # fmt: skip
    assert settings_dict(resolve("sharp")[1]) == {
        "marginal": "loo", "counterfactual": "rerun", "budget": 0, "lam": 1.0, "alpha": 0.9, "beta": 0.9, "gamma": 0.1,
        "eps": 1e-6, "ddof": 0,
    }  # fmt: skip
    assert settings_dict(resolve("m_grpo")[1]) == {
        "align": "duplicate", "depth": 8, "format_weight": 0.1, "expert_weight": 0.5, "eps": 1e-6, "seed": 0,
    }  # fmt: skip


def test_rows_are_taken_as_they_are_unless_there_is_a_penalty() -> None:
    told = {"id": "e", "task": "t", "reward": 1.0, "turns": [{"agent": "a", "text": "x", "valid": False}]}
    rows = rows_of([episode_from_json(told)])
    assert credit(rows, "grpo").rows is rows
    assert credit(rows, "grpo", settings={"invalid_penalty": 0.25}).credit[0] == 0.75


def test_every_setting_is_documented() -> None:
    for method in METHODS.values():
        source = __import__("inspect").getsource(method.settings)
        for field in settings_dict(method.settings()):
            after = source.split(f"    {field}:", 1)[1].splitlines()[1]
            assert after.strip().startswith('"""'), f"{method.name}.{field}"
