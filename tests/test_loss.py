import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macredit.errors import UserError
from macredit.learn import loss

# The worked example of METHODS section 8: losses [[1,2,3,4],[5,6,·,·]], weights 1, L = 4.
LOSS = np.array([1.0, 2, 3, 4, 5, 6])
SEQUENCE = np.array([0, 0, 0, 0, 1, 1])
ONES = np.ones(6)


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        ("token-mean", 3.5),  # 21 / 6
        ("seq-mean-token-mean", 4.0),  # (2.5 + 5.5) / 2
        ("seq-mean-token-sum", 10.5),  # (10 + 11) / 2
        ("dr-grpo", 2.625),  # 10.5 / 4
        ("seq-mean-token-sum-norm", 5.25),  # 21 / 4
    ],
)
def test_aggregates_of_the_worked_example(aggregate: loss.Aggregate, expected: float) -> None:
    c = loss.coefficients(ONES, SEQUENCE, aggregate, length=4)
    assert c @ LOSS == pytest.approx(expected)
    shifted = loss.coefficients(ONES, np.array([7, 7, 7, 7, -3, -3]), aggregate, length=4)
    assert np.array_equal(c, shifted)  # codes are only names


def test_weights_of_sequences() -> None:
    weight = np.array([1.0, 1, 1, 1, 3, 3])
    mean = loss.coefficients(weight, SEQUENCE, "seq-mean-token-mean")
    assert mean @ LOSS == pytest.approx((2.5 + 3 * 5.5) / 4)
    tokens = loss.coefficients(weight, SEQUENCE, "token-mean")
    assert tokens @ LOSS == pytest.approx((10 + 3 * 11) / (4 + 6))


