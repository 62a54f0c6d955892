"""Counterfactual replays: what would have happened had somebody been silent, or said something else.

No avoidable call is made: a replay starts at the first turn that differs, the same question is remembered, recorded
outcomes are used first, two coalitions that agree on every agent that was asked have one outcome, equal calls of all
replays are made once, and all replays of all episodes are played together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from macredit.episode import Counterfactual, Episode, Turn
from macredit.errors import UserError
from macredit.ledger import Ledger
from macredit.policy import Policy, Said, tag
from macredit.rollout import Checkpoint, Memory, Plan, Scene, World, play
from macredit.rows import teams_of
from macredit.seeds import Continuation, Key
from macredit.team import Team

Absence = Literal["null_message", "reference_policy", "removed"]
"""What it means that an agent is not there: it says nothing, another policy speaks for it, or the graph lacks it."""
Players = Literal["specialists", "all"]
"""Who may be absent: all agents but the orchestrator, or everyone."""
REFERENCE = "reference"
"""Name of the policy that speaks for absent agents under ``reference_policy``."""
Coalition = frozenset[str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The team's reward in one counterfactual, one number per replicate that ended with a reward."""

    rewards: tuple[float, ...]
    exact: bool
    """Known without sampling: nothing was removed that was asked to speak."""

    @property
    def mean(self) -> float:
        """Mean reward; NaN if no replicate has one."""
        return float(np.mean(self.rewards)) if self.rewards else math.nan

    @property
    def stderr(self) -> float | None:
        """Standard error of the mean: 0 if exact, None (not estimated) with fewer than two replicates."""
        if self.exact:
            return 0.0
        n = len(self.rewards)
        return float(np.std(self.rewards, ddof=1)) / math.sqrt(n) if n > 1 else None


@dataclass(frozen=True, slots=True)
class _Seen:
    """One play's outcome: who was silenced, who was asked, what was earned."""

    silenced: Coalition
    asked: Coalition
    reward: float | None
    end: str = "done"


