"""Counterfactual replays: what would have happened had somebody been silent, or said something else.

No avoidable call is made: a replay starts at the first turn that differs, the same question is remembered, recorded
outcomes are used first, two coalitions that agree on everything that came up in a play have one outcome, equal calls
of all replays are made once, and all replays of all episodes are played together.
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
from macredit.moves import Values
from macredit.policy import Policy, Request, Said, tag
from macredit.retrace import key_of, mismatch, retrace
from macredit.rollout import Checkpoint, Memory, Plan, Scene, World, play
from macredit.rows import teams_of
from macredit.seeds import Continuation, Key
from macredit.team import Team
from macredit.units import Coalition, Over, TurnUnit, Unit, calls, units_by_turn, units_of

Absence = Literal["null_message", "reference_policy", "removed"]
"""What it means that an agent is not there: it says nothing, another policy speaks for it, or the graph lacks it."""
Players = Literal["specialists", "all"]
"""Who may be absent: all agents but the orchestrator, or everyone."""
REFERENCE = "reference"
"""Name of the policy that speaks for absent agents under ``reference_policy``."""
WHOLE: Coalition = frozenset()
"""Nothing is silenced."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The team's reward in one counterfactual, one number per replicate; NaN where a replicate has none."""

    rewards: tuple[float, ...]
    exact: bool
    """Known without sampling: nothing was taken away that came up in the episode."""

    @property
    def known(self) -> tuple[float, ...]:
        """The rewards there are."""
        return tuple(reward for reward in self.rewards if not math.isnan(reward))

    @property
    def mean(self) -> float:
        """Mean reward; NaN if no replicate has one."""
        return float(np.mean(self.known)) if self.known else math.nan

    @property
    def stderr(self) -> float | None:
        """Standard error of the mean: 0 if exact, None (not estimated) with fewer than two replicates."""
        if self.exact:
            return 0.0
        n = len(self.known)
        return float(np.std(self.known, ddof=1)) / math.sqrt(n) if n > 1 else None

    def less(self, other: Outcome) -> Outcome:
        """The difference to another outcome of the same episode, replicate by replicate.

        So noise that both share cancels. Where their replicates do not match, every one of the other's is taken from
        this one's mean.
        """
        if self.exact and other.exact:
            return Outcome((self.rewards[0] - other.rewards[0],), exact=True)
        whole = self.rewards if len(self.rewards) == len(other.rewards) else (self.mean,) * len(other.rewards)
        return Outcome(tuple(a - b for a, b in zip(whole, other.rewards, strict=True)), exact=False)


@dataclass(frozen=True, slots=True)
class _Seen:
    """One play's outcome."""

    reward: float | None
    end: str


