"""Exact values from a full table of 2^n worths; bit i of the index says whether player i is in the coalition.

Every value here is linear: phi_i = Σ_S m_i(S) v(S). Tables may be lists, NumPy arrays, or arrays of any library with
``asarray``, ``stack`` and ``@`` (torch tensors keep their gradients), which is never imported here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from macredit.errors import UserError
from macredit.rows import FloatN


def shapley(table: Any) -> Any:
    """Shapley values: phi_i = Σ_{S∌i} |S|! (n−|S|−1)! / n! · (v(S∪i) − v(S)) (Shapley 1953).

    Keeps efficiency (Σ phi = v(N) − v(∅)), symmetry, dummy and linearity.

    Args:
        table: float[2**n] worths.

    Returns:
        float[n], in the library of ``table``.

    Raises:
        UserError: the table is not one-dimensional, its length is no power of two, or a worth is not finite.
    """
    return _semivalue(_vector(table), _shapley_weights)


def shapley_batch(tables: Any) -> Any:
    """Shapley values of B games at once: float[2**n, B] (coalition-major) → float[n, B]; see :func:`shapley`."""
    tables = _array(tables)
    if len(tables.shape) != 2:
        raise UserError(f"tables of shape {tuple(tables.shape)} were given; expected (2**n, games)")
    return _semivalue(tables, _shapley_weights)


def banzhaf(table: Any) -> Any:
    """Banzhaf values: phi_i = 2^−(n−1) Σ_{S∌i} (v(S∪i) − v(S)) (Banzhaf 1965). Not efficient. See :func:`shapley`."""
    return _semivalue(_vector(table), lambda n: [0.5 ** (n - 1)] * n)


def loo(table: Any) -> Any:
    """Leave-one-out: phi_i = v(N) − v(N∖i). Not efficient: redundant players get 0. See :func:`shapley`."""
    return _semivalue(_vector(table), lambda n: [0.0] * (n - 1) + [1.0])


def _shapley_weights(n: int) -> list[float]:
    """Weight of a coalition of s others: 1 / (n · C(n−1, s))."""
    return [1.0 / (n * math.comb(n - 1, s)) for s in range(n)]


def _semivalue(table: Any, weights_of: Any) -> Any:
    """Σ_{S∌i} w(|S|) (v(S∪i) − v(S)) for every player, one row of the linear map at a time."""
    n = _players(table)
    library = _library(table)
    if not bool(library.isfinite(table).all()):
        raise _not_finite(table)
    index = np.arange(2**n)
    others = np.array([0.0, *weights_of(n), 0.0])  # others[1 + s]: weight of a coalition of s players without i
    size = np.bitwise_count(index)
    values = []
    for i in range(n):
        inside = (index >> i & 1).astype(np.bool_)
        row = np.where(inside, others[size], -others[size + 1])
        values.append(_like(row, table) @ table)
    return library.stack(values)


def _array(table: Any) -> Any:
    """Lists and integers as floats; arrays of other libraries as they are."""
    if isinstance(table, Sequence) or not hasattr(table, "shape"):
        try:
            return np.asarray(table, np.float64)
        except (TypeError, ValueError):
            raise UserError("the table holds something that is no number; expected 2**n numbers") from None
    return table * 1.0


def _vector(table: Any) -> Any:
    table = _array(table)
    if len(table.shape) != 1:
        raise UserError(f"a table of shape {tuple(table.shape)} was given; expected one row of 2**n numbers")
    return table


def _players(table: Any) -> int:
    length = int(table.shape[0])
    n = length.bit_length() - 1
    if n < 1 or length != 2**n:
        raise UserError(f"a table of {length} numbers was given; expected 2**n of them for n ≥ 1 players")
    return n


def _library(table: Any) -> Any:
    """The module whose array this is: the array API's own answer, else the package that defines its type."""
    if hasattr(table, "__array_namespace__"):
        return table.__array_namespace__()
    return sys.modules[type(table).__module__.partition(".")[0]]


def _like(row: FloatN, table: Any) -> Any:
    return _library(table).asarray(row, dtype=table.dtype, device=table.device)


def _not_finite(table: Any) -> UserError:
    """Names the first coalition whose worth is NaN or infinite."""
    n = _players(table)
    finite = np.array([bool(_library(table).isfinite(worth).all()) for worth in table])
    mask = int(np.flatnonzero(~finite)[0])
    members = ", ".join(str(i) for i in range(n) if mask >> i & 1)
    return UserError(f"the worth of coalition {{{members}}} is not finite; expected a number for every coalition")
