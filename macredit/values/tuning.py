"""Fitting the prior of a Gaussian process to answers, and what not knowing it adds to the error."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_solve, lapack
from scipy.optimize import minimize

from macredit.rows import FloatN
from macredit.values.odd_kernels import Additive, Joint, Part, Product, White
from macredit.values.process import Data, Posterior, Prior
from macredit.values.ridge import Ridge, Size

TUNING_ROWS = 400
"""Pairs that the prior is fitted to."""
EVIDENCE = 1.4
"""How much more evidence than (n + 2) log R a curve needs; pairwise games of 30 players and 100 answers show 1.32."""
TOLERANCE, COARSE_ROWS = 1e-4, 50
"""Relative gain in the density at which a fit ends; of more than so many answers R, (COARSE_ROWS / R)² times that."""
STEP = 1e-3
"""Of the differences that stand for derivatives in the parameters."""


def tuned(data: Data) -> tuple[Prior, Prior | None]:
    """The better of two priors: what players share and their interactions, and these with a curve over a weighted sum.

    Each has the parameters of highest posterior density. The curve has n + 2 more; it must raise the log-likelihood
    by ``EVIDENCE`` (n + 2) log R, some three times what the Bayesian information criterion asks (Schwarz 1978), because
    weights fitted to few answers explain those alone. Answers of a few levels only bound the weights, so that many
    curves explain them all: there the curve must also, fitted to two thirds of the answers, predict the others better
    than the prior without one, whose parameters are fitted to all.

    Returns:
        The prior and, if it has a curve, the one like it that is fitted to the first two thirds.
    """
    n = data.x.shape[1]
    plain, loss = without_curve(data)
    parts = plain.parts
    bent, lower = maximised([*parts, Ridge(_direction(data))], data)
    if lower + EVIDENCE * (n + 2) * math.log(len(data.odd)) >= loss:
        return plain, None
    some = data.first(first_part(len(data.odd) - 1))
    curve, _ = maximised([*parts, Ridge(_direction(some))], some)
    if data.stepped and _missed(curve, some, data) >= _missed(plain, some, data):
        return plain, None
    return bent, curve


def without_curve(data: Data, tolerance: float = TOLERANCE) -> tuple[Prior, float]:
    """What players share, what each adds, their interactions; see :func:`maximised`."""
    n = data.x.shape[1]
    parts: list[Part] = [Additive(n), Size(n), Product(n, 1.0), Joint(n, 2.0), Joint(n, n / 2)]
    return maximised(parts if data.noisy else [*parts, White(n)], data, tolerance)


def first_part(rows: int) -> int:
    """How many of so many pairs a prior is fitted to that is tested on the others."""
    return 2 * rows // 3


def _missed(prior: Prior, known: Data, data: Data) -> float:
    """Mean squared error at the pairs that are not among the ``known`` first ones."""
    others = slice(len(known.odd) - 1, len(data.odd) - 1)
    return float(np.mean((Posterior(prior, known).at(data.x[others]) - data.odd[others]) ** 2))


def maximised(parts: Sequence[Part], data: Data, tolerance: float = TOLERANCE) -> tuple[Prior, float]:
    """The parameters of highest posterior density, and minus the logarithm of that density.

    L-BFGS on z, the parameters in standard deviations from their prior mean: in these the density has no long axes.
    """
    start, spread = _beliefs(parts, data)

    def loss(z: FloatN) -> tuple[float, FloatN]:
        value, slope = minus_log_likelihood(Prior(parts, start + spread * z), data)
        return value + 0.5 * float(z @ z), slope * spread + z

    found = minimize(
        loss,
        np.zeros(len(start)),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-4.0, 4.0)] * len(start),
        options={"maxiter": 60, "ftol": tolerance * min(1.0, COARSE_ROWS / len(data.odd)) ** 2},
    )
    return Prior(parts, start + spread * found.x), float(found.fun)


def minus_log_likelihood(prior: Prior, data: Data) -> tuple[float, FloatN]:
    """Of the answers, and its gradient."""
    from macredit.values.prior_kernels import covariance, minus_log_density, slopes

    arguments = prior.arguments(data)
    # Fortran reads the lower triangle by its columns, as an upper one
    upper, failed = lapack.dpotrf(covariance(*arguments).T, lower=0, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError(f"row {failed} of a covariance of answers adds no variance")
    inverse, _ = lapack.dpotri(upper, lower=0)
    value, slope = minus_log_density(data.odd, upper.T, inverse.T)
    return value, slopes(*arguments, slope)


def widening(prior: Prior, data: Data) -> tuple[FloatN, float]:
    """What it adds to the posterior variance that the parameters are fitted to the same answers.

    With J the slope of the posterior mean in the parameters, H what the answers tell of them (their Fisher information,
    ½ tr K⁻¹ ∂K K⁻¹ ∂K) and S what their prior does, the variance grows by diag(J (H + S)⁻¹ Jᵀ). Of R answers, the
    parameters use up as many as H owes to the answers; as in a regression the rest counts.

    Returns:
        float[n], the factor on the variance, and the answers that are left.
    """
    here = Posterior(prior, data)
    by_covariance, by_readout = _slopes(prior, data)
    solved = cho_solve((here.factor, True), np.eye(len(data.odd)), check_finite=False) @ by_covariance
    slope = here.weights @ by_readout - (solved @ here.weights) @ here.readout
    told = 0.5 * np.tensordot(solved, solved, axes=([1, 2], [2, 1]))
    _, spread = _beliefs(prior.parts, data)
    size, direction = np.linalg.eigh(told * np.outer(spread, spread))
    size = np.maximum(size, 0)
    added = (((slope.T * spread) @ direction) ** 2 / (size + 1)).sum(axis=1)
    left = max(len(data.odd) - float((size / (size + 1)).sum()), 1.0)
    return (1 + added / np.maximum(here.variance, np.finfo(float).tiny)) * len(data.odd) / left, left


def _slopes(prior: Prior, data: Data) -> tuple[FloatN, FloatN]:
    """float[parameters, R, R] and float[parameters, R, n]: of the covariance of the answers and of the readout."""
    by_covariance, by_readout = [], []
    for part, theta in prior.pieces:
        covariance, readout = part.matrix(theta, data.x, data.x), part.readout(theta, data.x)
        for near in theta + STEP * np.eye(len(theta)):
            by_covariance.append((part.matrix(near, data.x, data.x) - covariance) / STEP)
            by_readout.append((part.readout(near, data.x) - readout) / STEP)
    by_covariance.append(np.diag(math.exp(prior.theta[-1]) * data.noise))
    by_readout.append(np.zeros(data.x.shape))
    return np.stack(by_covariance), np.stack(by_readout)


def _beliefs(parts: Sequence[Part], data: Data) -> tuple[FloatN, FloatN]:
    """Mean and standard deviation of all parameters before any answer."""
    start = np.concatenate([*(part.start for part in parts), [0.0]])
    return start, np.concatenate([*(part.spread for part in parts), [data.doubt]])


def _direction(data: Data) -> FloatN:
    """float[n] of length √n: the additive game nearest to the answers."""
    n = data.x.shape[1]
    slope = np.linalg.solve(data.x.T @ data.x + 0.1 * np.eye(n), data.x.T @ data.odd)
    return np.asarray(slope * math.sqrt(n) / (float(np.linalg.norm(slope)) or 1.0))