class WhatIf:
    """Replays of some episodes in one world; without a world, only what the record holds.

    Args:
        episodes: the originals; questions name them by index.
        world: environment and policies to replay with.
        absence: what being silenced means.
        players: who may be silenced.
        replicates: how often a noisy counterfactual is replayed. Replicate 0 shares the original's random numbers; in
            the others all randomness after the first turn that differs is drawn anew, and the original is scored
            anew with it, so that the noise of the score cancels in every one.
        continuation: random numbers after a resampled turn.
        reuse: take recorded replies where nothing they depend on changed.
        ledger: counts the cost.
        on_end: called with each replay as it ends.
        critic: says what messages return without playing on, for methods that need one.
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
        critic: Values | None = None,
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
        self.critic = critic
        self.ledger = ledger if ledger is not None else Ledger()
        self.memory = Memory() if reuse else None
        self.warnings: list[str] = []
        self._points: dict[int, list[Checkpoint]] = {}
        self._seen: dict[tuple[int, int], dict[Coalition | None, dict[Coalition, _Seen]]] = {}
        """(Episode, replicate) → everything that came up in a play → what of it was silenced → outcome."""
        self._questions: dict[tuple[int, Coalition], None] = {}
        self._records: dict[int, dict[Coalition, list[Counterfactual]]] = {}
        self._by_turn: dict[int, list[Coalition]] = {}
        self._mets: dict[int, Coalition] = {}
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

    def units_of(self, e: int, over: Over) -> tuple[Unit, ...]:
        """The players of an episode's coalitions, which are over agents, turns, messages or links."""
        return self.players_of(e) if over == "agents" else units_of(self.episodes[e], self._teams[e], over)

    # -- coalitions -------------------------------------------------------------------------------------------------

    def ask(self, questions: Sequence[tuple[int, Coalition]]) -> list[Outcome]:
        """Outcomes of episodes with something taken away, over all replicates: (episode index, silenced) each.

        Raises:
            UserError: neither recorded nor replayable; names episode and what is silenced.
        """
        real = {question: (question[0], self._effect(*question)) for question in questions}
        sampled = dict.fromkeys((e, silenced) for e, silenced in real.values() if silenced)
        if self.world is not None and self.replicates > 1:
            sampled |= dict.fromkeys((e, WHOLE) for e, _ in sampled)
        self.rewards([(e, silenced, r) for e, silenced in sampled for r in range(self._replicates(e, silenced))])
        self.ledger.replays_saved += sum(not silenced for _, silenced in real.values())
        return [self._outcome(*real[question]) for question in questions]

    def rewards(self, questions: Sequence[tuple[int, Coalition, int]]) -> list[float]:
        """Single replicates: (episode index, silenced, replicate) each; NaN where a play ends without a reward.

        Raises:
            UserError: see :meth:`ask`.
        """
        real = [(e, self._effect(e, silenced), r) for e, silenced, r in questions]
        waves: dict[int, list[tuple[int, Coalition, int]]] = {}
        for question in dict.fromkeys(real):
            waves.setdefault(len(question[1]), []).append(question)
            self._questions[question[:2]] = None
        for _, wave in sorted(waves.items()):
            missing = [question for question in wave if self._known(*question) is None]
            self.ledger.replays_saved += sum(bool(silenced) for _, silenced, _ in wave) - len(missing)
            self._play_wave(missing)
        return [self._played(*question) for question in real]

    def _played(self, e: int, silenced: Coalition, r: int) -> float:
        seen = self._known(e, silenced, r)
        if seen is None:
            raise RuntimeError(
                f"replicate {r} of episode {self.episodes[e].id!r} without {set(silenced)} was not played"
            )
        return _reward(seen.reward)

    def _effect(self, e: int, silenced: Coalition) -> Coalition:
        """Nothing, if none of it came up in the original (and nobody is removed)."""
        return silenced if self.absence == "removed" or not silenced.isdisjoint(self._met(e)) else WHOLE

    def _play_wave(self, missing: Sequence[tuple[int, Coalition, int]]) -> None:
        if not missing:
            return
        if self.world is None:
            e, silenced, _ = missing[0]
            raise UserError(
                f"episode {self.episodes[e].id!r} records no outcome with {sorted(map(str, silenced))} silenced "
                f"(absence {self.absence}); {_where(silenced)}"
            )
        played = self.replay([self.silence(*question) for question in missing])
        for (e, silenced, r), episode in zip(missing, played, strict=True):
            met = None if self.absence == "removed" else _union(units_by_turn(episode, self._teams[e], self._heeded))
            seen = _Seen(episode.reward if episode.scored else None, episode.end)
            self._seen.setdefault((e, r), {}).setdefault(met, {})[_part(silenced, met)] = seen

    def _recorded(self, e: int, silenced: Coalition) -> list[Counterfactual]:
        """What the record knows, by replicate; of the whole team the first is what happened."""
        if e not in self._records:
            episode, known = self.episodes[e], self._records.setdefault(e, {})
            known[WHOLE] = [Counterfactual((), episode.reward, end=episode.end or "done")]
            for outcome in sorted(episode.counterfactuals, key=lambda outcome: outcome.replicate):
                if outcome.absence == self.absence:
                    known.setdefault(frozenset(outcome.silenced), []).append(outcome)
        return self._records[e].get(silenced, [])

    def _replicates(self, e: int, silenced: Coalition) -> int:
        """How many there are to ask for: as many as are recorded, if any are."""
        recorded = len(self._recorded(e, silenced))
        return recorded if recorded > (not silenced) else self.replicates

    def _known(self, e: int, silenced: Coalition, r: int) -> _Seen | None:
        """An outcome that is known already: the same question, or one that agrees on everything that came up."""
        recorded = self._recorded(e, silenced)
        if r < len(recorded):
            failed = recorded[r].end.startswith("failed")
            return _Seen(None if failed else recorded[r].reward, recorded[r].end)
        played = self._seen.get((e, r), {}).items()
        return next((by[part] for met, by in played if (part := _part(silenced, met)) in by), None)

    def _outcome(self, e: int, silenced: Coalition) -> Outcome:
        """All replicates; of the whole team what happened, and what was scored anew."""
        if silenced:
            replicates = range(self._replicates(e, silenced))
            return Outcome(tuple(self._played(e, silenced, r) for r in replicates), exact=False)
        seen = (self._known(e, WHOLE, r) for r in range(self._replicates(e, WHOLE)))
        return Outcome(tuple(_reward(known.reward) for known in seen if known is not None), exact=True)

    def _met(self, e: int) -> Coalition:
        """Everything that came up in an original."""
        if e not in self._mets:
            self._mets[e] = _union(self._units(e))
        return self._mets[e]

    def _units(self, e: int) -> list[Coalition]:
        if e not in self._by_turn:
            self._by_turn[e] = units_by_turn(self.episodes[e], self._teams[e], self._heeded)
        return self._by_turn[e]

    def _heeded(self, turn: Turn) -> bool:
        return self.world is None or turn.to is None or self.world.env.heeds(turn.agent, turn.to)

    def masked(self, e: int, agents: Iterable[str]) -> float:
        """The score of the recorded messages with those of some agents empty; nobody answers anew.

        Raises:
            UserError: there is no environment, or without those messages another turn would have come.
        """
        agents, episode = frozenset(agents), self.episodes[e]
        scene = Scene(self._need_world(), Plan(episode.id, key_of(episode)))
        for t, turn, request in retrace(scene, episode):
            scene.hear(request, _said(episode, t), null=turn.null or turn.agent in agents)
        if scene.env.end != episode.end:
            raise mismatch(episode, f"it is {episode.end} after the last turn", f"{scene.env.end or 'not over'} then")
        return scene.env.scores()[0]

    def recorded(self) -> list[Episode]:
        """The episodes with every answer about agents among their counterfactuals, to be asked without a world."""
        found: dict[int, list[Counterfactual]] = {}
        for e, silenced in self._questions:
            names = [unit for unit in silenced if isinstance(unit, str)]
            if len(names) < len(silenced):
                continue
            for r in range(len(self._recorded(e, silenced)), self.replicates):
                seen = self._known(e, silenced, r)
                if seen is not None:
                    outcome = Counterfactual(tuple(sorted(names)), seen.reward, self.absence, r, seen.end)
                    found.setdefault(e, []).append(outcome)
        return [
            replace(episode, counterfactuals=(*episode.counterfactuals, *found.get(e, ())))
            for e, episode in enumerate(self.episodes)
        ]

    @property
    def unrecorded(self) -> int:
        """How many answers :meth:`recorded` leaves out: those without single turns, messages or links."""
        return sum(any(not isinstance(unit, str) for unit in silenced) for _, silenced in self._questions)

    # -- single interventions: each is a plan, played by replay() -----------------------------------------------------

    def replay(self, plans: Sequence[Plan]) -> list[Episode]:
        """Play interventions, all together."""
        self.ledger.replays += len(plans)
        self.ledger.turns_kept += sum(len(plan.start.turns) for plan in plans if plan.start is not None)
        world = self._need_world()
        return play(world, plans, ledger=self.ledger, memory=self.memory, on_end=self.on_end)

    def silence(self, e: int, units: Iterable[Unit], replicate: int = 0) -> Plan:
        """Agents and turns say nothing, messages and links carry nothing; agents are absent as this object was told.

        Nothing to silence: the last turn is said again, and the score's noise is the replicate's.
        """
        silenced = frozenset(units)
        name = f"{self.episodes[e].id}-without-{'+'.join(sorted(map(str, silenced)))}-{replicate}"
        key = key_of(self.episodes[e]).replicate(replicate)
        agents = frozenset(unit for unit in silenced if isinstance(unit, str))
        if self.absence != "null_message" and len(agents) < len(silenced):
            raise UserError(f"absence {self.absence} is for agents; turns, messages and links take null_message")
        if self.absence == "removed" and silenced:
            return Plan(name, key, absent=agents)
        if not silenced:
            last = len(self.episodes[e].turns) - 1
            return replace(self._plan(e, name, last, key), says={last: _said(self.episodes[e], last)})
        plan = self._plan(e, name, self._first(e, silenced), key)
        if self.absence == "reference_policy":
            return replace(plan, cast=dict.fromkeys(agents, REFERENCE))
        return replace(plan, silenced=silenced)

    def silence_message(self, e: int, turn: int) -> Plan:
        """One turn is passed: its message is the null message."""
        _, call = list(calls(self.episodes[e].turns))[turn]
        unit = TurnUnit(self.episodes[e].turns[turn].agent, call)
        return replace(self._plan(e, f"{self._turn_id(e, turn)}-muted", turn), silenced=frozenset([unit]))

    def substitute(self, e: int, agent: str, policy: str) -> Plan:
        """Another policy speaks for an agent."""
        plan = self._plan(e, f"{self.episodes[e].id}-{agent}-by-{policy}", self._first(e, frozenset([agent])))
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
                self._plan(e, f"{self.episodes[e].id}.{turn}.{j}", turn, key_of(self.episodes[e]).branch(turn, j)),
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
        return Plan(name, key or key_of(self.episodes[e]), self._rebuilt(e)[turn], continuation=self.continuation)

    def _turn_id(self, e: int, turn: int) -> str:
        return self.episodes[e].turns[turn].id

    def _first(self, e: int, units: Coalition) -> int:
        """The first turn that any of these would change, or the end."""
        turns = self._units(e)
        return next((t for t, here in enumerate(turns) if not units.isdisjoint(here)), len(turns))

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
            raise mismatch(episode, "agents and roles are others", f"a team of {', '.join(here)} with its own roles")
        scene = Scene(world, Plan(episode.id, key_of(self.episodes[e]), continuation=self.continuation))
        points = []
        for t, turn, request in retrace(scene, episode):
            points.append(scene.checkpoint())
            self._feed(scene, request, turn, _said(episode, t))
            if turn.context not in (None, scene.env.delivery.context):
                raise mismatch(episode, f"turn {t} has context {turn.context}", scene.env.delivery.context)
        points.append(scene.checkpoint())
        self._check_end(scene, episode)
        self._points[e] = points
        return points

    def _feed(self, scene: Scene, request: Request, turn: Turn, said: Said) -> None:
        policy = self._need_world().speaker(turn.agent, {}) if not turn.null else None
        if self.memory is not None and policy is not None and self._same_policy(policy, turn):
            self.memory.keep(Memory.name(policy, request), said)
        scene.hear(request, said, policy, turn.null, told=turn)

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
                raise mismatch(
                    episode, f"it ends {episode.end} with {episode.reward}", f"{scene.env.end} with {reward}"
                )


def _where(silenced: Coalition) -> str:
    """How the outcome could be known."""
    if all(isinstance(unit, str) for unit in silenced):
        return "record it in 'counterfactuals', or give --env and --policy to replay it"
    return "a record holds outcomes without agents alone; give --env and --policy to replay it"


def _union(parts: Iterable[Coalition]) -> Coalition:
    return WHOLE.union(*parts)


def _part(silenced: Coalition, met: Coalition | None) -> Coalition:
    """What of it came up; all of it where that does not matter."""
    return silenced if met is None else silenced & met


def _reward(reward: float | None) -> float:
    return math.nan if reward is None else reward


def _said(episode: Episode, t: int) -> Said:
    """A recorded turn as the reply it was."""
    turn = episode.turns[t]
    return Said(
        turn.text, episode.prompt(t), turn.token_ids, turn.logprobs, turn.finish or "stop", turn.sampling,
        turn.usage,
    )  # fmt: skip
