"""How numbers and null credits are written, in the terminal and on the page alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from macredit.report.table import BROADCAST, AgentRow

if TYPE_CHECKING:
    from macredit.report.report import MethodResult, Report

DASH = "—"
INDEX_NAMES = {"loo": "leave-one-out", "shapley": "Shapley", "banzhaf": "Banzhaf"}
"""Exact index → how it is written."""


def exactly(index: str) -> str:
    """How an exact index is called."""
    return f"exact {INDEX_NAMES.get(index, index)}"


def number(value: float | None) -> str:
    """A credit or reward: three decimals, more digits where three would hide it; rounding noise is 0."""
    if value is None or value != value:
        return DASH
    if abs(value) < 1e-12:
        return "0.000"
    if 0.001 <= abs(value) < 10_000:
        return f"{value:.3f}"
    return f"{value:.1e}"


def short(value: float | None) -> str:
    """A number on an axis: four significant digits."""
    return DASH if value is None or value != value else f"{value:.4g}"


def count(value: float | None) -> str:
    """A counter, or seconds."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def percent(value: float) -> str:
    """A share."""
    return f"{value:.0%}"


def price(micros: float | None, _: Mapping[str, float] | None = None) -> str:
    """Millionths of a currency as an amount of it."""
    return DASH if micros is None else f"{micros / 1e6:,.6f}"


def cached(taken: float | None, cost: Mapping[str, float]) -> str:
    """``1,200 (40%)``: prompt tokens from an engine's prefix cache, and their share of all prompt tokens."""
    prompt = (taken or 0) + cost.get("prompt_tokens", 0)
    return f"{count(taken)} ({percent(taken / prompt)})" if taken is not None and prompt else count(taken)


class Cost(NamedTuple):
    """A column of a table of costs."""

    heading: str
    written: Callable[[float | None, Mapping[str, float]], str] = lambda counter, _: count(counter)
    """From a method's counter and all its counters."""


COSTS = {
    "resets": Cost("episodes begun"), "replays": Cost("replays"), "replays_saved": Cost("replays saved"),
    "turns_kept": Cost("turns kept"), "calls": Cost("model calls"), "calls_reused": Cost("calls reused"),
    "prompt_tokens": Cost("prompt tokens"), "prompt_tokens_cached": Cost("cached", cached),
    "sampled_tokens": Cost("sampled tokens"), "micros": Cost("price", price), "judge_calls": Cost("judge calls"),
    "seconds": Cost("seconds"),
}  # fmt: skip
"""Ledger counter → its column."""


def plus_minus(row: AgentRow) -> str:
    """The standard error over episodes, else of the estimates, else nothing."""
    error = row.stderr if row.stderr is not None else row.estimate_stderr
    return "" if row.credit is None or error is None else f"±{number(error)}"


def credit(row: AgentRow | None) -> str:
    """``0.500 ±0.021``."""
    return DASH if row is None else f"{number(row.credit)} {plus_minus(row)}".strip()


def estimate_error(table: Sequence[AgentRow]) -> str:
    """How sure a method is of its own estimates."""
    errors = [row.estimate_stderr for row in table if row.credit is not None]
    known = [error for error in errors if error is not None]
    if len(known) < len(errors) or not errors:
        return "not estimated"
    return f"up to ±{number(max(known))}" if max(known) > 0 else "exact"


def why(row: AgentRow) -> str:
    """The reasons behind an agent's null or special credits, with the number of episodes.

    Failed episodes have their own place in the report, and count here only where there is nothing else to say.
    """
    told = {reason: n for reason, n in row.reasons.items() if reason != BROADCAST}
    usual = {reason: n for reason, n in told.items() if not reason.startswith("failed")}
    if row.credit is None:
        return "; ".join(usual or told)
    return "; ".join(f"{reason} in {n} episodes" for reason, n in usual.items())


def footnotes(measured: Mapping[str, MethodResult], exact_of: str = "") -> list[str]:
    """What the dashes, the equal numbers and the exact values of the credit table mean."""
    same = [label for label, result in measured.items() if result.broadcast]
    told: dict[str, list[str]] = {}
    for label, result in measured.items():
        for row in result.table:
            if why(row):
                told.setdefault(f"{row.agent} {number(row.credit)}: {why(row)}", []).append(label)
    notes = [f"{note} ({', '.join(labels)})" for note, labels in told.items()]
    notes = [f"{', '.join(same)}: same reward for everyone", *notes] if same else notes
    return [*notes, f"exact: {exact_of}"] if exact_of else notes


def note(value: object) -> str:
    """A method's note: numbers and objects of numbers in reading order."""
    if isinstance(value, Mapping):
        parts = ((name, note(part), isinstance(part, Mapping)) for name, part in value.items())
        return ", ".join(f"{name} ({part})" if nested else f"{name}: {part}" for name, part, nested in parts)
    if isinstance(value, list | tuple):
        return ", ".join(map(note, value))
    return number(value) if isinstance(value, float) else str(value)


def counted(counts: Mapping[str, int]) -> str:
    """``62 done, 2 truncated``."""
    return ", ".join(f"{n} {name}" for name, n in counts.items())


def headline(report: Report) -> dict[str, str]:
    """The facts above everything else: name → sentence."""
    s = report.summary
    mean, low, high = s.reward
    interval = f" (95 % interval {number(low)} to {number(high)})" if low == low else ""
    scored = "" if s.scored == s.episodes else f" over {s.scored} scored episodes"
    tasks = f"{count(s.tasks)} {'task' if s.tasks == 1 else 'tasks'}"
    facts = {
        "Team": ", ".join(f"{name} (orchestrator)" if name in s.orchestrators else name for name in s.agents),
        "Environment": "; ".join(s.environments) or "not recorded",
        "Episodes": f"{count(s.episodes)} on {tasks}, {count(s.turns)} turns",
        "Mean reward": f"{number(mean)}{interval}{scored}",
        "Ends": counted(s.ends),
    }
    if s.invalid:
        facts["Invalid turns"] = f"{count(s.invalid)} of {count(s.turns)}"
    if s.left_out:
        facts["Left out"] = f"{count(sum(s.left_out.values()))} turns: {counted(s.left_out)}"
    return facts
