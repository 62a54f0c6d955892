"""The Möbius transform of a game: what each coalition adds to all that its parts already explain."""

from __future__ import annotations

from typing import Any

import numpy as np

from macredit.values.exact import finished, rounded
from macredit.values.table import Table, as_table, library_of


def moebius(table: Any) -> Any:
    """Möbius coefficients (Harsanyi dividends): m(S) = Σ_{T⊆S} (−1)^|S∖T| v(T) (Rota 1964; Harsanyi 1963).

    Args:
        table: a game; see :func:`macredit.values.table.as_table`.

    Returns:
        float[2**n] by the same index, a new array; v(S) = Σ_{T⊆S} m(T) is :func:`worths_of`.

    Raises:
        UserError: no game, or a worth that is not finite.
    """
    return _transformed(as_table(table), -1)


def worths_of(moebius: Any) -> Any:
    """The game with given Möbius coefficients: v(S) = Σ_{T⊆S} m(T), the inverse of :func:`moebius`."""
    return _transformed(as_table(moebius), 1)


def _transformed(game: Table, sign: int) -> Any:
    if game.native and game.n > 2:
        from macredit.values.moebius_kernels import transformed

        out = rounded(game, transformed(game.worths.astype(np.float64, copy=False), sign))
    else:
        out = transformed_by_halves(game.worths, sign)
    finished(game, out[-1:])  # the last entry holds every worth
    return out


@np.errstate(invalid="ignore", over="ignore")
def transformed_by_halves(values: Any, sign: int) -> Any:
    """Σ_{T⊆S} sign^|S∖T| values(T) in plain array operations: one player after the other."""
    length, half = values.shape[0], 1
    while half < length:
        pairs = values.reshape((-1, 2, half))
        lower = pairs[:, 0]
        values = library_of(values).stack([lower, pairs[:, 1] + sign * lower], 1).reshape((length,))
        half *= 2
    return values