class WhatIf:
    """Replays of some episodes in one world; without a world, only what the record holds.

    Args:
        episodes: the originals; questions name them by index.
        world: environment and policies to replay with.
        absence: what being silenced means.
        players: who may be silenced.
        replicates: how often a noisy counterfactual is replayed (replicate 0 shares the original's random numbers, so
            that noise cancels against the realised reward; the others do not, and their mean keeps that noise).
        continuation: random numbers after a resampled turn.
        reuse: take recorded replies where nothing they depend on changed.
        ledger: counts the cost.
        on_end: called with each replay as it ends.
    """

    def __init__(
        self,
        episodes: Sequence[Episode],
        world: World | None = None,
        *,
        absence: Absence = "null_message",
        players: Players = "specialists",
        replicates: int = 1,
        continuation: Continuation = "independent",
        reuse: bool = True,
        ledger: Ledger | None = None,
        on_end: Callable[[Episode], None] | None = None,
    ) -> None:
        if replicates < 1:
            raise UserError(f"replicates is {replicates}; expected at least 1")
        if world is not None and absence == "reference_policy" and REFERENCE not in world.policies:
            raise UserError(
                f"absence reference_policy needs a policy named {REFERENCE!r}; add --policy {REFERENCE}=KIND"
            )
        self.episodes, self.world = tuple(episodes), world
        self.absence, self.players, self.replicates = absence, players, replicates
        self.continuation, self.reuse, self.on_end = continuation, reuse, on_end
        self.ledger = ledger if ledger is not None else Ledger()
        self.memory = Memory() if reuse else None
        self.warnings: list[str] = []
        self._points: dict[int, list[Checkpoint]] = {}
        self._seen: dict[tuple[int, int], list[_Seen]] = {}
        self._questions: dict[tuple[int, Coalition], None] = {}
        self._forks: dict[tuple[int, int, int], Episode] = {}

    @property
    def can_replay(self) -> bool:
        """Whether there is a world to replay in."""
        return self.world is not None

    def players_of(self, e: int) -> tuple[str, ...]:
        """The players of an episode's coalitions."""
        team = self._teams[e]
        return team.names if self.players == "all" else team.specialists

    @cached_property
    def _teams(self) -> tuple[Team, ...]:
        return teams_of(self.episodes)

    def asked(self, e: int) -> Coalition:
        """Who had a turn in an episode."""
        return frozenset(turn.agent for turn in self.episodes[e].turns)

    # -- coalitions -------------------------------------------------------------------------------------------------

    def ask(self, questions: Sequence[tuple[int, Coalition]]) -> list[Outcome]:
        """Outcomes of episodes with some agents silenced: (episode index, silenced) each.

        Raises:
            UserError: neither recorded nor replayable; names episode and agents.
        """
        waves: dict[int, list[tuple[int, Coalition]]] = {}
        self._questions.update(dict.fromkeys(questions))
        for e, silenced in dict.fromkeys(questions):
            waves.setdefault(len(silenced), []).append((e, silenced))
        for _, wave in sorted(waves.items()):
            self._play_wave(wave)
        return [self._outcome(e, silenced) for e, silenced in questions]

    def _play_wave(self, wave: Sequence[tuple[int, Coalition]]) -> None:
        missing = [
            (e, silenced, r)
            for e, silenced in wave
            if not self._recorded(e, silenced)
            for r in range(self.replicates)
            if self._known(e, silenced, r) is None
        ]
        self.ledger.replays_saved += len(wave) * self.replicates - len(missing)
        if not missing:
            return
        if self.world is None:
            e, silenced, _ = missing[0]
            raise UserError(
                f"episode {self.episodes[e].id!r} records no outcome with {sorted(silenced)} silenced "
                f"(absence {self.absence}); record it in 'counterfactuals', or give --env and --policy to replay it"
            )
        played = self.replay([self.silence(e, silenced, r) for e, silenced, r in missing])
        for (e, silenced, r), episode in zip(missing, played, strict=True):
            asked = frozenset(turn.agent for turn in episode.turns)
            reward = episode.reward if episode.scored else None
            self._seen.setdefault((e, r), []).append(_Seen(silenced, asked, reward, episode.end))

    def _recorded(self, e: int, silenced: Coalition) -> list[float | None]:
        return [
            seen.reward if not seen.end.startswith("failed") else None
            for seen in self.episodes[e].counterfactuals
            if frozenset(seen.silenced) == silenced and seen.absence == self.absence
        ]

    def _known(self, e: int, silenced: Coalition, r: int) -> _Seen | None:
        """An outcome that is known already: the same question, or one that agrees on every agent that was asked."""
        if self._untouched(e, silenced):
            return _Seen(frozenset(), self.asked(e), self.episodes[e].reward)
        for seen in self._seen.get((e, r), ()):
            same = seen.silenced == silenced
            if same or (self.absence != "removed" and seen.silenced & seen.asked == silenced & seen.asked):
                return seen
        return None

    def _untouched(self, e: int, silenced: Coalition) -> bool:
        """Whether the original itself answers the question."""
        return not silenced or (self.absence != "removed" and not silenced & self.asked(e))

    def _outcome(self, e: int, silenced: Coalition) -> Outcome:
        if self._untouched(e, silenced):
            episode = self.episodes[e]
            return Outcome((episode.reward,) if episode.scored and episode.reward is not None else (), exact=True)
        rewards = self._recorded(e, silenced)
        if not rewards:
            seen = [self._known(e, silenced, r) for r in range(self.replicates)]
            rewards = [known.reward for known in seen if known is not None]
        return Outcome(tuple(reward for reward in rewards if reward is not None), exact=False)

    def recorded(self) -> list[Episode]:
        """The episodes with every answer so far among their counterfactuals, to be asked again without a world."""
        found: dict[int, list[Counterfactual]] = {}
        for e, silenced in self._questions:
            if self._untouched(e, silenced) or self._recorded(e, silenced):
                continue
            for r in range(self.replicates):
                seen = self._known(e, silenced, r)
                if seen is not None:
                    outcome = Counterfactual(tuple(sorted(silenced)), seen.reward, self.absence, r, seen.end)
                    found.setdefault(e, []).append(outcome)
        return [
            replace(episode, counterfactuals=(*episode.counterfactuals, *found.get(e, ())))
            for e, episode in enumerate(self.episodes)
        ]

    # -- single interventions: each is a plan, played by replay() -----------------------------------------------------

    def replay(self, plans: Sequence[Plan]) -> list[Episode]:
        """Play interventions, all together."""
        self.ledger.replays += len(plans)
        world = self._need_world()
        return play(world, plans, ledger=self.ledger, memory=self.memory, on_end=self.on_end)

    def silence(self, e: int, agents: Iterable[str], replicate: int = 0) -> Plan:
        """Some agents say nothing (or are absent in the way this object was told)."""
        agents = frozenset(agents)
        name = f"{self.episodes[e].id}-without-{'+'.join(sorted(agents))}-{replicate}"
        if self.absence == "removed":
            return Plan(name, self._key(e).replicate(replicate), absent=agents)
        plan = self._plan(e, name, self._first(e, agents), self._key(e).replicate(replicate))
        if self.absence == "reference_policy":
            return replace(plan, cast=dict.fromkeys(agents, REFERENCE))
        return replace(plan, silenced=agents)

    def silence_message(self, e: int, turn: int) -> Plan:
        """One message is the null message."""
        return replace(self._plan(e, f"{self._turn_id(e, turn)}-muted", turn), muted=turn)

    def substitute(self, e: int, agent: str, policy: str) -> Plan:
        """Another policy speaks for an agent."""
        plan = self._plan(e, f"{self.episodes[e].id}-{agent}-by-{policy}", self._first(e, [agent]))
        return replace(plan, cast={agent: policy})

    def say_instead(self, e: int, turn: int, text: str) -> Plan:
        """Another text is said at a turn (the recorded text changes nothing, ids included)."""
        recorded = self.episodes[e].turns[turn]
        said = _said(self.episodes[e], turn) if text == recorded.text else Said(text)
        return replace(self._plan(e, f"{self._turn_id(e, turn)}-instead", turn), says={turn: said})

    def resample(self, questions: Sequence[tuple[int, int]], n: int) -> list[list[Episode]]:
        """``n`` alternatives of turns (episode index, turn index), the executed first, each continued to the end."""
        missing = [
            (e, turn, j) for e, turn in dict.fromkeys(questions) for j in range(1, n) if (e, turn, j) not in self._forks
        ]
        plans = [
            replace(
                self._plan(e, f"{self.episodes[e].id}.{turn}.{j}", turn, self._key(e).branch(turn, j)),
                forked_from={"episode": self.episodes[e].id, "turn": turn},
            )
            for e, turn, j in missing
        ]
        self._forks.update(zip(missing, self.replay(plans) if plans else (), strict=True))
        return [[self.episodes[e], *(self._forks[e, turn, j] for j in range(1, n))] for e, turn in questions]

    def branch(self, context: str, n: int) -> list[Episode]:
        """``n`` alternatives of the turn with this context digest, the executed one first, each continued to the end.

        Raises:
            UserError: no turn has this context.
        """
        for e, episode in enumerate(self.episodes):
            for t, turn in enumerate(episode.turns):
                if turn.context == context:
                    return self.resample([(e, t)], n)[0]
        raise UserError(f"no turn has the context {context!r}; expected the 'context' of a recorded turn")

    # -- the original, rebuilt -----------------------------------------------------------------------------------------

    def _plan(self, e: int, name: str, turn: int, key: Key | None = None) -> Plan:
        return Plan(name, key or self._key(e), self._rebuilt(e)[turn], continuation=self.continuation)

    def _key(self, e: int) -> Key:
        episode = self.episodes[e]
        if episode.seed is None:
            raise UserError(
                f"episode {episode.id!r} records no seed, so it cannot be replayed; expected 'seed' and 'group'"
            )
        return Key(episode.seed, episode.task, episode.group or 0, episode.sample or ())

    def _turn_id(self, e: int, turn: int) -> str:
        return self.episodes[e].turns[turn].id

    def _first(self, e: int, agents: Iterable[str]) -> int:
        """The first turn of any of these agents, or the end."""
        agents, turns = frozenset(agents), self.episodes[e].turns
        return next((t for t, turn in enumerate(turns) if turn.agent in agents), len(turns))

    def _need_world(self) -> World:
        if self.world is None:
            raise UserError("a replay needs an environment and policies; give --env and --policy")
        return self.world

    def _rebuilt(self, e: int) -> list[Checkpoint]:
        """The moments before each turn and at the end, by feeding the recorded messages; no model is called.

        Raises:
            UserError: the environment does not come to what the record says.
        """
        if e in self._points:
            return self._points[e]
        world, episode = self._need_world(), self.episodes[e]
        here = {agent.name: agent.role for agent in world.env.team.agents}
        if episode.team is not None and here != {agent.name: agent.role for agent in episode.team.agents}:
            raise _mismatch(episode, "agents and roles are others", f"a team of {', '.join(here)} with its own roles")
        scene = Scene(world, Plan(episode.id, self._key(e), continuation=self.continuation))
        points = []
        for t, turn in enumerate(episode.turns):
            points.append(scene.checkpoint())
            self._feed(scene, episode, t, turn)
        points.append(scene.checkpoint())
        self._check_end(scene, episode)
        self._points[e] = points
        return points

    def _feed(self, scene: Scene, episode: Episode, t: int, turn: Turn) -> None:
        world, env = self._need_world(), scene.env
        if env.end is not None or env.agent_selection != turn.agent:
            raise _mismatch(episode, f"turn {t} is {turn.agent!r}'s", env.end or env.agent_selection)
        request = scene.next_request()
        said = _said(episode, t)
        policy = world.speaker(turn.agent, {}) if not turn.null else None
        if self.memory is not None and policy is not None and self._same_policy(policy, turn):
            self.memory.keep(Memory.name(policy, request), said)
        scene.hear(request, said, policy, turn.null, told=turn)
        if turn.context not in (None, env.delivery.context):
            raise _mismatch(episode, f"turn {t} has context {turn.context}", env.delivery.context)

    def _same_policy(self, policy: Policy, turn: Turn) -> bool:
        """Whether the policy would have said what is recorded; a newer version is asked again, with a warning."""
        if turn.policy in (None, tag(policy)):
            return turn.policy is not None
        warning = f"recorded by {turn.policy}, replayed by {tag(policy)}: its replies are sampled anew"
        if warning not in self.warnings:
            self.warnings.append(warning)
        return False

    def _check_end(self, scene: Scene, episode: Episode) -> None:
        if episode.scored:
            reward, _ = scene.env.scores()
            if scene.env.end != episode.end or not math.isclose(reward, episode.reward or 0.0, abs_tol=1e-9):
                raise _mismatch(
                    episode, f"it ends {episode.end} with {episode.reward}", f"{scene.env.end} with {reward}"
                )


def _mismatch(episode: Episode, recorded: str, rebuilt: object) -> UserError:
    return UserError(
        f"episode {episode.id!r} does not replay: by the record {recorded}, in this environment it is {rebuilt}; "
        "give the environment and the arguments that made the record"
    )


def _said(episode: Episode, t: int) -> Said:
    """A recorded turn as the reply it was."""
    turn = episode.turns[t]
    return Said(
        turn.text, episode.prompt(t), turn.token_ids, turn.logprobs, turn.finish or "stop", turn.sampling,
        turn.usage,
    )  # fmt: skip
