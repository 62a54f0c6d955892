"""``play``: many episodes at once, without a tick; every call that waits for one policy goes together."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from macredit.env import Snapshot, TeamEnv, parse
from macredit.episode import Episode, Turn
from macredit.errors import OutsideError, UserError
from macredit.ledger import Ledger
from macredit.policy import Chat, Policy, Request, Said, opening, tag
from macredit.seeds import Continuation, Key
from macredit.units import Coalition, Link, MessageUnit, TurnUnit

if TYPE_CHECKING:
    from macredit.elsewhere import Elsewhere

T = TypeVar("T")

IN_FLIGHT = 1024
"""Episodes alive at once: enough to fill any batch, few enough to fit in memory."""


@dataclass(frozen=True)
class World:
    """What a play needs: the environment (and through it the team), and who speaks."""

    env: TeamEnv
    policies: Mapping[str, Policy]
    elsewhere: Elsewhere | None = None
    """Who plays instead, in other processes; None: this process."""

    def __post_init__(self) -> None:
        for name, policy in self.policies.items():
            policy.name = policy.name or name
            if policy.name != name:
                raise UserError(f"policy {policy.name!r} was given as {name!r}; give it under its own name")

    def speaker(self, agent: str, cast: Mapping[str, str]) -> Policy:
        """The policy that speaks for an agent.

        Raises:
            UserError: the policy was not given.
        """
        name = cast.get(agent) or self.env.team[agent].policy
        if name not in self.policies:
            raise UserError(
                f"agent {agent!r} is spoken for by policy {name!r}, and only {sorted(self.policies)} are given; "
                f"add --policy {name}=KIND"
            )
        return self.policies[name]


@dataclass(frozen=True, slots=True)
class Talk:
    """One agent's conversation so far."""

    messages: tuple[Chat, ...] = ()
    after: Said | None = None
    turn: str | None = None
    """Id of the turn behind ``after``."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A moment of a play to go on from."""

    snapshot: Snapshot
    turns: tuple[Turn, ...]
    talks: Mapping[str, Talk]


@dataclass(frozen=True)
class Plan:
    """One play to be made: the key, where it starts, and what is changed."""

    id: str
    key: Key
    start: Checkpoint | None = None
    """None: from the first message."""
    silenced: Coalition = frozenset()
    """Agents and turns that say nothing; messages and links that carry nothing."""
    absent: frozenset[str] = frozenset()
    """Agents taken out of the graph."""
    says: Mapping[int, Said] = field(default_factory=dict)
    """Turn → what is said there instead of asking."""
    cast: Mapping[str, str] = field(default_factory=dict)
    """Agent → another policy that speaks for it."""
    continuation: Continuation = "independent"
    forked_from: Mapping[str, str | int] | None = None


def tasks_of(seed: int, tasks: int | Sequence[str], group: int = 1, prefix: str = "t") -> list[Plan]:
    """Plans of ``group`` plays of each task, in key order."""
    names = [f"{prefix}{i}" for i in range(tasks)] if isinstance(tasks, int) else tasks
    return [Plan(f"{name}-{g}", Key(seed, name, g)) for name in names for g in range(group)]


class Memory:
    """Replies on record: a call whose policy, sampling, prompt and key equal a recorded one is not made again."""

    def __init__(self) -> None:
        self._said: dict[str, dict[tuple[str, ...], Said]] = {}

    @staticmethod
    def name(policy: Policy, request: Request) -> tuple[str, ...]:
        """What a reply depends on; its task comes first, since no call of one task equals a call of another."""
        sampling = json.dumps(policy.sampling, sort_keys=True)
        return request.key.task, policy.name, policy.version, sampling, request.fingerprint()

    def keep(self, name: tuple[str, ...], said: Said) -> None:
        """Put a reply on record."""
        self._said.setdefault(name[0], {})[name] = said

    def recall(self, name: tuple[str, ...]) -> Said | None:
        """The reply on record, if there is one."""
        return self._said.get(name[0], {}).get(name)

    def of(self, task: str) -> Mapping[tuple[str, ...], Said]:
        """Everything on record about one task."""
        return self._said.get(task, {})