@given(st.sampled_from(["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "dr-grpo"]))
def test_rows_of_weight_zero_vanish(aggregate: loss.Aggregate) -> None:
    weight = np.array([2.0, 2, 2, 2, 0, 0])
    c = loss.coefficients(weight, SEQUENCE, aggregate, length=4)
    alone = loss.coefficients(weight[:4], SEQUENCE[:4], aggregate, length=4)
    assert np.allclose(c, [*alone, 0, 0])


def test_all_weights_zero_is_zero_and_length_is_asked_for() -> None:
    assert not loss.coefficients(0 * ONES, SEQUENCE).any()
    with pytest.raises(UserError, match="no length L"):
        loss.coefficients(ONES, SEQUENCE, "dr-grpo")
    with pytest.raises(UserError, match="Did you mean 'token-mean'"):
        loss.coefficients(ONES, SEQUENCE, "token_mean")  # type: ignore[arg-type]


def ppo_of(ratio: float, advantage: float, dual_clip: float | None = 3.0, high: float = 0.2) -> tuple[float, float]:
    out = loss.ppo(
        np.log([ratio]), np.zeros(1), np.array([advantage]), np.ones(1), np.zeros(1, dtype=np.int64),
        clip_high=high, dual_clip=dual_clip,
    )  # fmt: skip
    return out.value, float(out.gradient[0])


def test_clipping_of_one_token() -> None:
    assert ppo_of(1.0, 2.0) == pytest.approx((-2.0, -2.0))  # −Aρ, gradient −Aρ
    assert ppo_of(1.1, 2.0) == pytest.approx((-2.2, -2.2))
    assert ppo_of(1.5, 2.0) == pytest.approx((-2.4, 0.0))  # held at 1.2
    assert ppo_of(1.5, 2.0, high=0.6) == pytest.approx((-3.0, -3.0))  # clip-higher lets it go on
    assert ppo_of(0.5, 2.0) == pytest.approx((-1.0, -1.0))  # the pessimistic side is free
    assert ppo_of(0.5, -1.0) == pytest.approx((0.8, 0.0))
    assert ppo_of(2.0, -1.0) == pytest.approx((2.0, 2.0))
    assert ppo_of(5.0, -1.0) == pytest.approx((3.0, 0.0))  # dual clip: at most 3 · 1
    assert ppo_of(5.0, -1.0, dual_clip=None) == pytest.approx((5.0, 5.0))


def test_sequence_ratios() -> None:
    logp, old = np.log([1.1, 1.2]), np.zeros(2)
    parts = (np.ones(2), np.array([0.5, 0.5]), np.zeros(2, dtype=np.int64))
    product = loss.ppo(logp, old, *parts, ratio="sequence-product", clip_high=0.5)
    assert product.value == pytest.approx(-1.32)  # 1.1 · 1.2 for both tokens
    assert product.gradient == pytest.approx([-1.32, -1.32])
    mean = loss.ppo(logp, old, *parts, ratio="sequence-mean", clip_high=0.5)
    assert mean.value == pytest.approx(-np.sqrt(1.32))
    assert mean.gradient == pytest.approx([-np.sqrt(1.32) / 2] * 2)


@given(
    st.integers(0, 2**31),
    st.sampled_from(["token", "sequence-mean", "sequence-product"]),
    st.sampled_from([None, 1.5]),
    st.booleans(),
)
def test_gradients_are_the_slopes_of_the_values(seed: int, ratio: loss.Ratio, dual: float | None, kl: bool) -> None:
    rng = np.random.default_rng(seed)
    k = 7
    sequence = rng.integers(0, 3, k)
    old, advantage, reference = rng.normal(-1, 0.2, k), rng.normal(size=k), rng.normal(-1, 0.5, k)
    logp = old + rng.normal(0, 0.15, k)
    c = loss.coefficients(rng.random(k), sequence, "seq-mean-token-mean")

    def value(at: loss.FloatK) -> loss.Loss:
        if kl:
            return loss.kl_k3(at, reference, c)
        return loss.ppo(at, old, advantage, c, sequence, ratio, 0.1, 0.3, dual)

    h = 1e-6
    slopes = [(value(logp + h * e).value - value(logp - h * e).value) / (2 * h) for e in np.eye(k)]
    assert np.allclose(value(logp).gradient, slopes, atol=1e-5)


def test_same_value_and_gradient_as_autograd_of_the_written_out_loss() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    shape, mask = (3, 5), np.array([[1] * 5, [1] * 3 + [0] * 2, [1] + [0] * 4], dtype=bool)
    old, advantage = rng.normal(-2, 1, shape), np.repeat(rng.normal(size=(3, 1)), 5, 1)
    logp = torch.tensor(old + rng.normal(0, 0.3, shape), requires_grad=True)
    m, a = torch.tensor(mask, dtype=torch.float64), torch.tensor(advantage)
    ratio = torch.exp(logp - torch.tensor(old))
    token = torch.maximum(-a * ratio, -a * ratio.clamp(0.8, 1.28))
    token = torch.where(a < 0, torch.minimum(token, -3 * a), token)
    written = ((token * m).sum(1) / m.sum(1)).mean()
    written.backward()

    sequence = np.repeat(np.arange(3), mask.sum(1))
    c = loss.coefficients(np.ones(9), sequence, "seq-mean-token-mean")
    ours = loss.ppo(logp.detach().numpy()[mask], old[mask], advantage[mask], c, sequence, clip_high=0.28)
    assert ours.value == pytest.approx(written.item())
    assert np.allclose(ours.gradient, logp.grad.numpy()[mask])


def test_k3_and_imitation_by_hand() -> None:
    k3 = loss.kl_k3(np.log([0.5]), np.log([0.25]), np.ones(1))
    assert k3.value == pytest.approx(0.5 + np.log(2) - 1)  # exp(d) − d − 1 with d = log ½
    assert k3.gradient == pytest.approx([0.5])  # 1 − exp(d)
    told = loss.imitate(np.log([0.5, 0.25]), np.array([0.5, 0.5]))
    assert told.value == pytest.approx((np.log(2) + np.log(4)) / 2)
    assert told.gradient == pytest.approx([-0.5, -0.5])


def test_a_huge_ratio_stays_finite() -> None:
    value, gradient = loss.ppo(
        np.array([800.0]), np.zeros(1), -np.ones(1), np.ones(1), np.zeros(1, dtype=np.int64), dual_clip=None
    )[:2]
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
