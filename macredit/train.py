"""The whole circle: rollouts, credit, one update per policy, again; killed runs go on where they stood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from macredit.bounds import check_bounds
from macredit.collect import Fanout, collect
from macredit.config import RunConfig, learner_config
from macredit.credit import Credits, Method, resolve
from macredit.elsewhere import Learns
from macredit.episode import Episode, read_episodes, write_episodes
from macredit.errors import UserError
from macredit.evaluate import evaluate
from macredit.learn import Learner, train_rows
from macredit.learn.handover import HandsOver
from macredit.learn.team_critic import critic_in
from macredit.ledger import Ledger
from macredit.overlap import Ahead
from macredit.progress import Tick, progress
from macredit.rollout import Plan, World
from macredit.rows import rows_of
from macredit.run_folder import RunFolder
from macredit.seeds import Key
from macredit.trackers import Opener, Tracker, flat, tracking
from macredit.warm_start import imitate
from macredit.whatif import WhatIf


def train(
    world: World, config: RunConfig, out: Path, *, solo: World | None = None, resume: bool = False,
    trackers: Mapping[str, Opener] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Train a team.

    Args:
        world: environment and policies; those of trainable agents learn.
        config: method, steps, seeds.
        out: the run's folder (see :mod:`macredit.run_folder`).
        solo: one agent alone on the same tasks, evaluated beside the team.
        resume: go on from the newest checkpoint.
        trackers: name → opener of what gets every number too (see :mod:`macredit.trackers`).

    Returns:
        One dict of metrics a step.

    Raises:
        UserError: a policy that cannot learn, a checkpoint of another model, or a budget too small for the method.
    """
    run = Run(world, config, out, solo)
    if resume:
        run.load()
    else:
        run.begin()
    t = config.train
    with tracking(trackers or {}, out, config.json(), resume) as run.trackers:
        run.hand_over()
        if not resume:
            run.evaluate()
        with (
            progress("training", t.steps, run.step) as tick,
            Ahead(run.make, run.step, t.steps, t.staleness) as ahead,
        ):
            while run.step < t.steps:
                begun = perf_counter()
                batch = run.credited(ahead.take())
                learned = run.learn(batch.credits)
                ahead.wait()
                handed = run.hand_over()
                run.record(batch, learned, handed, perf_counter() - begun, tick)
                if run.due(t.evaluate_every):
                    run.evaluate()
                if run.due(t.save_every):
                    run.save()
    run.export()
    return run.metrics


@dataclass(frozen=True)
class Collected:
    """The episodes of one step."""

    episodes: Sequence[Episode]
    ledger: Ledger
    """What they cost, and the replays behind their credit."""
    staleness: int
    """How many updates were missing in the weights that spoke, of those that came before this step's."""


@dataclass(frozen=True)
class Batch(Collected):
    """What one step learns from."""

    credits: Credits
    whatif: WhatIf
    """The replays behind the credits."""


