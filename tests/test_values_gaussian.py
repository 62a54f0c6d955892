"""The Gaussian process: its parts against brute force, its values against exact ones, its errors against the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from macredit.rows import FloatN
from macredit.values import choosing, gaussian, odd, prior_kernels, stratified
from macredit.values.answers import BoolCN, Plan
from macredit.values.estimation import estimate
from macredit.values.exact import shapley, shapley_batch
from macredit.values.odd_kernels import Additive, Joint, Part, Product, White
from macredit.values.process import JITTER, Data, Posterior, Prior
from macredit.values.ridge import Ridge, Size
from macredit.values.tuning import minus_log_likelihood

N = 6
ALL = np.where(np.arange(2**N)[:, None] >> np.arange(N) & 1, 1.0, -1.0)
RNG = np.random.default_rng(0)
PARTS: list[Part] = [Additive(N), Size(N), Product(N, 1.0), Joint(N, 2.0), White(N), Ridge(RNG.normal(size=N))]
HALF = ALL[np.arange(3, 31, 3)]


def moved(part: Part) -> FloatN:
    """Parameters a little off their start."""
    return np.asarray(part.start + 0.3 * np.random.default_rng(1).normal(size=len(part.start)))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_parts_against_brute_force(part: Part) -> None:
    theta = moved(part)
    covariance = part.matrix(theta, ALL, ALL)
    np.testing.assert_allclose(covariance, -covariance[::-1], atol=1e-12)  # odd: a complement turns the sign
    np.testing.assert_allclose(part.diagonal(theta, ALL), np.diagonal(covariance), atol=1e-12)
    assert np.linalg.eigvalsh(covariance).min() > -1e-12
    phi = shapley_batch(np.eye(2**N))  # float[n, 2^n]: phi of every game that is 1 at one coalition
    np.testing.assert_allclose(part.readout(theta, ALL), covariance @ phi.T, atol=1e-12)
    np.testing.assert_allclose(part.variance(theta), np.diagonal(phi @ covariance @ phi.T), atol=1e-12)


def covariance(part: Part, theta: FloatN, x: FloatN) -> FloatN:
    """Compiled, of one part and answers without noise."""
    prior, data = alone(part, theta, x)
    return prior.covariance(data)


def slopes(part: Part, theta: FloatN, x: FloatN, weight: FloatN) -> FloatN:
    """Compiled, likewise."""
    prior, data = alone(part, theta, x)
    return prior_kernels.slopes(*prior.arguments(data), weight)[:-1]


def alone(part: Part, theta: FloatN, x: FloatN) -> tuple[Prior, Data]:
    """A prior of one part, and rows whose answers carry no noise."""
    return Prior([part], np.append(theta, 0.0)), Data(x, np.zeros(len(x)), np.zeros(len(x)), 1.0)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_compiled_covariances_are_those_of_numpy(part: Part) -> None:
    theta = moved(part)
    expected = part.matrix(theta, HALF, HALF)
    lower = covariance(part, theta, HALF) - JITTER * np.eye(len(HALF))
    np.testing.assert_allclose(np.tril(lower), np.tril(expected), atol=1e-12)
    found = Prior([part], np.append(theta, 0.0)).between(ALL, HALF)
    np.testing.assert_allclose(found, part.matrix(theta, ALL, HALF), atol=1e-12)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_slopes_against_differences(part: Part) -> None:
    theta, weight = moved(part), np.random.default_rng(2).normal(size=(len(HALF), len(HALF)))
    weight = weight + weight.T

    def total(at: FloatN) -> float:
        return float((weight * part.matrix(at, HALF, HALF)).sum())

    steps = 1e-5 * np.eye(len(theta))
    expected = [(total(theta + step) - total(theta - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(slopes(part, theta, HALF, weight), np.array(expected), atol=1e-7)


def test_a_prior_of_all_parts_and_noise_is_the_sum_of_them() -> None:
    theta = np.concatenate([*map(moved, PARTS), [0.4]])
    prior, noise = Prior(PARTS, theta), RNG.random(len(HALF))
    expected = sum(part.matrix(moved(part), HALF, HALF) for part in PARTS)
    np.testing.assert_allclose(prior.between(HALF, HALF), expected, atol=1e-12)
    expected += np.diag(np.exp(0.4) * noise + JITTER)
    data = Data(HALF, RNG.normal(size=len(HALF)), noise, 1.0)
    np.testing.assert_allclose(np.tril(prior.covariance(data)), np.tril(expected), atol=1e-12)
    value, slope = minus_log_likelihood(prior, data)
    assert value == pytest.approx(
        0.5 * data.odd @ np.linalg.solve(expected, data.odd) + 0.5 * np.linalg.slogdet(expected)[1]
    )
    steps = 1e-5 * np.eye(len(theta))
    sides = [[minus_log_likelihood(Prior(PARTS, theta + way * step), data)[0] for way in (1, -1)] for step in steps]
    np.testing.assert_allclose(slope, [(above - below) / 2e-5 for above, below in sides], atol=1e-5)


@pytest.mark.parametrize("part", [Product(400, 1.0), Joint(400, 200.0)], ids=lambda part: type(part).__name__)
def test_hundreds_of_relevant_players_overflow_nothing(part: Part) -> None:
    theta = np.concatenate([[0.0, 3.0], np.full(400, 2.0)])  # Π (1 + r) is e^2000
    x = np.vstack([np.ones(400), rows := np.where(RNG.random((3, 400)) < 0.5, 1.0, -1.0)])
    assert part.matrix(theta, x, x)[0, 0] == pytest.approx(1)  # K(N, N) = a = e^0
    found = covariance(part, theta, x)
    assert found[0, 0] == pytest.approx(1)
    assert slopes(part, theta, x[:1], np.ones((1, 1)))[0] == pytest.approx(1)  # of a in log a
    for each in (found, slopes(part, theta, x, np.ones((4, 4))), part.readout(theta, rows), part.variance(theta)):
        assert np.isfinite(each).all()


def test_the_likelihood_is_the_gaussian_one() -> None:
    # one part, one row: u = 2 with variance e^0/6 · 6 = 1 and jitter: ½ · 4 + ½ log 1 = 2
    prior = Prior([Additive(N)], np.array([0.0, -7.0]))
    data = Data(np.ones((1, N)), np.array([2.0]), np.zeros(1), 1.0)
    value, slope = minus_log_likelihood(prior, data)
    assert value == pytest.approx(2, abs=1e-6)
    # d/dθ of ½ · 4 / e^θ + ½ θ at 0: −2 + ½
    np.testing.assert_allclose(slope, [-1.5, 0], atol=1e-6)


def test_a_covariance_that_is_none_ends_a_fit() -> None:
    data = Data(np.ones((1, N)), np.array([2.0]), np.array([-5.0]), 1.0)
    with pytest.raises(np.linalg.LinAlgError, match="row 1 of a covariance"):
        minus_log_likelihood(Prior([Additive(N)], np.zeros(2)), data)


def random_game(n: int, seed: int) -> tuple[Callable[[BoolCN], Any], FloatN]:
    """Twenty groups of up to five players that add something when complete; phi shares it equally."""
    rng = np.random.default_rng(seed)
    size = rng.integers(1, 6, 20)
    group = np.array([rng.permutation(n) < s for s in size])
    bonus = rng.normal(size=20)
    values = (bonus / size) @ group
    return lambda coalitions: (coalitions.astype(int) @ group.T == size) @ bonus, values


@pytest.mark.parametrize(("n", "budget", "error"), [(8, 60, 0.1), (8, 200, 0.01), (20, 300, 0.1)])
def test_close_to_the_truth(n: int, budget: int, error: float) -> None:
    game, values = random_game(n, 0)
    found = estimate(game, n, budget)
    assert found.method == "gaussian"
    assert found.evaluations == budget
    assert ((found.values - values) ** 2).sum() < error * (values**2).sum()
    assert found.values.sum() == pytest.approx(values.sum())


@pytest.mark.slow
def test_better_than_regression_and_permutations() -> None:
    ratio: dict[str, list[float]] = {"leverage": [], "permutation": []}
    for seed in range(8):
        game, values = random_game(8, seed)
        error = {m: float(((estimate(game, 8, 80, seed, method=m).values - values) ** 2).sum()) for m in ratio}
        ours = float(((estimate(game, 8, 80, seed).values - values) ** 2).sum())
        for method in ratio:
            ratio[method].append(np.log(error[method] / ours))
    assert np.mean(ratio["leverage"]) > np.log(5)
    assert np.mean(ratio["permutation"]) > np.log(10)


def test_a_curve_over_a_sum_is_recognised() -> None:
    weight = np.array([3.0, 1, 4, 1, 5, 9, 2, 6, 5, 3]) / 8

    def curve(coalitions: BoolCN) -> Any:
        return 1 / (1 + np.exp(-(coalitions @ weight - 2.5)))

    exact = shapley(curve(np.arange(1024)[:, None] >> np.arange(10) & 1 == 1))
    found = estimate(curve, 10, 100)
    np.testing.assert_allclose(found.values, exact, atol=1e-3)


def test_a_vote_with_few_answers_draws_values_together() -> None:
    # 49 answers of 0, ½ or 1 for 30 weights: many curves explain them all, and few of those are near the truth
    errors = []
    for seed in range(3):
        weight = np.random.default_rng(seed).integers(1, 21, 30)
        found = estimate(lambda c: c @ weight >= 0.6 * weight.sum(), 30, 100, seed)  # noqa: B023
        alike = weight / weight.sum()  # values of a vote of many players are near their weights' shares
        errors.append(float(((found.values - alike) ** 2).sum() / (alike**2).sum()))
    assert np.mean(errors) < 1


@pytest.mark.parametrize("n", [12, 64])
def test_exact_for_additive_games(n: int) -> None:
    worth = np.random.default_rng(n).normal(size=n)
    found = estimate(lambda c: c @ worth - 7, n, 1000, method="gaussian")
    np.testing.assert_allclose(found.values, worth, atol=1e-9)


@pytest.mark.slow
def test_intervals_cover() -> None:
    inside = []
    for seed in range(40):
        game, values = random_game(7, seed)
        low, high = estimate(game, 7, 50, seed).interval().T
        inside.append((low <= values) & (values <= high))
    assert 0.9 <= np.mean(inside) <= 0.99


@pytest.mark.slow
def test_intervals_cover_in_votes() -> None:
    inside = []
    for seed in range(30):
        weight = np.random.default_rng(seed).integers(1, 21, 7)
        bar = 0.6 * weight.sum()

        def vote(coalitions: BoolCN) -> Any:
            return coalitions @ weight >= bar  # noqa: B023

        exact = shapley(np.asarray(vote(np.arange(128)[:, None] >> np.arange(7) & 1 == 1), float))
        low, high = estimate(vote, 7, 50, seed).interval().T
        inside.append((low <= exact + 1e-9) & (exact - 1e-9 <= high))
    assert np.mean(inside) >= 0.93


def test_noise_is_part_of_the_error() -> None:
    errors, stderr = [], []
    for seed in range(20):
        game, values = random_game(6, seed)
        rng = np.random.default_rng(seed)
        found = estimate(lambda c: game(c) + rng.normal(0, 0.5, len(c)), 6, 300, method="gaussian", noise=True)  # noqa: B023
        errors.append(found.values - values)
        stderr.append(found.stderr)
    assert np.std(errors) == pytest.approx(np.sqrt(np.mean(np.square(stderr))), rel=0.4)


@pytest.mark.slow
def test_pairs_that_are_not_conditioned_on_correct_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaussian, "MOST_ROWS", 40)
    monkeypatch.setattr(gaussian, "TUNING_ROWS", 40)  # the prior is never fitted to more than it is conditioned on
    monkeypatch.setattr(choosing, "MOST_CHOSEN", 0)  # as many pairs are always drawn
    missed = np.zeros(2)
    for seed in range(4):
        game, values = random_game(10, seed)
        some, more = (estimate(game, 10, budget, method="gaussian") for budget in (82, 800))
        missed += [((found.values - values) ** 2).sum() for found in (some, more)]
        assert (more.stderr < some.stderr).all()
    assert missed[1] < 0.2 * missed[0]


def test_posterior_is_blind_to_the_size_of_its_blocks() -> None:
    prior = Prior([Additive(N)], np.array([0.0, -7.0]))
    data = Data(HALF, HALF[:, 0], np.zeros(len(HALF)), 1.0)
    posterior = Posterior(prior, data)
    np.testing.assert_allclose(posterior.at(HALF), HALF[:, 0], atol=1e-6)
    np.testing.assert_allclose(posterior.values, [2, 0, 0, 0, 0, 0], atol=1e-6)
    assert posterior.variance.max() < 1e-6


def test_pairs_hold_the_odd_part() -> None:
    answers = stratified.batch(Plan(4, 16), gaussian_answers(4))
    assert len(answers) == 16
    pairs = odd.pairs_of(Plan(4, 16), gaussian_answers(4, answers)).interleaved(0)
    assert len(pairs.odd) == 7
    # v = |S|²: u(S) = (s² − (4 − s)²) / 2 = 4 s − 8
    np.testing.assert_allclose(pairs.odd, 4 * pairs.size - 8)
    np.testing.assert_allclose(pairs.share, 1)
    assert pairs.total == 16


def gaussian_answers(n: int, rows: BoolCN | None = None) -> Any:
    from macredit.values.answers import answers_of, nothing

    rows = nothing(n) if rows is None else rows
    return answers_of(rows, rows.sum(axis=1) ** 2.0)
