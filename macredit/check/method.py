"""What credit methods promise; each check returns None, or one sentence on what is wrong.

Played on random episodes of a line planner → a → b, in which c is never asked; every coalition's outcome is on record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, combinations

import numpy as np

from macredit.credit.method import Credits, Method
from macredit.episode import Counterfactual, Episode, Turn
from macredit.rows import rows_of
from macredit.seeds import generator
from macredit.team import Agent, Team

LINE = Team(
    tuple(Agent(name) for name in ("planner", "a", "b", "c")), "planner",
    (("planner", "a"), ("a", "b"), ("b", "planner"), ("planner", "c"), ("c", "planner")),
)  # fmt: skip
EVERYONE = tuple(chain.from_iterable(combinations(LINE.specialists, size) for size in (1, 2, 3)))


def random_episodes(tasks: int = 3, group: int = 5, scale: float = 1.0) -> list[Episode]:
    """Scored episodes, then one that failed and one without a reward."""
    episodes = [_episode(f"t{task}", member, scale) for task in range(tasks) for member in range(group)]
    failed, unscored = _episode("t0", group, scale), _episode("t0", group + 1, scale)
    return [*episodes, replace(failed, end="failed:policy", reward=None), replace(unscored, reward=None)]


def _episode(task: str, member: int, scale: float) -> Episode:
    rng = generator("check method", task, member)
    name = f"{task}-{member}"
    speakers = (("planner", "a"), ("a", "b"), ("b", "user"))
    turns = tuple(
        Turn(
            agent, f"{member}", f"{name}/{t}", (to,), (f"{name}/{t - 1}",) if t else (), valid=bool(rng.random() < 0.8)
        )
        for t, (agent, to) in enumerate(speakers)
    )
    worth = {frozenset[str](): float(rng.normal()) * scale}
    for silenced in EVERYONE:
        worth.setdefault(frozenset(silenced) - {"c"}, float(rng.normal()) * scale)
    known = tuple(Counterfactual(silenced, worth[frozenset(silenced) - {"c"}]) for silenced in EVERYONE)
    return Episode(name, task, turns, worth[frozenset()], group=member, team=LINE, counterfactuals=known)


def _credits(method: Method, episodes: Sequence[Episode]) -> Credits:
    return method.run(rows_of(episodes), method.settings(), None)


def columns(method: Method) -> str | None:
    """Every row has a finite advantage, a weight of at least 0, and a credit or a reason."""
    found = _credits(method, random_episodes())
    rows = len(found.rows.reward)
    if {len(column) for column in (found.credit, found.advantage, found.weight, found.stderr, found.reasons)} != {rows}:
        return f"its columns have unequal lengths; expected {rows}, one entry a row"
    if not np.isfinite(found.advantage).all() or not (np.isfinite(found.weight) & (found.weight >= 0)).all():
        return "an advantage is not finite, or a weight is negative or not finite"
    silent = [i for i, reason in enumerate(found.reasons) if reason is None and np.isnan(found.credit[i])]
    return f"row {silent[0]} has neither credit nor reason" if silent else None


def left_out(method: Method) -> str | None:
    """Failed and unscored rows: credit null, advantage 0, weight 0, a reason; they change no other row."""
    episodes = random_episodes()
    found, without = _credits(method, episodes), _credits(method, episodes[:-2])
    out = ~found.rows.counts
    if not np.isnan(found.credit[out]).all() or found.advantage[out].any() or found.weight[out].any():
        return "a failed or unscored row has a credit, an advantage or a weight"
    if not all(reason for reason, left in zip(found.reasons, out, strict=True) if left):
        return "a failed or unscored row has no reason"
    kept = np.flatnonzero(~out)
    same = np.allclose(found.advantage[kept], without.advantage, rtol=0, atol=1e-12)
    return None if same else "failed or unscored rows change the advantages of others"


def repeats(method: Method) -> str | None:
    """The same episodes give the same numbers."""
    one, two = _credits(method, random_episodes()), _credits(method, random_episodes())
    same = np.array_equal(one.advantage, two.advantage) and np.array_equal(one.credit, two.credit, equal_nan=True)
    return None if same else "two runs on the same episodes differ; draw randomness from keys alone"


def order(method: Method) -> str | None:
    """Shuffling the episodes shuffles the numbers."""
    episodes = random_episodes()
    one, two = _credits(method, episodes), _credits(method, episodes[::-1])
    back = np.concatenate([np.flatnonzero(two.rows.episode == e) for e in range(len(episodes))[::-1]])
    for name, before, after in (("advantage", one.advantage, two.advantage), ("credit", one.credit, two.credit)):
        if not np.allclose(before, after[back], rtol=0, atol=1e-9, equal_nan=True):
            return f"the order of the episodes changes the {name}; group by task and agent, not by position"
    return None


def centred(method: Method) -> str | None:
    """Weighted advantages of each agent sum to 0 in each task (here every agent speaks once an episode)."""
    found = _credits(method, random_episodes())
    for task in range(len(found.rows.tasks)):
        for agent, name in enumerate(found.rows.agents):
            here = (found.rows.task == task) & (found.rows.agent == agent)
            total = float((found.advantage * found.weight)[here].sum())
            if abs(total) > 1e-9:
                return f"the advantages of {name!r} in one task sum to {total:.3g}; expected 0"
    return None


def _totals(found: Credits) -> dict[int, dict[str, float]]:
    totals: dict[int, dict[str, float]] = {}
    for one in found.agents:
        if one.credit is not None and np.isfinite(one.credit):
            totals.setdefault(one.episode, {})[one.agent] = one.credit
    return totals


def efficiency(method: Method) -> str | None:
    """The credits of an episode's players sum to what the team earned beyond what it earns with all of them silent."""
    episodes = random_episodes()
    for e, totals in _totals(_credits(method, episodes)).items():
        empty = episodes[e].counterfactuals[-1].reward
        expected = (episodes[e].reward or 0.0) - (empty or 0.0)
        if abs(sum(totals.values()) - expected) > 1e-9:
            return f"the credits of one episode sum to {sum(totals.values()):.6g}; expected {expected:.6g}"
    return None


def dummy(method: Method) -> str | None:
    """Whoever changes no coalition's outcome (c, who is never asked) has credit 0."""
    found = [totals["c"] for totals in _totals(_credits(method, random_episodes())).values() if "c" in totals]
    worst = max(map(abs, found), default=0.0)
    return None if worst <= 1e-9 else f"an agent that changes no outcome has the credit {worst:.3g}; expected 0"


def linearity(method: Method) -> str | None:
    """Three times the rewards, three times the credit."""
    one, three = (_credits(method, random_episodes(scale=scale)).credit for scale in (1.0, 3.0))
    return (
        None if np.allclose(3 * one, three, equal_nan=True) else "three times the rewards is not three times the credit"
    )


METHOD_CHECKS: dict[str, Callable[[Method], str | None]] = {
    "columns": columns,
    "left_out": left_out,
    "repeats": repeats,
    "order": order,
    "centred": centred,
    "efficiency": efficiency,
    "dummy": dummy,
    "linearity": linearity,
}
ALWAYS = ("columns", "left_out", "repeats", "order")
SUPPLIED = frozenset({"group", "tree", "replay"})
"""Needs that the random episodes meet."""


def promised(method: Method) -> list[str]:
    """Names of the checks that a method's own declaration asks for; none where it needs a judge, critic or the like."""
    if not method.needs <= SUPPLIED:
        return []
    return [name for name in METHOD_CHECKS if name in ALWAYS or name in method.axioms]
