"""``macredit check``: the conformance checks that macredit's own parts pass, on yours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from macredit.cli.options import Arguments
from macredit.cli.screen import say, show
from macredit.cli.words import pairs

if TYPE_CHECKING:
    from macredit.check import Result


def check_env(name: str, *, arg: Arguments = ()) -> None:
    """PettingZoo's own tests and ours, on an environment (module:Class for your own)."""
    from macredit.check import check_env as run_checks
    from macredit.envs import make_env

    _verdict(run_checks(make_env(name, **pairs(arg))))


def check_policy(policy: str, *, env: str = "relay_v0", arg: Arguments = ()) -> None:
    """The policy contract, on KIND[:ARG], FOLDER or module:Class (NAME= may stand before it).

    Args:
        env: The environment whose first prompts are asked.
    """
    from macredit.agents import make_policy, parse_policy
    from macredit.check import check_policy as run_checks
    from macredit.check import first_requests
    from macredit.envs import make_env

    name, spec = parse_policy(policy if "=" in policy else f"policy={policy}")
    asked = make_env(env, **pairs(arg))
    _verdict(run_checks(make_policy(spec, name=name, env=asked), first_requests(asked)))


def check_method(name: str) -> None:
    """What a credit method promises, on random episodes."""
    from macredit.check import check_method as run_checks

    _verdict(run_checks(name))


def _verdict(results: Sequence[Result]) -> None:
    table = Table("check", "", "what happened")
    for result in results:
        table.add_row(result.name, Text("ok", "green") if result.ok else Text("failed", "red"), result.detail)
    show(table)
    failed = sum(not result.ok for result in results)
    if failed:
        say(f"{failed} of {len(results)} checks failed")
        raise SystemExit(1)