@dataclass
class Run:
    """One training run: what the stages of the circle share."""

    world: World
    config: RunConfig
    out: Path
    solo: World | None = None
    trackers: Sequence[Tracker] = ()
    step: int = 0

    def __post_init__(self) -> None:
        chosen, t = self.config.method, self.config.train
        check_bounds(t)
        for turn, n in (t.fanout or {}).items():
            if not turn.isdecimal() or n < 1:
                raise UserError(f"fanout is {t.fanout}; expected a number of alternatives by turn, as 0 → 4")
        if t.pool % t.tasks:
            raise UserError(
                f"pool is {t.pool} and tasks is {t.tasks}; expected a pool of a multiple of the tasks a step"
            )
        self.method, self.settings = resolve(chosen.name, chosen.preset, chosen.settings)
        self.learners = learners(self.world, self.method, self.config.learner)
        needs = self.method.needs_with(self.settings)
        self.critic = critic_in(self.world, t.staleness) if "critic" in needs else None
        self._check_staleness()
        self.folder = RunFolder(self.out, {**self.learners, **({"": self.critic} if self.critic is not None else {})})
        self.ledger = Ledger()
        self.whatif = WhatIf(())
        self.metrics: list[dict[str, Any]] = []

    def _check_staleness(self) -> None:
        if self.config.train.staleness:
            if self.critic is not None and "replay" in self.method.needs:
                raise UserError(
                    f"staleness is {self.config.train.staleness}, but {self.method.name} asks for replays, which come "
                    "with a step's episodes, and for a critic, which has to have learned from the steps before; leave "
                    "staleness at 0"
                )
            for name, learner in self.learners.items():
                if not isinstance(learner.policy, HandsOver):
                    raise UserError(
                        f"staleness is {self.config.train.staleness}, but policy {name!r} speaks with the very weights "
                        "that learn; put an engine before it (--engine copy), or leave staleness at 0"
                    )

    # -- the stages ---------------------------------------------------------------------------------------------------

    def make(self, step: int) -> Collected:
        """What can be had of a step before the one before it is learned: with a critic, not the credit."""
        collected = self.collect(step)
        return collected if self.critic is not None else self.credited(collected)

    def collect(self, step: int) -> Collected:
        """A step's episodes, with the weights handed over last.

        A task that comes again has the same instance and new members of its group.
        """
        t, staleness, ledger = self.config.train, step - self.step, Ledger()
        again, first = divmod(step * t.tasks, t.pool) if t.pool else (0, step * t.tasks)
        names = [f"t{first + i}" for i in range(t.tasks)]

        def plans(group: int) -> list[Plan]:
            members = range(again * group, (again + 1) * group)
            return [Plan(f"{name}-{g}", Key(t.seed, name, g)) for name in names for g in members]

        fanout: Fanout = {int(turn): n for turn, n in t.fanout.items()} if t.fanout else "auto"
        episodes = collect(self.world, self.method.needs, plans, t.group, fanout, ledger)
        return Collected(episodes, ledger, staleness)

    def credited(self, made: Collected) -> Batch:
        """Who earned the reward: the method's credits and advantages, and the replays behind them."""
        if isinstance(made, Batch):
            return made
        chosen = self.config.method
        whatif = WhatIf(
            made.episodes, self.world if "replay" in self.method.needs else None, absence=chosen.absence,
            players=chosen.players, replicates=chosen.replicates, ledger=made.ledger, critic=self.critic,
        )  # fmt: skip
        rows = rows_of(made.episodes, getattr(self.settings, "invalid_penalty", 0.0))
        credits = self.method.run(rows, self.settings, whatif)
        return Batch(made.episodes, made.ledger, made.staleness, credits, whatif)

    def learn(self, credits: Credits) -> dict[str, Any]:
        """One update of each policy on its own rows, and of the critic on all: their credit is computed without it."""
        valued = {"critic": self.critic.fit(credits.rows)} if self.critic is not None else {}
        rows = {name: train_rows(credits, name) for name in self.learners}
        if self.world.elsewhere is not None:
            return {"learners": self.world.elsewhere.learn(rows), **valued}
        return {"learners": {name: learner.update(rows[name]) for name, learner in self.learners.items()}, **valued}

    def hand_over(self) -> dict[str, dict[str, float]]:
        """New weights to the engines that speak, where others do than those that learn; what it cost and showed."""
        policies = {name: learner.policy for name, learner in self.learners.items()}
        return {name: policy.hand_over() for name, policy in policies.items() if isinstance(policy, HandsOver)}

    def record(
        self, batch: Batch, learned: Mapping[str, Any], handed: Mapping[str, Any], seconds: float, tick: Tick
    ) -> None:
        """Write the step's numbers."""
        self.step += 1
        self.whatif = batch.whatif
        self.ledger.add(batch.ledger)
        self.ledger.seconds += batch.ledger.seconds  # one batch after the other
        row = {"step": self.step, **summary(batch, seconds), **learned}
        if handed:
            row |= {"hand_over": handed, "staleness": batch.staleness}
        self._log({**row, "cost": self.ledger.json()})
        tick(note=noted(row))

    def evaluate(self) -> None:
        """Score the team (and one agent alone) on held-out tasks."""
        t = self.config.train
        if not t.evaluate_tasks:
            return
        for what, world in (("evaluation", self.world), ("solo", self.solo)):
            if world is not None:
                score = evaluate(world, t.evaluate_tasks, t.evaluate_k, t.seed, t.success)
                self._log({"step": self.step, what: score.json()})

    def due(self, every: int) -> bool:
        """Whether something that happens every so many steps, and after the last, happens now."""
        return self.step == self.config.train.steps or bool(every and self.step % every == 0)

    # -- the folder ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A new run, from a warm start if asked for."""
        t = self.config.train
        self.folder.begin(self.config.json())
        if t.warm_start:
            imitate(self.world, self.learners, read_episodes(t.warm_start), t.warm_steps)

    def _log(self, row: dict[str, Any]) -> None:
        self.metrics.append(row)
        self.folder.log(row)
        for tracker in self.trackers:
            tracker.log(flat(row), self.step)

    def save(self) -> None:
        """A checkpoint; the last episodes are kept with all replayed outcomes."""
        write_episodes(self.out / "episodes.jsonl", self.whatif.recorded())
        self.folder.save(self.step, {"ledger": self.ledger.json(), "method": self.method.name})

    def load(self) -> None:
        """Go on from the newest checkpoint."""
        about, self.metrics = self.folder.load()
        self.step = about["step"]
        self.ledger.load(about["ledger"])

    def export(self) -> None:
        """Every trained policy as a plain folder of its own."""
        for name, learner in self.learners.items():
            learner.policy.export(self.out / name)


