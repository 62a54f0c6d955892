from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from macredit.agents import make_policy
from macredit.check import check_env, check_method, check_policy
from macredit.credit import METHODS, Credits, Method
from macredit.env import Message, TeamEnv
from macredit.envs import Relay
from macredit.errors import UserError
from macredit.policy import BatchPolicy, Request, Said
from macredit.rows import Rows
from macredit.team import Team


def failed(results: Sequence[Any]) -> set[str]:
    return {result.name for result in results if not result.ok}


# -- environments with one fault each -------------------------------------------------------------------------------


class Word(TeamEnv):
    """Say anything; the last word is the state."""

    def __init__(self) -> None:
        super().__init__(Team.orchestrated("p", ("a", "b")), max_turns=12)
        self.heard = 0

    def begin(self, rng: np.random.Generator) -> str:
        return str(rng.integers(1000))

    def prompt(self, state: str, agent: str, unread: Sequence[Message]) -> str:
        return f"{state} {super().prompt(state, agent, unread)}"

    def hear(self, state: str, message: Message) -> str:
        return message.text

    def score(self, state: str) -> float:
        return float(len(state))

    def route(self, state: str, agent: str, text: str) -> str | None:
        return "user" if agent == "p" and not text else None


class Forgetful(Word):
    """Counts outside the state."""

    def hear(self, state: str, message: Message) -> str:
        self.heard += 1
        return f"{message.text} {self.heard}"


class Unseeded(Word):
    """Draws the task from elsewhere."""

    def begin(self, rng: np.random.Generator) -> str:
        return str(np.random.default_rng().integers(10**9))


class Grouped(Word):
    """Another task for each member of a group."""

    def begin(self, rng: np.random.Generator) -> str:
        return str(self.key.group)


class Fragile(Word):
    """Breaks on some texts."""

    def hear(self, state: str, message: Message) -> str:
        return message.text.encode("ascii").decode()


class Endless(Word):
    """A silent orchestrator waits for a silent specialist, for ever."""

    def route(self, state: str, agent: str, text: str) -> str | None:
        return "a" if agent == "p" else None


class Bottomless(Word):
    """No finite score."""

    def score(self, state: str) -> float:
        return float("inf")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (Word, set()),
        (Forgetful, {"restore_and_step"}),
        (Unseeded, {"pettingzoo_seed", "rebuild_from_record", "group_faces_one_task"}),
        (Grouped, {"group_faces_one_task"}),
        (Fragile, {"odd_messages"}),
        (Endless, {"silence_ends"}),
        (Bottomless, {"odd_messages", "turn_limit"}),
    ],
)
def test_each_fault_of_an_environment_is_found(env: type[Word], expected: set[str]) -> None:
    results = check_env(env)
    assert failed(results) >= expected
    assert bool(failed(results)) == bool(expected)
    assert all(result.detail for result in results if not result.ok)


# -- policies -------------------------------------------------------------------------------------------------------


class Moody(BatchPolicy):
    """Says how large the batch is."""

    def say(self, batch: Sequence[Request]) -> list[Said]:
        return [Said(str(len(batch))) for _ in batch]


class Miscounting(BatchPolicy):
    """One log-probability too few."""

    def say(self, batch: Sequence[Request]) -> list[Said]:
        return [Said("x", prompt_ids=(1,), token_ids=(1, 2), logprobs=(-1.0,)) for _ in batch]


class Broken(BatchPolicy):
    """Raises."""

    def say(self, batch: Sequence[Request]) -> list[Said]:
        raise RuntimeError("out of memory")


def test_each_fault_of_a_policy_is_found() -> None:
    assert failed(check_policy(Moody("p"))) == {"keyed"}
    assert failed(check_policy(Miscounting("p"))) == {"ids_and_logprobs"}
    assert failed(check_policy(Broken("p"))) == {"keyed", "ids_and_logprobs"}
    assert "out of memory" in check_policy(Broken("p"))[1].detail
    assert failed(check_policy(Moody("p", version=""))) == {"names_itself", "keyed"}


@pytest.mark.parametrize(
    "spec",
    [
        *({"kind": "scripted", "style": style} for style in ("perfect", "noisy", "silent", "stubborn", "random")),
        {"kind": "table", "replies": ["help", "pass"]},
    ],
    ids=str,
)
def test_our_policies_keep_their_promises(spec: dict[str, Any]) -> None:
    assert failed(check_policy(lambda: make_policy(spec, name="p", env=Relay()))) == set()


# -- methods --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_our_methods_keep_their_promises(name: str) -> None:
    results = check_method(name)
    assert failed(results) == set()
    assert {"columns", "left_out", "repeats", "order"} <= {result.name for result in results}


def faulty(name: str, **changes: Any) -> Method:
    """A method whose result is changed afterwards: column → function of (rows, column)."""
    method = METHODS[name]

    def run(rows: Rows, settings: Any, whatif: Any) -> Credits:
        found = method.run(rows, settings, whatif)
        return replace(found, **{column: change(rows, getattr(found, column)) for column, change in changes.items()})

    return replace(method, run=run)


def test_each_fault_of_a_method_is_found() -> None:
    assert failed(check_method(faulty("grpo", advantage=lambda _, a: a + 1))) >= {"centred", "left_out"}
    assert failed(check_method(faulty("grpo", weight=lambda _, w: -w))) == {"columns"}
    assert failed(check_method(faulty("grpo", credit=lambda _, c: c[:-1]))) >= {"columns"}
    by_place = faulty("grpo", advantage=lambda rows, a: np.where(rows.counts, np.arange(len(a)), 0.0))
    assert "order" in failed(check_method(by_place))
    more = faulty("shapley", agents=lambda _, agents: tuple(replace(a, credit=(a.credit or 0) + 1) for a in agents))
    assert failed(check_method(more)) == {"efficiency", "dummy"}
    squared = faulty("difference", credit=lambda _, c: c**2)
    assert failed(check_method(squared)) == {"linearity"}


def test_unknown_methods_are_named() -> None:
    with pytest.raises(UserError, match=r"unknown method 'grop'.*Did you mean 'grpo'"):
        check_method("grop")
