from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from macredit.agents import make_policy
from macredit.learn import Learner, LearnerConfig, TrainRow
from macredit.learn.correction import Correction, correct, mismatch
from macredit.policy import Chat, Request
from macredit.seeds import Key

LOG2 = float(np.log(2))


def row(logprob: list[float], sequence: int = 0) -> TrainRow:
    """Two prompt ids, then sampled ones."""
    ids = np.arange(2 + len(logprob))
    return TrainRow(ids, ids >= 2, np.array([0, 0, *logprob]), 1.0, 1.0, sequence)


def test_mismatch_by_hand() -> None:
    found = mismatch(np.array([-1.0, -2 + LOG2, -3 - LOG2]), np.array([-1.0, -2, -3]))
    # log-ratios 0, log 2, −log 2: k3 is 0, 2 − 1 − log 2 and 1/2 − 1 + log 2, together 1/2
    assert found == pytest.approx({"mismatch_mean": 2 * LOG2 / 3, "mismatch_max": LOG2, "mismatch_k3": 0.5 / 3})
    assert mismatch(np.zeros(0), np.zeros(0)) == {}
    assert np.isfinite(list(mismatch(np.array([0.0]), np.array([-1e9])).values())).all()


def test_weights_by_hand() -> None:
    rows = [row([-1.0, -1.0]), row([-2.0]), row([-1.0], sequence=1)]
    before = [np.array([0, 0, LOG2 - 1, -1 - 2 * LOG2]), np.array([0, 0, -2 + 3 * LOG2]), np.array([0, 0, -1.0])]
    token, cut = correct(rows, before, "token", 4.0)  # ratios 2, 1/4; 8, held at 4; 1
    assert [list(one.correction[2:]) for one in token if one.correction is not None] == [
        pytest.approx([2, 0.25]), pytest.approx([4]), [1.0]
    ]  # fmt: skip
    assert cut == 0.25
    whole, cut = correct(rows, before, "sequence", 3.0)  # products 2 · 1/4 · 8 = 4, held at 3; 1
    assert [list(one.correction[2:]) for one in whole if one.correction is not None] == [[3, 3], [3], [1.0]]
    assert cut == 0.75
    assert all(one.logprob is logp for one, logp in zip(token, before, strict=True))


SPECS: dict[str, dict[str, Any]] = {
    "hf": {"kind": "hf", "model": "tiny", "max_tokens": 4},
    "table": {"kind": "table", "replies": ["x", "y", "z"]},
}


def sampled(learner: Learner) -> list[TrainRow]:
    """Rows of two a sequence, of both signs and one without a gradient, as the learner itself scores them."""
    requests = [Request("a", (Chat("user", "ask" * (g % 3)),), Key(0, "t", g)) for g in range(7)]
    rows = []
    for g, said in enumerate(learner.policy.say(requests)):  # type: ignore[attr-defined]
        ids = np.array(said.prompt_ids + said.token_ids)
        mask = np.arange(len(ids)) >= len(said.prompt_ids)
        rows.append(TrainRow(ids, mask, np.zeros(len(ids)), (-1.0) ** g * (g % 6), 1.0, g // 2))
    return [replace(row, logprob=logp) for row, logp in zip(rows, learner.policy.logprobs(rows), strict=True)]


@pytest.mark.parametrize("kind", list(SPECS))
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_learner_that_is_its_own_behaviour_is_not_corrected(kind: str, level: Correction) -> None:
    after = []
    for correction in ("none", level):
        config = LearnerConfig(correction=correction, epochs=2, minibatches=2)
        learner = Learner(make_policy(SPECS[kind], name="p"), config)
        metrics = learner.update(sampled(learner))
        assert {metrics[f"mismatch_{what}"] for what in ("mean", "max", "k3")} == {0.0}
        after.append(learner.policy.state().tensors)
    assert after[0].keys() == after[1].keys()
    assert all(np.array_equal(after[0][key], after[1][key]) for key in after[0])


def test_a_stale_behaviour_is_measured_before_the_update_and_corrected() -> None:
    config = LearnerConfig(correction="token", correction_cap=1.5, epochs=3, minibatches=2)
    learner, plain = (
        Learner(make_policy(SPECS["hf"], name="p"), c) for c in (config, replace(config, correction="none"))
    )
    rows = [replace(row, logprob=row.logprob - row.mask * LOG2) for row in sampled(learner)]  # π / μ = 2 everywhere
    metrics, uncorrected = learner.update(rows), plain.update(rows)
    for shown in (metrics, uncorrected):  # moves of later steps do not count
        assert shown["mismatch_mean"] == pytest.approx(LOG2, abs=1e-6)
        assert shown["mismatch_max"] == pytest.approx(LOG2, abs=1e-6)
        assert shown["mismatch_k3"] == pytest.approx(1 - LOG2, abs=1e-6)
    assert metrics["correction_cut"] == 1.0
    assert metrics["clip_fraction"] < uncorrected["clip_fraction"]  # the ratio starts at 1, not at 2


def test_the_corrected_gradient_is_that_of_weighted_advantages() -> None:
    learner = Learner(make_policy(SPECS["table"], name="p"), LearnerConfig(correction="token", correction_cap=9))
    other = Learner(make_policy(SPECS["table"], name="p"))
    rows = sampled(learner)
    stale = [replace(row, logprob=row.logprob - row.mask * 0.1) for row in rows]
    learner.update(stale)
    other.update([replace(row, advantage=row.advantage * float(np.exp(0.1))) for row in rows])
    ours, theirs = learner.policy.state().tensors, other.policy.state().tensors
    assert all(np.allclose(ours[key], theirs[key], rtol=1e-12) for key in theirs)
