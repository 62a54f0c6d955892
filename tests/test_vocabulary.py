from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from macredit.learn.vocabulary import of_logits, score

torch.set_num_threads(1)
K, D, V = 37, 8, 50


def example() -> tuple[torch.nn.Linear, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.nn.Linear(D, V), torch.randn(K, D, requires_grad=True), torch.randint(V, (K,))


@pytest.mark.parametrize("chunk", [1, 5, 36, 37, 1000])
def test_chunks_change_neither_values_nor_gradients(chunk: int) -> None:
    found = []
    for size in (chunk, K):
        head, hidden, targets = example()
        logp, entropy = score(head, hidden, targets, 0.7, size)
        (logp * torch.linspace(-1, 2, K)).sum().backward()  # type: ignore[no-untyped-call]
        assert not entropy.requires_grad
        assert hidden.grad is not None
        assert head.weight.grad is not None
        assert head.bias.grad is not None
        found.append([x.detach().numpy() for x in (logp, entropy, hidden.grad, head.weight.grad, head.bias.grad)])
    for one, two in zip(*found, strict=True):
        assert np.allclose(one, two, atol=2e-6)


def test_log_probabilities_and_entropies_are_those_of_softmax() -> None:
    head, hidden, targets = example()
    logp, entropy = score(head, hidden, targets, 0.5, 7)
    p = torch.softmax(head(hidden).double() / 0.5, -1)
    assert torch.allclose(logp.double(), p[torch.arange(K), targets].log(), atol=1e-5)
    assert torch.allclose(entropy.double(), -(p * p.log()).sum(-1), atol=1e-5)


def test_never_more_logits_than_a_chunk_are_alive() -> None:
    """Forward and backward: whatever has V numbers a token is at most ``chunk`` tokens long."""
    head, hidden, targets = example()
    seen: set[int] = set()

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.dim() == 2 and out.shape[1] == V:
                seen.add(len(out))
            return out

    with Watch():  # type: ignore[no-untyped-call]
        score(head, hidden, targets, 1.0, 10)[0].sum().backward()  # type: ignore[no-untyped-call]
    assert seen == {10, 7, D, 1}  # three chunks and a rest; the head's weight, transposed, and its bias


def test_half_precision_logits_are_normalised_in_single() -> None:
    logits = torch.full((1, 4096), 20.0, dtype=torch.bfloat16)
    logp, entropy = of_logits(logits, torch.tensor([3]), 1.0)
    assert logp.dtype == entropy.dtype == torch.float32
    assert logp.item() == pytest.approx(-np.log(4096), rel=1e-6)
