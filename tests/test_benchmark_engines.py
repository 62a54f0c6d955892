"""The engines benchmark: what its prefix cache saves, what replays may cost, and that a missed target is told."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from macredit.agents import make_policy
from macredit.envs import make_env
from macredit.ledger import Ledger
from macredit.policy import Chat, Request, Said
from macredit.seeds import Key

pytest.importorskip("torch")


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return importlib.import_module("engines")


def words(request: Request) -> tuple[int, ...]:
    return tuple(map(len, request.prompt.split()))


def test_a_prefix_is_computed_once_in_whole_blocks(engines: Any) -> None:
    policy = engines.Counting(make_policy({"kind": "scripted", "style": "silent"}), words)

    def computed(prompt: str) -> int:
        ledger = Ledger()
        policy.submit([(0, Request("a", (Chat("user", prompt),), Key(0, "t", 0)))])
        ((_, said),) = policy.collect()
        assert isinstance(said, Said)
        ledger.charge(said)
        return ledger.prompt_tokens

    assert computed("w " * 40) == 40
    assert computed("w " * 40 + "x x") == 42 - 32  # of 40 known tokens, two blocks of 16
    assert computed("xyz " + "w " * 40) == 41  # nothing begins alike


def test_counterfactuals_cost_less_than_naive_re_runs(engines: Any) -> None:
    ours, naive = engines.replays(make_env("search_qa_v0"), "c3", words, tasks=1, group=4)
    assert 0 < ours.calls < naive.calls
    assert 0 < ours.prompt_tokens <= naive.prompt_tokens


@pytest.mark.parametrize(
    ("share", "handed", "calls", "strict", "missed"),
    [
        (0.05, 0.05, 9, True, []),
        (0.06, 0.06, 9, False, []),  # a busy machine may be to blame
        (0.06, 0.05, 9, True, ["time outside the engine"]),
        (0.05, 0.06, 9, True, ["hand-over of three adapters, of a step"]),
        (0.05, 0.05, 11, False, ["c3 on search_qa_v0: calls"]),
    ],
)
def test_a_missed_target_ends_with_status_1(
    engines: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any,
    share: float, handed: float, calls: int, strict: bool, missed: list[str],
) -> None:  # fmt: skip
    def replays(env: Any, method: str, _: Any) -> tuple[Ledger, Ledger]:
        odd = (env.name, method) == ("search_qa_v0", "c3")
        return Ledger(calls=calls if odd else 9), Ledger(calls=10)

    monkeypatch.setattr(engines, "outside", lambda *_: (share, 1.1))
    monkeypatch.setattr(engines, "handed_over", lambda *_: handed)
    monkeypatch.setattr(engines, "replays", replays)
    assert engines.main(["--strict"] * strict) == int(bool(missed))
    told = capsys.readouterr().err.splitlines()
    assert [line.removeprefix("missed: ").split("  ")[0] for line in told] == missed
