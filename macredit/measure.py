"""Every method that a record supports, on the same episodes, cheapest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from macredit.credit import METHODS, resolve, settings_dict
from macredit.errors import UserError
from macredit.ledger import Ledger
from macredit.report import MethodResult
from macredit.rows import rows_of
from macredit.whatif import WhatIf


def by_cost(names: Iterable[str] = METHODS, players: int = 3) -> list[str]:
    """Methods in order of what they cost: statistics, then trees, then replays."""
    return sorted(names, key=lambda name: ("replay" in METHODS[name].needs, METHODS[name].evaluations(players)))


def run_method(
    name: str, whatif: WhatIf, preset: str = "paper", settings: Mapping[str, Any] | None = None
) -> MethodResult:
    """One method's answer, with what it cost beyond what ``whatif`` knew already."""
    method, chosen = resolve(name, preset, settings)
    before, warned = replace(whatif.ledger), len(whatif.warnings)
    with whatif.ledger.timed():
        rows = rows_of(whatif.episodes, getattr(chosen, "invalid_penalty", 0.0))
        credits = method.run(rows, chosen, whatif)
    credits = replace(credits, warnings=(*credits.warnings, *whatif.warnings[warned:]))
    shown = {**settings_dict(chosen), "absence": whatif.absence, "players": whatif.players} if uses(name) else None
    return MethodResult(name, preset, shown or settings_dict(chosen), credits, spent(whatif.ledger, before))


def uses(name: str) -> bool:
    """Whether a method asks what silencing somebody would have done."""
    return "replay" in METHODS[name].needs


def spent(after: Ledger, before: Ledger) -> dict[str, float]:
    """What was counted in between."""
    old = before.json()
    return {name: value - old[name] for name, value in after.json().items()}


def measure(whatif: WhatIf, methods: Sequence[str] | None = None) -> list[MethodResult]:
    """All methods that the record (and the replays, where there is a world) supports.

    A method whose needs are not met is listed with the reason; replays are shared, so a later method pays only for
    what is new.
    """
    results = []
    for name in methods or by_cost():
        try:
            results.append(run_method(name, whatif))
        except UserError as error:
            results.append(MethodResult(name, "paper", {}, None, {}, str(error)))
    return results
