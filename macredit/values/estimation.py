"""Shapley values of a game from a budget of evaluations, for games that answer at once.

A game that answers later, elsewhere or in parts is asked through :class:`macredit.values.session.Session`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from macredit.values.answers import BoolCN
from macredit.values.session import Estimate, OnNaN, Session
from macredit.values.stopping import Stop


def estimate(
    game: Callable[[BoolCN], Any],
    n: int,
    budget: int,
    seed: int = 0,
    *,
    method: str = "auto",
    noise: bool = False,
    on_nan: OnNaN = "raise",
    stop: Stop | None = None,
    worth_range: tuple[float, float] | None = None,
    groups: Iterable[Iterable[int]] | None = None,
) -> Estimate:
    """Shapley values of a game that can be evaluated at most ``budget`` times.

    Without noise a budget of 2^n or more is exact. The estimate says which method it chose and why; no method keeps
    state, so the same arguments give the same values.

    Args:
        game: takes bool[C, n] coalitions, returns float[C] worths.
        n: players.
        budget: the most evaluations, repeated ones included; never exceeded.
        seed: fixes every random choice.
        method: ``auto``, or a name in ``METHODS``.
        noise: whether a coalition's worth differs from one evaluation to the next.
        on_nan: ``raise``, ``retry`` or ``drop`` a worth that is NaN or infinite.
        stop: a rule to stop before the budget is spent: ``Width``, ``Ranking`` or ``Sign``.
        worth_range: lowest and highest possible worth, where they are known: makes anytime intervals exact.
        groups: players that join and leave together (method ``grouped``).

    Returns:
        Values, standard errors and what they cost.

    Raises:
        UserError: a budget too small (with the smallest that will do), a worth that is no finite number (with its
            coalition), an answer of the wrong shape, or a setting that cannot be meant.
    """
    session = Session(
        n,
        budget,
        seed,
        method=method,
        noise=noise,
        on_nan=on_nan,
        stop=stop,
        worth_range=worth_range,
        groups=groups,
    )
    while len(batch := session.ask()):
        session.tell(batch, game(np.copy(batch)))
    return session.estimate()
