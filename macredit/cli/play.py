"""``macredit play``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from macredit.cli.options import Arguments, Data, Output, Policies
from macredit.cli.screen import say
from macredit.cli.words import env_args, named, world_of
from macredit.config import RunConfig
from macredit.episode import Episode, EpisodeWriter
from macredit.errors import UserError


def play(
    env: str,
    *,
    policy: Policies = (),
    arg: Arguments = (),
    data: Data = "",
    n: Annotated[int, Parameter(name=["--episodes", "-n"])] = 64,
    group: int = 8,
    seed: int = 0,
    out: Output = Path("episodes.jsonl"),
) -> None:
    """Play episodes and write them as JSON Lines.

    Args:
        env: An environment; `macredit envs` lists them. Your own: module:Class.
        n: How many episodes.
        group: Members of each task's group: they face one problem and answer differently.
        seed: Draws tasks and replies; the same seed writes the same file.
        out: The episodes file.
    """
    from macredit.progress import progress
    from macredit.rollout import play as play_plans
    from macredit.rollout import tasks_of

    if n < 1 or group < 1:
        raise UserError(f"-n {n} --group {group} was given; expected at least 1 of each")
    world = world_of(RunConfig({"name": env, **env_args(arg, data)}, named(policy)))
    plans = tasks_of(seed, -(-n // group), group)[:n]
    with EpisodeWriter(out) as writer, progress("playing", n) as tick:

        def keep(episode: Episode) -> None:
            writer.write(episode)
            tick()

        try:
            episodes = play_plans(world, plans, on_end=keep)
        finally:
            writer.finish(plan.id for plan in plans)
    scored = [e.reward for e in episodes if e.scored and e.reward is not None]
    failed = [e for e in episodes if e.failed]
    mean = f"mean reward {sum(scored) / len(scored):.3f}" if scored else "no reward"
    say(f"{out}: {len(episodes)} episodes, {mean}, {len(failed)} failed")
    if failed:
        say(f"first failure: {failed[0].id} ended {failed[0].end} ({failed[0].error})")
