"""``macredit credit``: one method on a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from macredit.cli.critics import named_critic
from macredit.cli.options import Json
from macredit.cli.replays import AS_RECORDED, Replays, replaying, truth_of
from macredit.cli.screen import say, show
from macredit.cli.words import pairs
from macredit.credit import resolve
from macredit.errors import UserError
from macredit.report import Report


def credit(
    episodes: Path,
    *,
    method: str,
    preset: str = "paper",
    set_: Annotated[tuple[str, ...], Parameter(name="--set", consume_multiple=True, negative="")] = (),
    replays: Replays = AS_RECORDED,
    critic: str = "",
    json_: Json = False,
) -> None:
    """One method on recorded episodes: credit and advantage of every turn.

    Args:
        episodes: An episodes file.
        method: A credit method; `macredit methods` lists them.
        preset: paper, code (what the released code does) or balanced.
        set_: KEY=VALUE, a setting of the method.
        critic: A run's folder, for the critic trained in it, or cross-fit, for critics of the record's other tasks.
        json_: Print one JSON object and nothing else.
    """
    from macredit.measure import run_method
    from macredit.tables import turns_table

    settings = pairs(set_, plain=True)
    with replaying(episodes, replays) as whatif:
        if critic:
            whatif.critic = named_critic(whatif, critic, *resolve(method, preset, settings))
        result = run_method(method, whatif, preset, settings)
    credits = result.credits
    if credits is None:
        raise UserError(result.error or f"{method} gave no credit")
    for warning in credits.warnings:
        say(f"warning: {warning}")
    if json_:
        print(json.dumps(credits.to_json(method, preset, result.settings, result.cost)))
        return
    report = Report(f"{method} on {episodes}", (result,), credits.rows, **truth_of(whatif)._asdict())
    show(turns_table(credits))
    show(report.text())