class Scene:
    """One play in progress: the environment, the conversations, the turns so far."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world, self.plan = world, plan
        self._unheard = frozenset(unit for unit in plan.silenced if isinstance(unit, MessageUnit | Link))
        self.error: str | None = None
        self.failed: str | None = None
        self.asking: Policy | None = None
        start = plan.start
        self.turns: list[Turn] = list(start.turns) if start else []
        self.talks: dict[str, Talk] = dict(start.talks) if start else {}
        self._env: TeamEnv | None = None

    @property
    def env(self) -> TeamEnv:
        """The environment, begun when it is first needed (a crash there belongs to this episode)."""
        if self._env is None:
            start = self.plan.start
            self._env = self.world.env.branch(start.snapshot if start else None)
            if start is None:
                self._env.reset(options={"key": self.plan.key, "absent": self.plan.absent})
        return self._env

    def request(self) -> Request | None:
        """Go on without calls until an agent must be asked; None when the episode is over."""
        while self.env.end is None:
            env, plan = self.env, self.plan
            agent, turn = env.agent_selection, env.turn
            request = self.next_request()
            if not plan.silenced.isdisjoint((agent, TurnUnit(agent, env.spoke(agent)))):
                self.hear(request, Said(""), null=True)
            elif turn in plan.says:
                self.hear(request, plan.says[turn])
            else:
                self.asking = self.world.speaker(agent, plan.cast)
                return request
        return None

    def next_request(self) -> Request:
        """What the selected agent would be asked now."""
        env = self.env
        agent = env.agent_selection
        talk = self.talks.get(agent, Talk())
        env.key = self.plan.key.at_turn(env.turn, self.plan.continuation)
        opened = opening(env.team[agent].role)
        before = talk.messages or opened
        shown = Chat("user", env.observe(agent)["text"])
        return Request(
            agent, (*before, shown), env.key, env.spoke(agent), env.addresses(agent), len(opened), talk.after
        )  # fmt: skip

    def hear(
        self, request: Request, said: Said, policy: Policy | None = None, null: bool = False, told: Turn | None = None
    ) -> None:
        """Take the reply to a request, and record the turn (``told``: the one on record, where there is one)."""
        env, agent = self.env, request.agent
        number = env.turn
        env.lost = self._lost(agent)
        if null:
            env.pass_turn()
        else:
            env.step(said.text)
        there = env.delivery
        talk = self.talks.get(agent, Talk())
        new_ids, after = _continued(said, talk)
        turn = told or Turn(
            agent=agent,
            text=said.text,
            id=f"{self.plan.id}/{number}",
            to=there.to,
            reads=tuple(self.turns[t].id for t in there.reads),
            valid=there.valid,
            null=null,
            reward=there.reward,
            context=there.context,
            finish=None if null else said.finish,
            prompt_ids=new_ids,
            prompt_after=after,
            token_ids=said.token_ids,
            logprobs=said.logprobs,
            sampling=said.sampling,
            policy=tag(policy) if policy else None,
            usage=said.usage,
        )
        self.turns.append(turn)
        ids = said if said.token_ids is not None and said.prompt_ids is not None else None
        self.talks[agent] = Talk((*request.messages, Chat("assistant", said.text)), ids, turn.id)

    def _lost(self, agent: str) -> frozenset[tuple[str, str]]:
        """Over which channels what the agent says now arrives empty."""
        env, silenced = self.env, self._unheard
        if not silenced:
            return frozenset()
        if MessageUnit(agent, env.spoke(agent)) in silenced:
            return frozenset((agent, name) for name in (*env.team.names, *env.tools, "user"))
        return frozenset((agent, name) for name in env.team.names if Link(agent, name) in silenced)

    def fail(self, where: str, error: Exception) -> None:
        """End as ``failed:<where>``."""
        self.failed, self.error = f"failed:{where}", f"{type(error).__name__}: {error}"

    def checkpoint(self) -> Checkpoint:
        """The present moment."""
        return Checkpoint(self.env.snapshot(), tuple(self.turns), dict(self.talks))

    def episode(self) -> Episode:
        """The record of what happened."""
        plan, env = self.plan, self.world.env
        team, own = (None, {}) if self.failed or self._env is None else self._env.scores()
        return Episode(
            id=plan.id, task=plan.key.task, turns=tuple(self.turns), reward=team, agent_rewards=own,
            group=plan.key.group, env=env.name, env_args=_json(env.args), seed=plan.key.seed,
            sample=plan.key.sample or None, end=self.failed or self.env.end or "done", error=self.error,
            team=env.team, forked_from=plan.forked_from,
        )  # fmt: skip


def _continued(said: Said, talk: Talk) -> tuple[tuple[int, ...] | None, str | None]:
    """The prompt ids to record: only the new ones where the prompt goes on from the agent's last reply."""
    if said.prompt_ids is None or talk.after is None:
        return said.prompt_ids, None
    head = (talk.after.prompt_ids or ()) + (talk.after.token_ids or ())
    if said.prompt_ids[: len(head)] != head:
        return said.prompt_ids, None
    return said.prompt_ids[len(head) :], talk.turn


def _json(args: Mapping[str, object]) -> Mapping[str, object] | None:
    try:
        json.dumps(args)
    except TypeError:
        return None
    return args


