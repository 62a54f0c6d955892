"""Paired leverage regression: Shapley values as weighted least squares on pairs of coalitions."""

from __future__ import annotations

import numpy as np

from macredit.values import odd
from macredit.values.answers import Answers, BoolCN, Fit, Plan

RIDGE = 1e-12
"""Relative to the mean square of a column: takes the smallest of several solutions."""


def smallest(n: int) -> int:
    """The ends and as many pairs as there are unknown values."""
    return 2 * n


def batch(plan: Plan, answers: Answers) -> BoolCN:
    """See :func:`odd.design`."""
    return odd.design(plan, answers)


def fit(plan: Plan, answers: Answers) -> Fit:
    """Minimises Σ μ(S) (u(S) − Σ_i phi_i (1[i ∈ S] − ½))² with Σ phi = v(N) − v(∅).

    μ(S) is the Shapley kernel 1 / (C(n, s) s (n − s)) (Charnes et al. 1988; Lundberg and Lee 2017, arXiv 1705.07874)
    over the probability of a pair to be in the sample; pairs, sizes drawn equally, without replacement: Covert and Lee
    2021 (arXiv 2012.01536), Musco and Witter 2025 (arXiv 2410.01917). The standard error is that of the jackknife,
    each residual over one minus the pull of its pair on the regression (MacKinnon and White 1985, HC3), with the finite
    population's share taken off; a size that is answered whole adds none.
    """
    return of_pairs(odd.pairs_of(plan, answers))


def of_pairs(pairs: odd.Pairs) -> Fit:
    """The same for pairs of any odd function of coalitions; see :func:`fit`."""
    n = pairs.members.shape[1]
    middle = np.where(2 * pairs.size == n, 2, 1)
    root = 1 / np.sqrt(pairs.size * (n - pairs.size) * middle * pairs.peers)
    present = pairs.size / n * root
    design = pairs.members * root[:, None]
    design -= present[:, None]
    target = pairs.odd * root - pairs.total * (present - root / 2)
    gram = design.T @ design
    scale = float(np.trace(gram)) / n or 1.0
    gram += scale / n  # the design leaves the sum of phi open: it is known
    gram[np.diag_indices(n)] += scale * RIDGE
    moved = design @ np.linalg.inv(gram)
    free = target @ moved
    free -= free.mean()
    spare = len(target) - n + 1
    own = np.minimum(np.einsum("pi,pi->p", moved, design), 1 - RIDGE)
    left_out = (target - design @ free) / (1 - own)
    variance = (left_out**2 * (1 - pairs.share)) @ np.square(moved) if spare > 0 else np.full(n, np.nan)
    stderr = np.sqrt(variance + pairs.total_variance / n**2)
    return Fit(free + pairs.total / n, stderr, max(float(spare), 1.0))
