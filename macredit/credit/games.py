"""Every episode is a cooperative game: its players are agents, turns, messages or links, its worths are replays.

v(S) is the team's reward with all players outside S silenced. The games of all episodes are asked together: at once
where every needed coalition is, in rounds where a budget makes an estimate of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from macredit.errors import UserError
from macredit.rows import BoolN, FloatN
from macredit.seeds import generator
from macredit.units import Coalition, Unit
from macredit.values.exact import shapley
from macredit.values.linear import Linear
from macredit.values.masks import members_of

if TYPE_CHECKING:
    from macredit.values.session import Session
    from macredit.values.stopping import Width
    from macredit.whatif import Outcome, WhatIf

MOST_COALITIONS = 2**12
"""Coalitions of one episode that are asked about without a budget."""


class Needs(NamedTuple):
    """What an index needs of a game, and how it reads its values."""

    size: int
    """How many values there are."""

    coalitions: BoolN
    """bool[C, n]."""
    values: Callable[[FloatN], FloatN]
    """float[C, R] worths → float[P, R]: one row a player or a link, one column a replicate."""


@dataclass(frozen=True)
class Budget:
    """How much may be asked of one episode."""

    evaluations: int
    """Terminal evaluations; 0: every coalition."""
    width: float = 0.0
    """Stop earlier, when every 95 % interval is at most this wide; 0: never."""
    seed: int = 0


@dataclass(frozen=True)
class Solved:
    """Values of one episode's players; NaN where an outcome is missing."""

    values: FloatN
    stderr: FloatN
    """0 exact, NaN not estimated."""
    replicates: FloatN | None = None
    """float[P, R], where all worths have R replicates."""
    worths: FloatN | None = None
    """float[C]: mean worths of the needed coalitions, where all were asked."""
    why: str = ""
    """How they were estimated."""

    def total(self, which: Sequence[int]) -> tuple[float, float]:
        """Sum of some players' values and its standard error."""
        value = float(self.values[list(which)].sum())
        if len(which) == 1 or not self.stderr[list(which)].any():
            return value, float(self.stderr[list(which)].sum())
        if self.replicates is None or self.replicates.shape[1] < 2:
            return value, np.nan
        return value, _sem(self.replicates[list(which)].sum(axis=0))


def solve(
    whatif: WhatIf, players: Mapping[int, Sequence[Unit]], needs: Mapping[int, Needs], budget: Budget | None = None
) -> dict[int, Solved]:
    """The values of many episodes' games.

    Args:
        whatif: replays.
        players: episode → its players.
        needs: episode → what the index needs.
        budget: an estimate of Shapley values for games that need more; None: all must be asked.

    Raises:
        UserError: too many coalitions without a budget, or an outcome that neither the record nor a replay knows.
    """
    spent = budget.evaluations if budget else 0
    asked = {e: spent == 0 or len(need.coalitions) <= spent for e, need in needs.items()}
    for e, whole in asked.items():
        if whole and len(needs[e].coalitions) > max(MOST_COALITIONS, spent):
            raise UserError(
                f"episode {whatif.episodes[e].id!r} has {len(players[e])} players, which needs "
                f"{len(needs[e].coalitions)} coalitions; expected at most {MOST_COALITIONS} without a budget: estimate "
                "with --method shapley --set budget=N, or use `difference` (leave-one-out)"
            )
    exact = _exact(whatif, {e: players[e] for e in players if asked[e]}, needs)
    rest = {e: players[e] for e in players if not asked[e]}
    return {**exact, **(_estimated(whatif, rest, budget) if budget else {})}


def shapley_of_silence(
    whatif: WhatIf, players: Mapping[int, Sequence[Unit]], budget: Budget | None = None
) -> dict[int, Solved]:
    """Shapley values of many episodes' games: exact, or estimated where a budget is smaller than 2^n."""
    needs = {e: every(len(names), shapley) for e, names in players.items()}
    return solve(whatif, players, needs, budget)


def every(n: int, index: Callable[[FloatN], Any]) -> Needs:
    """An index that reads all 2^n worths."""

    def values(table_CR: FloatN) -> FloatN:
        return np.stack([index(worths) for worths in table_CR.T], axis=1) if n else np.zeros((0, table_CR.shape[1]))

    return Needs(n, members_of(np.arange(2**n), n), values)