def play(
    world: World,
    plans: Sequence[Plan],
    *,
    ledger: Ledger | None = None,
    memory: Memory | None = None,
    on_end: Callable[[Episode], None] | None = None,
    in_flight: int = IN_FLIGHT,
) -> list[Episode]:
    """Play all plans and return their episodes in the order of the plans.

    An episode goes on the moment its reply is there; the calls of all episodes that wait for one policy are made
    together. A crash in the environment, a policy or a tool ends its episode as ``failed:<where>``.

    Args:
        world: environment and policies.
        plans: what to play.
        ledger: counts what it cost.
        memory: replies on record; equal calls, also of several plans at once, are made once.
        on_end: called with each episode as it ends (not in order).
        in_flight: episodes alive at once.
    """
    if world.elsewhere is not None:
        return world.elsewhere.play(plans, ledger or Ledger(), memory, on_end)
    stage = _Stage(world, ledger or Ledger(), memory)
    waiting = deque(enumerate(plans))
    place: dict[Scene, int] = {}
    ended: dict[int, Episode] = {}
    with stage.ledger.timed():
        while len(ended) < len(plans):
            while waiting and len(stage.alive) < in_flight:
                n, plan = waiting.popleft()
                scene = Scene(world, plan)
                place[scene] = n
                stage.enter(scene)
            for scene, episode in stage.leave():
                ended[place.pop(scene)] = episode
                if on_end is not None:
                    on_end(episode)
            if stage.alive:
                stage.answer()
    return [ended[n] for n in range(len(plans))]


class _Stage:
    """The scenes alive, and whom they wait for."""

    def __init__(self, world: World, ledger: Ledger, memory: Memory | None) -> None:
        self.world, self.ledger, self.memory = world, ledger, memory
        self.alive: set[Scene] = set()
        self._over: list[Scene] = []
        self._asked: dict[str, dict[int, _Asked]] = {}
        """Policy → ticket → the call under way."""
        self._pending: dict[tuple[str, ...], int] = {}
        self._new: dict[str, list[tuple[int, Request]]] = {}
        self._ticket = 0

    def enter(self, scene: Scene) -> None:
        self.ledger.resets += 1
        self.alive.add(scene)
        self._go_on(scene)

    def leave(self) -> Iterable[tuple[Scene, Episode]]:
        over, self._over = self._over, []
        for scene in over:
            self.alive.remove(scene)
            yield scene, scene.episode()

    def _go_on(self, scene: Scene) -> None:
        """Take a scene to its next call that must really be made, or to its end."""
        while not scene.failed:
            request = attempt(scene.request)
            if isinstance(request, Exception):
                scene.fail("env", request)
            elif request is None or scene.asking is None:
                break
            else:
                name = Memory.name(scene.asking, request) if self.memory is not None else ()
                said = self.memory.recall(name) if self.memory is not None else None
                if said is None:
                    self._ask(scene, scene.asking.name, request, name)
                    return
                self.ledger.calls_reused += 1
                self._hear(scene, request, said)
        self._over.append(scene)

    def _ask(self, scene: Scene, who: str, request: Request, name: tuple[str, ...]) -> None:
        if self.memory is not None and name in self._pending:
            self.ledger.calls_reused += 1
            self._asked[who][self._pending[name]].scenes.append(scene)
            return
        self._ticket += 1
        self._pending[name] = self._ticket
        self._asked.setdefault(who, {})[self._ticket] = _Asked(request, name, [scene])
        self._new.setdefault(who, []).append((self._ticket, request))

    def _hear(self, scene: Scene, request: Request, said: Said) -> None:
        error = attempt(lambda: scene.hear(request, said, scene.asking))
        if isinstance(error, Exception):
            names, _ = parse(said.text)
            scene.fail("tool" if set(names or ()) & set(self.world.env.tools) else "env", error)

    def answer(self) -> None:
        """Submit what is new, and take answers from the policy most scenes wait for."""
        new, self._new = self._new, {}
        for who, requests in new.items():
            error = attempt(lambda: self.world.policies[who].submit(requests))  # noqa: B023 (called at once)
            if isinstance(error, Exception):
                self._deliver(who, [(ticket, error) for ticket, _ in requests])
        who = max(self._asked, key=lambda name: len(self._asked[name]), default="")
        if who:
            answers = attempt(self.world.policies[who].collect)
            if isinstance(answers, Exception):
                answers = [(ticket, answers) for ticket in self._asked[who]]
            self._deliver(who, answers)

    def _deliver(self, who: str, answers: Sequence[tuple[int, Said | Exception]]) -> None:
        for ticket, said in answers:
            asked = self._asked[who].pop(ticket)
            self._pending.pop(asked.name, None)
            if isinstance(said, Said):
                self.ledger.charge(said)
                if self.memory is not None:
                    self.memory.keep(asked.name, said)
            if isinstance(said, Said) and type(said.text) is not str:
                said = TypeError(f"policy {who!r} said {said.text!r}; expected a text")
            for scene in asked.scenes:
                if isinstance(said, Said):
                    self._hear(scene, asked.request, said)
                else:
                    scene.fail("policy", said)
                self._go_on(scene)
        if not self._asked[who]:
            del self._asked[who]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call under way."""

    request: Request
    name: tuple[str, ...]
    scenes: list[Scene]
    """Who waits for the answer."""


def attempt(action: Callable[[], T]) -> T | Exception:
    """Run foreign code; what it raises is an answer too, and the caller records the boundary that was crossed."""
    try:
        return action()
    except (UserError, OutsideError):
        raise
    except Exception as error:  # noqa: BLE001 (the one broad catch of the library)
        return error
