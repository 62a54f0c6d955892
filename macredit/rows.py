"""Episodes as columns: one row a turn, in file order, with who, where, what it earned, and why it is left out.

The one place that knows the rules of the forest (shared turns, derived contexts, derived teams) and which rows count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from macredit.episode import Episode, Turn, numbered
from macredit.errors import OutsideError, UserError
from macredit.team import Agent, Team

FloatN = npt.NDArray[np.float64]
IntN = npt.NDArray[np.int64]
BoolN = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """Columns of length N (turns) over E episodes; see :func:`rows_of`."""

    episodes: tuple[Episode, ...]
    teams: tuple[Team, ...]
    """The team of each episode, recorded or derived."""
    agents: tuple[str, ...]
    """Names behind the ``agent`` codes, in order of appearance."""
    tasks: tuple[str, ...]
    """Names behind the ``task`` codes, in order of appearance."""
    episode: IntN
    """Which episode a row belongs to."""
    turn: IntN
    """Its index in that episode."""
    agent: IntN
    """Agent code."""
    task: IntN
    """Task code."""
    context: IntN
    """Context code: rows of one code were said by one agent after one and the same transcript of one task."""
    fact: IntN
    """The row of the first copy of this turn id: its own index except for repeated copies."""
    reward: FloatN
    """The row's reward: the team's, plus the agent's own, minus ``invalid_penalty`` on invalid turns; NaN if none."""
    valid: BoolN
    """False where the turn is known to be invalid."""
    null: BoolN
    """True where the speaker was silenced: nobody said this."""
    reasons: tuple[str | None, ...]
    """Why a row counts for nothing (``no reward``, ``failed:<where>``, ``empty``, ``silenced``); None: it counts."""

    @cached_property
    def counts(self) -> BoolN:
        """Which rows enter statistics and loss."""
        return np.array([reason is None for reason in self.reasons], dtype=np.bool_)

    @cached_property
    def first(self) -> BoolN:
        """Which rows are the first copy of their turn."""
        return np.asarray(self.fact == np.arange(len(self.fact)))

    @cached_property
    def team_reward(self) -> FloatN:
        """float[E]: the episodes' own rewards, NaN where an episode failed or has none."""
        return np.array([e.reward if e.scored else np.nan for e in self.episodes], dtype=np.float64)

    def at(self, row: int) -> Turn:
        """The turn behind a row."""
        return self.episodes[int(self.episode[row])].turns[int(self.turn[row])]

    def __len__(self) -> int:
        return len(self.episode)


def rows_of(episodes: Sequence[Episode], invalid_penalty: float = 0.0) -> Rows:
    """The columns of some episodes, in file order.

    Raises:
        UserError: no episode has a reward (see :func:`check_scored`), or a row's is infinite.
        OutsideError: every episode failed.
    """
    check_scored(episodes)
    agents: dict[str, int] = {}
    tasks: dict[str, int] = {}
    for episode in episodes:
        tasks.setdefault(episode.task, len(tasks))
    contexts: dict[object, int] = {}
    prefixes: dict[tuple[int, str], int] = {}
    facts: dict[str, int] = {}
    codes: list[tuple[int, int, int, int, int, int]] = []
    earned: list[tuple[float, str | None]] = []
    turns: list[Turn] = []
    prefix = 0
    for n, (e, t, episode, turn) in enumerate(numbered(episodes)):
        prefix = 0 if t == 0 else prefix
        agent, task = agents.setdefault(turn.agent, len(agents)), tasks[episode.task]
        place = turn.context if turn.context is not None else prefix
        context = contexts.setdefault((task, agent, place), len(contexts))
        prefix = prefixes.setdefault((prefix, turn.id), len(prefixes) + 1)
        codes.append((e, t, agent, task, context, facts.setdefault(turn.id, n)))
        earned.append(_earned(episode, turn, invalid_penalty))
        turns.append(turn)
    columns = np.array(codes, dtype=np.int64).reshape(-1, 6).T
    rows = Rows(
        episodes=tuple(episodes), teams=teams_of(episodes), agents=tuple(agents), tasks=tuple(tasks),
        episode=columns[0], turn=columns[1], agent=columns[2], task=columns[3], context=columns[4], fact=columns[5],
        reward=np.array([reward for reward, _ in earned], dtype=np.float64),
        valid=np.array([turn.valid is not False for turn in turns], dtype=np.bool_),
        null=np.array([turn.null for turn in turns], dtype=np.bool_),
        reasons=tuple(reason for _, reason in earned),
    )  # fmt: skip
    _check_finite(rows)
    return rows


def check_scored(episodes: Sequence[Episode]) -> None:
    """At least one episode has a reward.

    Raises:
        UserError: none has, and some did not fail: the record lacks rewards.
        OutsideError: all failed: the record lacks nothing, but what they were played with broke.
    """
    if any(e.scored for e in episodes):
        return
    failed = [e for e in episodes if e.failed]
    first = next((f"; the first: {e.error}" for e in failed if e.error), "")
    if failed and len(failed) == len(episodes):
        crossed = Counter(e.end.removeprefix("failed:") for e in failed).most_common()
        where = ", ".join(f"{count} in the {'environment' if at == 'env' else at}" for at, count in crossed)
        raise OutsideError(
            f"all of {len(episodes)} episodes failed ({where}{first}); mend that, then play again, or go on with a "
            "training run by --resume"
        )
    raise UserError(
        f"none of {len(episodes)} episodes has a reward ({len(failed)} failed{first}); expected a number in "
        "'reward' of at least one that did not fail"
    )


def _earned(episode: Episode, turn: Turn, invalid_penalty: float) -> tuple[float, str | None]:
    """A row's reward, and why it does not count."""
    if episode.failed:
        return np.nan, episode.end
    own = episode.agent_rewards.get(turn.agent, 0.0)
    if not episode.scored or episode.reward is None or own is None or np.isnan(own):
        return np.nan, "no reward"
    reward = episode.reward + own - (invalid_penalty if turn.valid is False else 0.0)
    if turn.null:
        return reward, "silenced"
    return reward, "empty" if turn.empty else None


def _check_finite(rows: Rows) -> None:
    infinite = np.flatnonzero(np.isinf(rows.reward))
    if len(infinite):
        row = infinite[0]
        raise UserError(
            f"group task {rows.tasks[rows.task[row]]!r}: the reward of turn {rows.turn[row]} in episode "
            f"{rows.episodes[rows.episode[row]].id!r}, the agent's own included, is {rows.reward[row]}; expected "
            "finite rewards; rescale them"
        )


def teams_of(episodes: Sequence[Episode]) -> tuple[Team, ...]:
    """Recorded teams; else the first speaker orchestrates everyone who speaks in any episode of the task."""
    speakers: dict[str, dict[str, None]] = {}
    for _, _, episode, turn in numbered(episodes):
        speakers.setdefault(episode.task, {})[turn.agent] = None
    derived: dict[tuple[str, str], Team] = {}
    teams = []
    for episode in episodes:
        if episode.team is not None:
            teams.append(episode.team)
            continue
        names = tuple(speakers.get(episode.task, {"nobody": None}))
        lead = episode.turns[0].agent if episode.turns else names[0]
        if (episode.task, lead) not in derived:
            edges = tuple((a, b) for a in names for b in names if a != b)
            derived[episode.task, lead] = Team(tuple(Agent(n) for n in names), lead, edges)
        teams.append(derived[episode.task, lead])
    return tuple(teams)
