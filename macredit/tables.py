"""Results as tables for the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from inspect import getdoc, signature
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table

from macredit.env import TeamEnv
from macredit.report.text import safe
from macredit.report.wording import price

if TYPE_CHECKING:
    from macredit.compare import Compared
    from macredit.credit import Credits, Method

Listing = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Header and rows of texts."""
SHOWN = 40
"""Turns that are listed; ``--json`` has all."""


def turns_table(credits: Credits) -> Table:
    """Credit and advantage of the first turns."""
    table = Table("episode", "turn", "agent", "credit", "advantage", "weight", "why")
    rows = credits.rows
    for n in range(min(SHOWN, len(rows))):
        table.add_row(
            safe(rows.episodes[rows.episode[n]].id), str(rows.turn[n]), safe(rows.agents[rows.agent[n]]),
            f"{credits.credit[n]:.4f}", f"{credits.advantage[n]:+.4f}", f"{credits.weight[n]:.3g}",
            credits.reasons[n] or "",
        )  # fmt: skip
    if len(rows) > SHOWN:
        table.caption = f"the first {SHOWN} of {len(rows)} turns; --json has all"
    return table


def comparison_tables(found: Sequence[Compared]) -> Group:
    """Credit beside the truth, then what it cost."""
    agents = list(found[0].agents)
    credit = Table("method", *agents, title="mean credit ± standard error over seeds")
    for c in found:
        credit.add_row(c.method, *(_pm(c.agents[a], c.stderr[a]) for a in agents))
    for c in found:
        if c.exact:
            credit.add_row(f"exact ({c.method})", *(_number(c.exact.get(a)) for a in agents), style="bold")
    priced = any(c.cost["micros"] for c in found)
    cost = Table(
        "method", "error", "fidelity", "episodes", "replays", "calls", "tokens", *["price"] * priced, "seconds",
        caption="error: root mean square against the index that the method estimates"
        f"{f', exact {found[0].exact_of}' if found[0].exact_of else ''}; fidelity: Spearman correlation with exact "
        "Shapley over agents; episodes: originals a seed; the rest summed over seeds",
    )  # fmt: skip
    for c in found:
        spent = [f"{c.cost[k]:.0f}" for k in ("replays", "calls", "sampled_tokens")]
        spent += [*[price(c.cost["micros"])] * priced, f"{c.cost['seconds']:.2f}"]
        cost.add_row(c.method, _number(c.error), _number(c.fidelity), str(c.episodes), *spent)
    if not any(c.curve for c in found):
        return Group(credit, cost)
    curves = Table("method", "first step", "last step", title="mean reward while training, over seeds")
    for c in found:
        curves.add_row(c.method, _number(c.curve[0]), _number(c.curve[-1]))
    return Group(credit, cost, curves)


def training_table(metrics: Sequence[Mapping[str, Any]]) -> Table:
    """Held-out scores, and the first and last step."""
    table = Table("step", "reward", "credit", "held-out avg@k", "pass@k")
    steps = [row["step"] for row in metrics if "reward" in row]
    for row in metrics:
        if row["step"] in (steps[:1] + steps[-1:]) and "reward" in row:
            credit = " ".join(f"{a} {_number(v)}" for a, v in row["credit"].items())
            table.add_row(str(row["step"]), _number(row["reward"]), credit)
        for what, who in (("evaluation", ""), ("solo", " (one agent alone)")):
            if what in row:
                e = row[what]
                low, high = e["avg_interval"] or (float("nan"), float("nan"))
                table.add_row(
                    f"{row['step']}{who}", "", "", f"{e['avg']:.3f} [{low:.3f}, {high:.3f}] k={e['k']}",
                    f"{e['passed']:.3f} [{e['pass_interval'][0]:.3f}, {e['pass_interval'][1]:.3f}]",
                )  # fmt: skip
    return table


def methods_list(methods: Mapping[str, Method]) -> Listing:
    """What each credit method needs and estimates, and where it comes from."""
    header = ("method", "needs", "what its credit estimates", "presets", "source")
    rows = [(n, ", ".join(sorted(m.needs)), m.estimand, ", ".join(m.presets), m.paper) for n, m in methods.items()]
    return header, rows


def envs_list(envs: Mapping[str, type[TeamEnv]]) -> Listing:
    """What the team does in each environment, the arguments, and whether the exact credit is known."""
    header = ("environment", "what the team does", "arguments", "exact credit")
    return header, [
        (name, (getdoc(env) or "").partition("\n")[0], _arguments(env),
         "—" if env.exact_credit is TeamEnv.exact_credit else "known")
        for name, env in envs.items()
    ]  # fmt: skip


def _arguments(env: type[TeamEnv]) -> str:
    takes = [p for p in signature(env).parameters.values() if p.kind is not p.VAR_KEYWORD]
    return ", ".join(p.name if p.default is p.empty else f"{p.name}={json.dumps(p.default)}" for p in takes)


def terminal(listing: Listing) -> Table:
    """A listing for the terminal."""
    header, rows = listing
    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    return table


def markdown(listing: Listing) -> str:
    """A listing for the README."""
    header, rows = listing
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))


def _number(x: float | None) -> str:
    return "—" if x is None else f"{x:z.3f}"


def _pm(x: float | None, e: float | None) -> str:
    return _number(x) if e is None else f"{_number(x)} ±{e:.3f}"
