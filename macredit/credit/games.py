"""Every episode is a cooperative game: its players are agents, turns, messages or links, its worths are replays.

v(S) is the team's reward with all players outside S silenced. The games of all episodes are asked together: at once
where every needed coalition is, in rounds where a budget makes an estimate of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

PlayersOf = Mapping[int, Sequence[Unit]]
"""Episode → the players of its game."""
MOST_ASKED = 2**12
"""Coalitions of one episode that are asked about without a budget."""
MOST_EVALUATIONS = 2**20
"""The largest budget of one episode."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What an index needs of a game, and how it reads its values."""

    size: int
    """How many values there are."""
    count: int
    """How many coalitions it reads."""
    coalitions: Callable[[], BoolN]
    """→ bool[C, n]; listed only once it is known that they are not too many."""
    values: Callable[[FloatN], FloatN]
    """float[C, R] worths → float[P, R]: one row a player or a link, one column a replicate."""


@dataclass(frozen=True)
class Budget:
    """How much may be asked of one episode."""

    evaluations: int
    """Terminal evaluations, replicates and the original among them."""
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


def solve(whatif: WhatIf, players: PlayersOf, needs: Mapping[int, Needs], most: int = MOST_ASKED) -> dict[int, Solved]:
    """The values of many episodes' games, from every coalition that they need; all are asked together.

    Args:
        whatif: replays.
        players: episode → its players.
        needs: episode → what the index needs.
        most: how many coalitions one episode may need.

    Raises:
        UserError: too many coalitions, or an outcome that neither the record nor a replay knows.
    """
    for e, names in players.items():
        if needs[e].count > most:
            raise UserError(
                f"episode {whatif.episodes[e].id!r} has {len(names)} players, which needs {needs[e].count} coalitions; "
                f"expected at most {most} without a budget: estimate with --method shapley --set budget=N, or use "
                "`difference` (leave-one-out)"
            )
    questions = {
        e: [(e, silenced) for silenced in _absent(names, needs[e].coalitions())] for e, names in players.items()
    }
    outcomes = iter(whatif.ask([question for batch in questions.values() for question in batch]))
    return {e: _solved([next(outcomes) for _ in batch], needs[e]) for e, batch in questions.items()}


def shapley_of_silence(whatif: WhatIf, players: PlayersOf, budget: Budget | None = None) -> dict[int, Solved]:
    """Shapley values of many episodes' games: from all coalitions, or estimated where a budget does not reach them."""
    most = MOST_ASKED if budget is None else budget.evaluations // whatif.replicates
    exact = {e: names for e, names in players.items() if budget is None or 2 ** len(names) <= most}
    solved = solve(whatif, exact, {e: every(len(names), shapley) for e, names in exact.items()}, most)
    rest = {e: names for e, names in players.items() if e not in exact}
    return {**solved, **(_estimated(whatif, rest, budget) if budget else {})}


def every(n: int, index: Callable[[FloatN], Any]) -> Needs:
    """An index that reads all 2^n worths."""

    def values(table_CR: FloatN) -> FloatN:
        return np.stack([index(worths) for worths in table_CR.T], axis=1) if n else np.zeros((0, table_CR.shape[1]))

    return Needs(n, 2**n, lambda: members_of(np.arange(2**n), n), values)


def some(index: Linear) -> Needs:
    """An index that reads the empty coalition and those of its structure."""
    masks = index.needed
    return Needs(len(index.weights), len(masks), lambda: members_of(masks, len(index.players)), index.read)


def none() -> Needs:
    """Nobody plays: nothing is valued, and only what happened is asked about."""
    return every(0, shapley)


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


def _estimated(whatif: WhatIf, players: PlayersOf, budget: Budget) -> dict[int, Solved]:
    """One session an episode, all of them a round at a time; the k-th visit of a coalition is its replicate k."""
    from macredit.values.session import visits_of
    from macredit.values.stopping import Width

    stop = Width(budget.width) if budget.width else None
    sessions = {e: _session(whatif, e, len(names), budget, stop) for e, names in players.items()}
    times: Counter[Hashable] = Counter()
    while rounds := {e: batch for e, session in sessions.items() if len(batch := session.ask())}:
        asked = [(e, silenced) for e, batch in rounds.items() for silenced in _absent(players[e], batch)]
        visits = visits_of(asked, times)
        rewards = iter(whatif.rewards([(*question, visit) for question, visit in zip(asked, visits, strict=True)]))
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
