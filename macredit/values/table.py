"""Every form in which a game can be given, as one: float worths of 2^n coalitions, bit i of the index = player i."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from macredit.errors import UserError
from macredit.values.game import Game, coalition_name, game_from_json

TYPICAL = (0xEEEEEEEE, 0x77777777)
"""Two coalitions of about three players in four, whose worths tell the size of the others': half of all the weight in
Shapley's sums lies on coalitions that are not smaller."""
FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


class Table(NamedTuple):
    """Worths of all coalitions of n players."""

    worths: Any
    """float[2**n] of any array library; float32 and float64 are kept, everything else becomes float64."""
    n: int
    names: tuple[str, ...] | None = None
    """What the players are called; None: by their number."""

    @property
    def players(self) -> tuple[str, ...]:
        """The names of the players, in the order of the bits and of every result."""
        return self.names or tuple(str(i) for i in range(self.n))

    @property
    def native(self) -> bool:
        """Whether the worths are a NumPy array: the kernels take them; other libraries get array operations."""
        return type(self.worths) is np.ndarray


def as_table(table: Any) -> Table:
    """The worths of a game, given in any of these forms; a NumPy array or memory map of floats is never copied.

    * 2**n numbers: list, NumPy array, ``np.memmap``, or array of another library (torch tensors keep gradients);
    * coalition → worth: ``{(): 0, ("a",): 1, frozenset({"a", "b"}): 3, …}`` or ``{"": 0, "a": 1, "a,b": 3, …}``;
    * a data frame with the columns ``coalition`` and ``worth``, coalitions written as above;
    * a :class:`Game`.

    Players of the second and third form are numbered in the order of their one-member coalitions.

    Raises:
        UserError: not one-dimensional, no power of two, no numbers, or not exactly one worth for every coalition.
    """
    if not isinstance(table, np.ndarray):
        if isinstance(table, Table):
            return table
        if isinstance(table, Game):
            return Table(table.table, len(table.players), table.players)
        if isinstance(table, Mapping):
            return _from_pairs(table.items())
        if hasattr(table, "columns"):
            return _from_frame(table)
    worths = as_array(table)
    if worths.ndim != 1:
        raise UserError(f"a table of shape {tuple(worths.shape)} was given; expected one row of 2**n numbers")
    return Table(worths, players_of(worths))


def as_array(values: Any) -> Any:
    """Floats of the library they came in; lists, scalars and integers become float64 of NumPy."""
    if not isinstance(values, np.ndarray):
        if not isinstance(values, Sequence) and hasattr(library_of(values), "asarray"):
            return values * 1.0
        try:
            values = np.asarray(values)
        except ValueError:
            raise UserError("the table holds rows of different lengths; expected 2**n numbers") from None
    if values.dtype in FLOATS and values.dtype.isnative and values.flags.c_contiguous:
        return values if type(values) is np.ndarray else values.view(np.ndarray)
    if values.dtype.kind not in "biufO":
        raise UserError(f"the table holds {values.dtype} and no numbers; expected 2**n of them")
    try:
        return np.ascontiguousarray(values, np.float32 if values.dtype in FLOATS[1:] else np.float64)
    except (TypeError, ValueError):
        raise UserError("the table holds something that is no number; expected 2**n numbers") from None


def players_of(worths: Any) -> int:
    """n, where the first axis of ``worths`` has 2**n entries."""
    length = int(worths.shape[0])
    n = length.bit_length() - 1
    if n < 1 or length != 1 << n:
        raise UserError(f"a table of {length} numbers was given; expected 2**n of them for n ≥ 1 players")
    return n


def library_of(array: Any) -> Any:
    """The module whose array this is: the array API's own answer, else the package that defines its type."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    return sys.modules[type(array).__module__.partition(".")[0]]


def like(values: npt.NDArray[Any], array: Any, dtype: Any = None) -> Any:
    """``values`` in the library and on the device of ``array``; weights take its precision, indices keep theirs."""
    return library_of(array).asarray(values, dtype=dtype, device=array.device)


def not_finite(table: Table) -> UserError:
    """Says which coalition's worth is NaN or infinite, once a result has shown that one is."""
    library = library_of(table.worths)
    finite = library.isfinite(table.worths).reshape((2**table.n, -1)).all(1)
    if bool(finite.all()):
        return UserError("the worths are finite but their sums are not; divide the table by its largest worth")
    mask = int(library.argmax(1 - finite * 1))
    name = coalition_name(table.players, mask)
    return UserError(f"the worth of coalition {name} is not finite; expected a number for every coalition")


def _from_frame(frame: Any) -> Table:
    if not {"coalition", "worth"} <= set(frame.columns):
        raise UserError(f"a data frame with columns {list(frame.columns)} was given; expected coalition and worth")
    return _from_pairs(zip(frame["coalition"], frame["worth"], strict=True))


def _from_pairs(pairs: Iterable[tuple[Any, Any]]) -> Table:
    worths: dict[str, Any] = {}
    for coalition, worth in pairs:
        text = _text(coalition)
        if text in worths:
            raise UserError(f"coalition {text!r} was given twice; expected one worth for each")
        worths[text] = worth.item() if hasattr(worth, "item") else worth
    names = [text.strip() for text in worths if text.strip() and "," not in text]
    game = game_from_json({"players": names, "worths": worths})
    return Table(game.table, len(names), game.players)


def _text(coalition: Any) -> str:
    """``a,b`` for ``("a", "b")``; a CSV reader's missing value is the empty coalition."""
    if isinstance(coalition, str):
        return coalition
    if coalition is None or (isinstance(coalition, float) and math.isnan(coalition)):
        return ""
    members = coalition if isinstance(coalition, Iterable) else [coalition]
    return ",".join(str(member) for member in members)