def learners(world: World, method: Method, settings: Mapping[str, Any]) -> dict[str, Learns]:
    """One learner for each policy that speaks for a trainable agent.

    Raises:
        UserError: nobody is trainable, a policy cannot learn, or frozen and trainable agents share a policy.
    """
    team = world.env.team
    names = dict.fromkeys(agent.policy for agent in team.agents if agent.trainable)
    if not names:
        raise UserError("every agent is frozen; expected at least one trainable agent")
    both = names.keys() & {agent.policy for agent in team.agents if not agent.trainable}
    if both:
        raise UserError(
            f"frozen and trainable agents share policy {sorted(both)[0]!r}; give them policies of their own"
        )
    config = learner_config(method, settings)
    speakers = {agent.policy: world.speaker(agent.name, {}) for agent in team.agents if agent.trainable}
    if world.elsewhere is not None:
        return dict(world.elsewhere.learners_of(speakers, config))
    return {name: Learner(policy, config) for name, policy in speakers.items()}


def summary(batch: Batch, seconds: float) -> dict[str, Any]:
    """The numbers of one step worth watching, besides what learners and hand-overs show."""
    episodes, credits, cost = batch.episodes, batch.credits, batch.ledger
    rewards = np.array([e.reward for e in episodes if e.scored], dtype=np.float64)
    turns = [turn for episode in episodes for turn in episode.turns]
    own: dict[str, list[float]] = {}
    for total in credits.agents:
        own.setdefault(total.agent, []).extend([] if total.credit is None else [total.credit])
    groups = credits.notes.get("groups", 0)
    dead = credits.notes.get("groups without a signal", 0) + credits.notes.get("singleton groups", 0)
    return {
        "reward": float(rewards.mean()),
        "reward_std": float(rewards.std()),
        "credit": {agent: float(np.mean(values)) if values else None for agent, values in own.items()},
        "dead_groups": dead / groups if groups else 0.0,
        "invalid": float(np.mean([turn.valid is False for turn in turns])) if turns else 0.0,
        "turns": float(np.mean([len(episode.turns) for episode in episodes])),
        "truncated": sum(episode.end == "truncated" for episode in episodes),
        "failed": sum(episode.failed for episode in episodes),
        "warnings": list(credits.warnings),
        "seconds": seconds,
        "tokens_per_second": sum(len(turn.token_ids or ()) for turn in turns) / seconds,
        "cache_hit_rate": cost.cache_hit_rate,
    }


def noted(row: Mapping[str, Any]) -> str:
    """A step in a line."""
    credit = " ".join(f"{agent} {value:+.2f}" for agent, value in row["credit"].items() if value is not None)
    parts = [f"reward {row['reward']:.3f}", credit, f"dead groups {row['dead_groups']:.0%}"]
    parts.append(f"{row['tokens_per_second']:.0f} tokens/s")
    if row["cache_hit_rate"]:
        parts.append(f"prefix cache {row['cache_hit_rate']:.0%}")
    apart = [one["mismatch_max"] for one in row["learners"].values() if "mismatch_max" in one]
    if "hand_over" in row and apart:
        parts.append(f"engine and learner {max(apart):.1e} nats apart")
    if row.get("staleness"):
        parts.append(f"weights {row['staleness']} behind")
    return " · ".join(parts)
