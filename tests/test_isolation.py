import subprocess
import sys

import numpy as np
import pytest

from macredit.agents import HF, make_policies
from macredit.learn import Learner, LearnerConfig, TrainRow
from macredit.policy import Chat, Request
from macredit.seeds import Key


def test_importing_the_learners_imports_no_torch() -> None:
    code = "import sys, macredit.learn, macredit.agents; sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_an_update_of_one_leaves_the_others_bit_identical(lora: dict[str, int] | None) -> None:
    torch = pytest.importorskip("torch")
    spec = {"kind": "hf", "model": "tiny", "lora": lora, "max_tokens": 4}
    policies = make_policies({"a": spec, "b": spec})
    a, b = policies["a"], policies["b"]
    assert isinstance(a, HF)
    assert isinstance(b, HF)
    ids = torch.tensor([[1, 2, 3, 4]])

    def logits(policy: HF) -> np.ndarray:
        policy.activate()
        with torch.no_grad():
            return np.asarray(policy.module(input_ids=ids).logits.numpy())

    request = Request("x", (Chat("user", "hello"),), Key(0, "t"))
    learners = Learner(a), Learner(b, LearnerConfig(weight_decay=0.1, kl=0.1))
    for learner in learners:  # both have an optimiser with moments
        learner.update([row_of(learner.policy, request)])
    before, state, own = logits(a), a.state(), logits(b)
    learners[1].update([row_of(b, request)])
    assert np.array_equal(logits(a), before)
    assert not np.array_equal(logits(b), own)
    assert all(np.array_equal(tensor, a.state().tensors[name]) for name, tensor in state.tensors.items())
    assert a.state().scalars == state.scalars


def row_of(policy: object, request: Request) -> TrainRow:
    assert isinstance(policy, HF)
    said = policy.say([request])[0]
    assert said.prompt_ids is not None
    assert said.token_ids is not None
    ids = np.array(said.prompt_ids + said.token_ids)
    mask = np.arange(len(ids)) >= len(said.prompt_ids)
    logprob = np.zeros(len(ids))
    logprob[mask] = said.logprobs
    return TrainRow(ids, mask, logprob, 1.0, 1.0, 0)
