"""Recorded episodes, and the world in which they are replayed."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclopts import Parameter

from macredit.cli.options import Arguments, Policies
from macredit.cli.screen import say
from macredit.cli.words import named, pairs, world_of
from macredit.config import AgentConfig, RunConfig
from macredit.episode import Episode, read_episodes, write_episodes
from macredit.errors import UserError
from macredit.truth import Truth, perfect, truth
from macredit.whatif import Absence, Players, WhatIf

_CODE = re.compile(r"[^\s:/]+:\w+")
"""``module:name``: imported and called only where the user names it, never because a record does."""


@Parameter(name="*")
@dataclass(frozen=True)
class Replays:
    """Where replays happen, and what absence means in them."""

    env: str = ""
    """The environment; empty takes the one that the record names."""
    arg: Arguments = ()
    policy: Policies = ()
    absence: Absence = "null_message"
    """What it means that an agent is silenced."""
    players: Players = "specialists"
    """Who may be silenced: all agents but the orchestrator, or everyone."""
    replicates: int = 1
    """How often a noisy counterfactual is replayed; the first shares the original's noise, the others do not."""
    record: Path | None = None
    """Write the episodes here with every outcome that was replayed, to be asked again without environment or model."""


AS_RECORDED = Replays()
"""Nothing is said about replays."""


@contextlib.contextmanager
def replaying(path: Path, replays: Replays) -> Iterator[WhatIf]:
    """The recorded episodes, with replays in the world that was given or recorded."""
    from macredit.progress import progress

    episodes = read_episodes(path)
    world = None
    if replays.policy or replays.env:
        config = RunConfig(_env_of(episodes, replays), named(replays.policy), _agents_of(episodes))
        world = world_of(config)
    with progress("replaying", None) as tick:
        whatif = WhatIf(
            episodes, world, absence=replays.absence, players=replays.players, replicates=replays.replicates,
            on_end=tick,
        )  # fmt: skip
        yield whatif
    if replays.record is not None:
        write_episodes(replays.record, whatif.recorded())
        if whatif.unrecorded:
            say(f"{whatif.unrecorded} outcomes without single turns, messages or links are not in the record: it holds "
                "those without agents alone")  # fmt: skip


def _env_of(episodes: Sequence[Episode], replays: Replays) -> dict[str, Any]:
    if replays.env:
        return {"name": replays.env, **pairs(replays.arg)}
    recorded = {json.dumps([e.env, e.env_args], sort_keys=True) for e in episodes}
    first = episodes[0]
    if len(recorded) > 1 or first.env is None:
        raise UserError("the episodes name no single environment to replay in; give --env NAME")
    code = [text for text in (first.env, *(first.env_args or {}).values()) if _CODE.fullmatch(str(text))]
    if code:
        raise UserError(f"the record names code to run, {code[0]!r}; if you trust it, give --env and --arg yourself")
    return {**(first.env_args or {}), **pairs(replays.arg), "name": first.env}


def _agents_of(episodes: Sequence[Episode]) -> tuple[AgentConfig, ...]:
    """Roles and policies as recorded: a replay asks the team that played."""
    team = episodes[0].team
    if team is None or any(e.team != team for e in episodes):
        return ()
    return tuple(AgentConfig(a.name, a.role, a.policy, trainable=a.trainable) for a in team.agents)


def truth_of(whatif: WhatIf) -> Truth:
    """The exact credit, where the episodes' environment knows it."""
    from macredit.env import TeamEnv
    from macredit.envs import ENVS, env_class, make_env

    if whatif.world is not None:
        return truth(whatif.world)
    first = whatif.episodes[0]
    same = all((e.env, e.env_args) == (first.env, first.env_args) for e in whatif.episodes)
    if not same or first.env not in ENVS or env_class(first.env).exact_credit is TeamEnv.exact_credit:
        return Truth({}, "")
    return perfect(make_env(first.env, **(first.env_args or {})))
