"""Values that are linear in the worths of some coalitions: who needs which worth, with which weight.

Every value of a structure has this form, so that it can be read from a full table, from just the coalitions it needs,
or (weights² times the variances of the worths) with a standard error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from macredit.errors import UserError
from macredit.rows import FloatN, IntN
from macredit.values.game import coalition_name
from macredit.values.masks import masks_of
from macredit.values.structure import Players
from macredit.values.table import Table, library_of, like

_NOT_FINITE = "has a worth that is not finite; expected a number for each coalition that is needed"


@dataclass(frozen=True, slots=True)
class Linear:
    """values = weights @ (worths − v(∅))."""

    players: Players
    coalitions: IntN
    """int[C]: masks of the coalitions that are needed, ascending, without the empty one."""
    weights: FloatN
    """float[rows, C]: one row a player, or a link. The weight of v(∅) is −weights.sum(1)."""

    @property
    def needed(self) -> IntN:
        """int[1 + C]: masks of all coalitions whose worths are read, the empty one first."""
        return np.append(0, self.coalitions)

    def read(self, worths: Any) -> Any:
        """Values from the worths of the ``needed`` coalitions, in the worths' library (gradients are kept).

        Args:
            worths: float[1 + C], or float[1 + C, B] for B games at once.

        Returns:
            float[rows], or float[rows, B].
        """
        return like(self.weights, worths, worths.dtype) @ (worths[1:] - worths[0])

    def of_table(self, table: Table) -> Any:
        """float[rows] from a full table of 2**n worths, in the table's library (gradients are kept).

        Raises:
            UserError: a worth that is needed is not finite.
        """
        worths = table.worths[like(self.needed, table.worths)]
        finite = library_of(worths).isfinite(worths)
        if not bool(finite.all()):
            self._refuse(self.needed[[not bool(good) for good in finite]], _NOT_FINITE)
        return self.read(worths)

    def of(self, coalitions: npt.ArrayLike, worths: npt.ArrayLike, empty: float = 0.0) -> FloatN:
        """float[rows] from some coalitions' worths; those that are not needed are ignored.

        Args:
            coalitions: bool[C, n], or int[C] masks.
            worths: float[C], or float[C, B] for B games at once.
            empty: v(∅), unless the empty coalition is among ``coalitions``.

        Raises:
            UserError: a coalition that is needed is missing, one is listed twice, or a worth is not finite.
        """
        masks = masks_of(coalitions, len(self.players))
        known = np.asarray(worths, np.float64)
        if known.ndim not in (1, 2) or len(known) != len(masks):
            raise UserError(f"worths of shape {known.shape} were given for {len(masks)} coalitions; expected one each")
        order = np.argsort(masks, kind="stable")
        masks, known = masks[order], known[order]
        self._refuse(masks[1:][masks[1:] == masks[:-1]], "is listed twice; expected each coalition once")
        self._refuse(masks[~np.isfinite(known).reshape(len(masks), -1).all(1)], _NOT_FINITE)
        self._refuse(
            np.setdiff1d(self.coalitions, masks), "has no worth; give one for each coalition of `required_coalitions`"
        )
        base = known[0] if 0 in masks[:1] else empty
        return self.weights @ (known[np.searchsorted(masks, self.coalitions)] - base)

    def _refuse(self, masks: IntN, why: str) -> None:
        if len(masks):
            name = coalition_name(tuple(map(str, self.players)), int(masks[0]))
            more = f" (and {len(masks) - 1} more)" if len(masks) > 1 else ""
            raise UserError(f"coalition {name}{more} {why}")
