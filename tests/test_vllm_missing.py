"""Where vLLM is not installed, is broken or does not start: who is told what."""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from macredit.agents import make_policy
from macredit.cli import main
from macredit.errors import OutsideError, UserError

pytest.importorskip("torch")

missing = pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")


@missing
@pytest.mark.parametrize(
    "words",
    [
        ["play", "coalition_v0", "--policy", "vllm:tiny", "-n", "1", "-o", "{out}/e.jsonl"],
        ["train", "--env", "coalition_v0", "--model", "tiny", "--engine", "vllm", "-o", "{out}/run"],
        ["train", "--env", "coalition_v0", "--model", "tiny", "--lora", "4", "--engine", "vllm", "-o", "{out}/run"],
    ],
    ids=["play", "train", "adapter"],
)
def test_the_extra_is_named(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word.format(out=tmp_path) for word in words]) == 2
    assert 'pip install "macredit[vllm]"' in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def stands_in(monkeypatch: pytest.MonkeyPatch, on_cpu: bool, error: Exception) -> None:
    """A vLLM that starts no engine."""

    class LLM:
        def __init__(self, *_: Any, **__: Any) -> None:
            raise error

    class Platform:
        def is_cpu(self) -> bool:
            return on_cpu

    vllm, platforms = ModuleType("vllm"), ModuleType("vllm.platforms")
    vars(vllm).update(LLM=LLM, platforms=platforms)
    vars(platforms).update(current_platform=Platform())
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)


LORA = {"kind": "vllm", "model": "tiny", "lora": {"rank": 4}}


@pytest.mark.parametrize(("on_cpu", "space"), [(True, "VLLM_CPU_KVCACHE_SPACE"), (False, "gpu_memory_utilization")])
def test_one_that_does_not_start_says_with_what_and_what_to_lower(
    monkeypatch: pytest.MonkeyPatch, on_cpu: bool, space: str
) -> None:
    stands_in(monkeypatch, on_cpu, RuntimeError("Engine core initialization failed"))
    with pytest.raises(OutsideError) as told:
        make_policy(LORA, name="p")
    assert "did not start with 'tiny' (Engine core initialization failed)" in str(told.value)
    assert all(name in str(told.value) for name in (space, "max_model_len", "max_num_seqs"))
    assert ("gpu_memory_utilization" in str(told.value)) == (not on_cpu)


def test_one_that_refuses_an_option_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    stands_in(monkeypatch, True, TypeError("unexpected keyword argument 'max_model_length'"))
    with pytest.raises(UserError, match=r"does not take 'tiny' with .*'max_lora_rank': 8.*'max_model_length'"):
        make_policy(LORA, name="p")


def test_one_that_is_broken_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    stands_in(monkeypatch, True, RuntimeError())
    monkeypatch.delattr(sys.modules["vllm"], "LLM")
    with pytest.raises(UserError, match="is installed and cannot be imported"):
        make_policy(LORA, name="p")


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        (16, r"lora of policy 'p' was given as 16; expected a table such as \{ rank = 16 \}"),
        ({"rank": "4"}, "lora.rank was given as '4'; expected a whole number of at least 1"),
    ],
)
def test_its_settings_are_checked_before_it_starts(monkeypatch: pytest.MonkeyPatch, lora: Any, message: str) -> None:
    stands_in(monkeypatch, True, RuntimeError())
    with pytest.raises(UserError, match=message):
        make_policy({**LORA, "lora": lora}, name="p")
