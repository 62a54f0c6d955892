"""What was played: team, environment, episodes, reward, ends, and everything that was left out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from macredit.report.table import mean_interval, team_names
from macredit.rows import Rows


@dataclass(frozen=True, slots=True)
class Summary:
    """The facts of the headline."""

    agents: tuple[str, ...]
    orchestrators: tuple[str, ...]
    environments: tuple[str, ...]
    episodes: int
    tasks: int
    turns: int
    scored: int
    """Episodes with a reward that did not fail."""
    reward: tuple[float, float, float]
    """Mean reward of the scored episodes and its 95 % interval."""
    ends: Mapping[str, int]
    invalid: int
    left_out: Mapping[str, int]
    """Why turns count for nothing → how many."""
    errors: Mapping[str, str]
    """Failed episode → its error."""


def summary(rows: Rows) -> Summary:
    """The headline facts of some episodes."""
    episodes, first = rows.episodes, rows.first
    earned = rows.team_reward
    return Summary(
        agents=team_names(rows),
        orchestrators=tuple(dict.fromkeys(team.orchestrator for team in rows.teams)),
        environments=tuple(dict.fromkeys(_environment(e.env, e.env_args) for e in episodes if e.env is not None)),
        episodes=len(episodes),
        tasks=len(rows.tasks),
        turns=int(first.sum()),
        scored=int(np.isfinite(earned).sum()),
        reward=mean_interval(earned[np.isfinite(earned)].tolist()),
        ends=dict(Counter(e.end for e in episodes)),
        invalid=int((first & ~rows.valid).sum()),
        left_out=dict(Counter(r for r, new in zip(rows.reasons, first, strict=True) if new and r is not None)),
        errors={e.id: e.error or e.end for e in episodes if e.failed},
    )


def _environment(name: str, args: Mapping[str, object] | None) -> str:
    given = ", ".join(f"{k}={json.dumps(v, ensure_ascii=False, default=str)}" for k, v in (args or {}).items())
    return f"{name}({given})" if given else name


def messages(rows: Rows) -> dict[tuple[str, str], int]:
    """(sender, recipient) → number of delivered messages, each turn counted once; unknown recipients count nowhere."""
    sent: Counter[tuple[str, str]] = Counter()
    for n in np.flatnonzero(rows.first & rows.valid & ~rows.null):
        turn = rows.at(int(n))
        sent.update((turn.agent, name) for name in turn.to or ())
    return dict(sent)


def served_by(rows: Rows) -> tuple[str, ...]:
    """The policies whose turns say that they cannot be reproduced."""
    turns = (turn for episode in rows.episodes for turn in episode.turns)
    served = (turn for turn in turns if turn.sampling and turn.sampling.get("reproducible") is False)
    return tuple(dict.fromkeys((turn.policy or turn.agent).partition("@")[0] for turn in served))
