"""The graph-restricted game of a full table, compiled: O(2^n), one look-up of an earlier coalition after another.

Importing this module imports Numba.
"""

from __future__ import annotations

import numba
import numpy as np

from macredit.rows import FloatN, IntN
from macredit.values.kernels import frozen


def restrict(worths: FloatN, near: IntN) -> FloatN:
    """float[2**n]: what coalitions earn when only linked players can act together.

    Args:
        worths: float[2**n].
        near: int[n], the neighbours of each player, as masks.
    """
    out = np.empty_like(worths)
    _restrict(frozen(worths), near.astype(np.int32), out, np.empty(len(worths), np.int32))
    return out


@numba.njit(cache=True, nogil=True)
def _restrict(worths: FloatN, near: IntN, out: FloatN, first: IntN) -> None:
    """Fills ``out``; ``first[S]`` is the connected part of S that holds its lowest player."""
    out[0], first[0] = worths[0], 0
    for i in range(len(near)):
        top = 1 << i
        for rest in range(top):
            part = first[rest]
            if rest == 0:
                part = top
            elif part & near[i]:  # i joins this part, and with it every other part it is linked to
                others = rest ^ part
                part |= top
                while others:
                    other = first[others]
                    others ^= other
                    if other & near[i]:
                        part |= other
            first[rest | top] = part
            out[rest | top] = out[(rest | top) ^ part] + (worths[part] - worths[0])
