"""Numbers out of bounds are named before anything runs, wherever they are set."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from macredit.bounds import Within, check_bounds
from macredit.config import learner_config
from macredit.credit import METHODS, resolve
from macredit.errors import UserError


@dataclass(frozen=True, slots=True)
class Sample:
    share: Annotated[float, Within(0, 1)] = 0.5
    count: Annotated[int | None, Within(1)] = None
    free: float = -3.0
    most: float | None = None


def test_both_ends_are_allowed() -> None:
    for given in (Sample(), Sample(0.0, 1), Sample(1.0, 10**9), Sample(free=1e308, most=-1e308)):
        check_bounds(given)
    assert (str(Within(0)), str(Within(0, 1))) == ("at least 0", "0 to 1")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Sample(share=-0.1), "share is -0.1; expected 0 to 1"),
        (Sample(share=1.5), "share is 1.5; expected 0 to 1"),
        (Sample(share=float("nan")), "share is nan; expected 0 to 1"),
        (Sample(count=0), "count is 0; expected at least 1"),
        (Sample(free=float("nan")), "free is nan; expected a finite number"),
        (Sample(free=float("-inf")), "free is -inf; expected a finite number"),
        (Sample(most=float("inf")), "most is inf; expected a finite number"),
    ],
)
def test_a_number_out_of_bounds_is_named(given: Sample, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_bounds(given)


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("grpo", {"eps": "-1"}, "setting 'eps' of grpo is -1.0; expected at least 0"),
        ("rloo", {"invalid_penalty": -0.5}, "setting 'invalid_penalty' of rloo is -0.5"),
        ("m_grpo", {"depth": 0}, "setting 'depth' of m_grpo is 0; expected at least 1"),
        ("m_grpo", {"format_weight": 1.5}, "expected 0 to 1"),
        ("sharp", {"alpha": -1}, "setting 'alpha' of sharp is -1.0; expected at least 0"),
        ("c3", {"alternatives": 1}, "setting 'alternatives' of c3 is 1; expected at least 2"),
    ],
)
def test_impossible_settings_of_methods(method: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        resolve(method, "paper", settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clip_low": -0.2}, "clip_low is -0.2; expected 0 to 1"),
        ({"clip_high": -0.2}, "clip_high is -0.2; expected at least 0"),
        ({"rate": -1.0}, "rate is -1.0; expected at least 0"),
        ({"epochs": 0}, "epochs is 0; expected at least 1"),
        ({"clip_lo": 0.1}, r"\[learner\]: unknown key 'clip_lo'.*Did you mean 'clip_low'"),
        ({"aggregate": "token"}, r"\[learner\]: aggregate: unknown choice 'token'.*Did you mean 'token-mean'"),
    ],
)
def test_impossible_settings_of_learners(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        learner_config(METHODS["grpo"], settings)


def test_the_defaults_of_every_method_are_within_bounds() -> None:
    for name, method in METHODS.items():
        for preset in method.presets:
            check_bounds(resolve(name, preset)[1])
        check_bounds(learner_config(method, {}))