def some(weights: Linear) -> Needs:
    """An index that reads the empty coalition and those of its structure."""
    masks = np.concatenate([np.zeros(1, np.int64), weights.coalitions])
    rows = members_of(masks, len(weights.players))
    return Needs(len(weights.weights), rows, lambda table_CR: weights.weights @ (table_CR[1:] - table_CR[0]))


def none() -> Needs:
    """Nobody plays: nothing is asked, nothing is valued."""
    return every(0, shapley)


def _exact(whatif: WhatIf, players: Mapping[int, Sequence[Unit]], needs: Mapping[int, Needs]) -> dict[int, Solved]:
    questions = {e: [(e, silenced) for silenced in _absent(names, needs[e].coalitions)] for e, names in players.items()}
    outcomes = iter(whatif.ask([question for batch in questions.values() for question in batch]))
    return {e: _solved([next(outcomes) for _ in batch], needs[e]) for e, batch in questions.items()}


def _solved(outcomes: Sequence[Outcome], need: Needs) -> Solved:
    """Replicate by replicate, so that random numbers which coalitions share count in the standard error."""
    table_CR = _table(outcomes)
    if np.isnan(table_CR).any():
        lost = np.full(need.size, np.nan)
        return Solved(lost, lost)
    columns = need.values(table_CR)
    exact = all(outcome.exact for outcome in outcomes)
    stderr = np.array([0.0 if exact else _sem(row) for row in columns])
    return Solved(columns.mean(axis=1), stderr, columns, table_CR.mean(axis=1))


def _table(outcomes: Sequence[Outcome]) -> FloatN:
    """float[C, R]: one column for each replicate that all sampled outcomes have, else their means."""
    r = max(len(outcome.rewards) for outcome in outcomes)
    if all(len(outcome.rewards) == r or (outcome.exact and len(outcome.rewards) == 1) for outcome in outcomes):
        table_CR = np.array([o.rewards if len(o.rewards) == r else o.rewards * r for o in outcomes])
        complete = table_CR[:, ~np.isnan(table_CR).any(axis=0)]
        if complete.shape[1]:
            return complete
    return np.array([[outcome.mean] for outcome in outcomes])


def _sem(samples: FloatN) -> float:
    return float(samples.std(ddof=1) / np.sqrt(len(samples))) if len(samples) > 1 else np.nan


def _estimated(whatif: WhatIf, players: Mapping[int, Sequence[Unit]], budget: Budget) -> dict[int, Solved]:
    """One session an episode, all of them a round at a time; the k-th visit of a coalition is its replicate k."""
    from macredit.values.stopping import Width

    stop = Width(budget.width) if budget.width else None
    sessions = {e: _session(whatif, e, len(names), budget, stop) for e, names in players.items()}
    visits: dict[tuple[int, Coalition], int] = {}
    while rounds := {e: batch for e, session in sessions.items() if len(batch := session.ask())}:
        questions = []
        for e, batch in rounds.items():
            for silenced in _absent(players[e], batch):
                visit = visits.get((e, silenced), 0)
                visits[e, silenced] = visit + 1
                questions.append((e, silenced, visit))
        rewards = iter(whatif.rewards(questions))
        for e, batch in rounds.items():
            sessions[e].tell(batch, [next(rewards) for _ in batch])
    found = {e: session.estimate() for e, session in sessions.items()}
    return {e: Solved(f.values, f.stderr, why=f"{f.method}, {f.why}") for e, f in found.items()}


def _session(whatif: WhatIf, e: int, n: int, budget: Budget, stop: Width | None) -> Session:
    from macredit.values.session import Session

    seed = int(generator("session", budget.seed, whatif.episodes[e].id).integers(2**31))
    noise = whatif.replicates > 1
    return Session(n, budget.evaluations, seed, noise=noise, on_nan="drop", stop=stop)


def _absent(players: Sequence[Unit], coalitions: BoolN) -> list[Coalition]:
    """Who is silenced in each coalition."""
    return [frozenset(unit for unit, here in zip(players, row, strict=True) if not here) for row in coalitions.tolist()]
