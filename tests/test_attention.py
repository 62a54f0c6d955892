"""Models of many makes, tiny and random: packed where that is right, and told apart where it is not."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers

from macredit.learn import LearnerConfig, TrainRow
from macredit.learn.attention import why_not_packed
from macredit.learn.scoring import Scorer

torch.set_num_threads(1)

SIZE = {
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1,
}  # fmt: skip
PACKED: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Mistral": {"sliding_window": 7},
    "Qwen2": {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1},
    "Qwen3": {"head_dim": 8},
    "Gemma3Text": {"head_dim": 8, "sliding_window": 7},
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
    "Phi3": {},
    "Cohere": {},  # scales its logits
}
ALONE: dict[str, tuple[dict[str, Any], str]] = {
    "Gemma2": ({"head_dim": 8, "sliding_window": 7}, "its attention uses softcap"),
    "Bloom": ({"n_head": 4}, "takes no positions"),
    "Llama": ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "by the longest row"),
    "Llama4Text": ({"head_dim": 8, "intermediate_size_mlp": 48}, "layers of chunked_attention"),
}


def model(make: str, settings: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{make}Config")(**{**SIZE, **settings})
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def rows() -> list[TrainRow]:
    """A conversation, a fork of it, and something else; longer than every sliding window."""
    rng = np.random.default_rng(0)
    first, second, other = (rng.integers(2, 99, n) for n in (30, 20, 25))
    ids = [first, np.concatenate([first, second]), np.concatenate([first, other]), other]
    masks = [np.arange(len(one)) >= len(one) - 6 for one in ids]
    return [TrainRow(one, mask, np.zeros(len(one)), 1.0, 1.0, 0) for one, mask in zip(ids, masks, strict=True)]


def alone(module: Any, row: TrainRow) -> torch.Tensor:
    ids = torch.tensor(row.ids)[None]
    logp = torch.log_softmax(module(input_ids=ids, use_cache=False).logits[0, :-1], -1)
    return logp[torch.arange(len(row.ids) - 1), ids[0, 1:]][torch.tensor(row.mask[1:])]


def check(module: Any, scorer: Scorer) -> None:
    """Log-probabilities and gradients are those of the rows one by one."""
    slope = torch.linspace(-1, 2, 24)
    expected = torch.cat([alone(module, row) for row in rows()])
    (expected * slope).sum().backward()  # type: ignore[no-untyped-call]
    gradients = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad()
    with scorer.ready(module, LearnerConfig(), gradient=True):
        logp = scorer(module, rows(), 1.0, 10)[0]
        (logp * slope).sum().backward()  # type: ignore[no-untyped-call]
    assert torch.allclose(logp, expected, atol=1e-5)
    assert gradients.keys() == {name for name, p in module.named_parameters() if p.grad is not None}
    for name, p in module.named_parameters():
        if name in gradients:
            assert torch.allclose(p.grad, gradients[name], atol=1e-5 * max(1, float(gradients[name].abs().max())))


@pytest.mark.parametrize("make", PACKED)
def test_packed_equals_one_by_one(make: str) -> None:
    module = model(make, PACKED[make])
    before = module.config._attn_implementation
    assert why_not_packed(module) is None
    if make == "Cohere":
        with pytest.warns(UserWarning, match="all logits of a batch at once"):
            scorer = Scorer(module, "p")
    else:
        scorer = Scorer(module, "p")
    check(module, scorer)
    assert module.config._attn_implementation == before


@pytest.mark.parametrize("make", ALONE)
@pytest.mark.filterwarnings("ignore:policy 'p' computes all logits")
def test_what_cannot_be_packed_is_said_and_right(make: str) -> None:
    settings, why = ALONE[make]
    module = model(make, settings)
    with pytest.warns(UserWarning, match=f"policy 'p' computes its rows one by one, unpacked: .*{why}"):
        scorer = Scorer(module, "p")
    check(module, scorer)


def test_rows_side_by_side_that_change_each_other_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("macredit.learn.attention.Layout.mask", lambda *_: None)
    assert why_not_packed(model("Llama", {})) == "two rows side by side change each other"


def test_a_window_that_attention_is_not_told_is_noticed() -> None:
    module = model("Llama", {})
    module.config.sliding_window = 7
    assert why_not_packed(module) == "it has a sliding window that its attention is not told"
