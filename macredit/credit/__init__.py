"""Credit methods by name: one small file each, one line here, and the front door that runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from macredit.credit import (
    banzhaf,
    c3,
    difference,
    dr_mas,
    grpo,
    m_grpo,
    myerson,
    owen,
    position,
    rloo,
    shapley,
    sharp,
)
from macredit.credit.method import AgentCredit, Credits, Method
from macredit.credit.settings import settings_dict, settings_from
from macredit.episode import Episode
from macredit.errors import UserError, unknown
from macredit.rows import Rows, rows_of

if TYPE_CHECKING:
    from macredit.whatif import WhatIf

__all__ = ["METHODS", "AgentCredit", "Credits", "Method", "credit", "resolve", "settings_dict"]

METHODS: dict[str, Method] = {
    "grpo": grpo.METHOD,
    "rloo": rloo.METHOD,
    "dr_mas": dr_mas.METHOD,
    "m_grpo": m_grpo.METHOD,
    "sharp": sharp.METHOD,
    "c3": c3.METHOD,
    "difference": difference.METHOD,
    "shapley": shapley.METHOD,
    "banzhaf": banzhaf.METHOD,
    "owen": owen.METHOD,
    "myerson": myerson.METHOD,
    "position": position.METHOD,
}


def resolve(method: str, preset: str = "paper", settings: Mapping[str, Any] | None = None) -> tuple[Method, Any]:
    """The method of a name and its settings: defaults, changed by the preset, changed by ``settings``.

    Raises:
        UserError: an unknown method, preset or setting, or a value its setting cannot hold.
    """
    if not isinstance(method, str):
        raise UserError(f"method is {method!r}; expected a name, one of {', '.join(METHODS)}")
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    known = METHODS[method]
    if not isinstance(preset, str) or preset not in known.presets:
        raise UserError(f"method {method!r} has no preset {preset!r}; expected one of {', '.join(known.presets)}")
    if not isinstance(settings, Mapping | None) or not all(isinstance(name, str) for name in settings or ()):
        raise UserError(f"the settings of {method} are {settings!r}; expected names with values, as {{'eps': 1e-6}}")
    return known, settings_from(known.settings, method, {**known.presets[preset], **(settings or {})})


def credit(
    episodes: Sequence[Episode] | Rows,
    method: str,
    preset: str = "paper",
    settings: Mapping[str, Any] | None = None,
    whatif: WhatIf | None = None,
) -> Credits:
    """Who earned the reward, according to one method.

    Args:
        episodes: what happened; rows are taken as they are, unless the settings hold an ``invalid_penalty``.
        method: a name in :data:`METHODS`.
        preset: ``paper``, or another that the method has.
        settings: changes to the preset, by name.
        whatif: replays of these very episodes; without it, what the record knows.

    Raises:
        UserError: see :func:`resolve`; or the record does not hold what the method needs.
        OutsideError: every episode failed.
    """
    known, chosen = resolve(method, preset, settings)
    penalty = float(getattr(chosen, "invalid_penalty", 0.0))
    if not isinstance(episodes, Rows):
        rows = rows_of(episodes, penalty)
    else:
        rows = rows_of(episodes.episodes, penalty) if penalty else episodes
    return known.run(rows, chosen, whatif)
