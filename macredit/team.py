"""Who is in the team, who speaks for whom, and who may message whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import networkx as nx

from macredit.errors import UserError, unknown


@dataclass(frozen=True, slots=True)
class Agent:
    """One member of the team."""

    name: str
    """How teammates address it."""
    role: str = ""
    """The instructions; worked examples may follow lines ``--- user`` and ``--- assistant``."""
    policy: str = ""
    """The name of the policy that speaks for it; empty means a policy of the agent's own name."""
    trainable: bool = True
    """False freezes it: it plays, and no learner touches it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "policy", self.policy or self.name)


@dataclass(frozen=True)
class Team:
    """Agents, the orchestrator that speaks first, and the directed edges along which messages may go."""

    agents: tuple[Agent, ...]
    orchestrator: str
    edges: tuple[tuple[str, str], ...] = field(default=())

    def __post_init__(self) -> None:
        names = [agent.name for agent in self.agents]
        if not names:
            raise UserError("a team of nobody was given; expected at least one agent")
        if len(set(names)) != len(names):
            raise UserError(f"two agents share a name in {names}; give each agent its own name")
        if self.orchestrator not in names:
            raise unknown("orchestrator", self.orchestrator, names)
        for edge in self.edges:
            for end in edge:
                if end not in names:
                    raise unknown(f"agent on edge {edge}", end, names)
        if len(names) > 1 and not self.teammates(self.orchestrator):
            raise UserError(
                f"the graph isolates the orchestrator {self.orchestrator!r}: it may message nobody; "
                "add an edge from it to a teammate"
            )

    # -- shapes ---------------------------------------------------------------------------------------------------

    @classmethod
    def orchestrated(cls, orchestrator: str = "planner", specialists: Sequence[str] = ("solver",)) -> Team:
        """A star: the orchestrator calls specialists, which answer it."""
        edges = [edge for name in specialists for edge in ((orchestrator, name), (name, orchestrator))]
        return cls(_agents((orchestrator, *specialists)), orchestrator, tuple(edges))

    @classmethod
    def line(cls, length: int | Sequence[str] = 3) -> Team:
        """A line ``a0 → a1 → …``; the last agent speaks to the user."""
        names = [f"a{i}" for i in range(length)] if isinstance(length, int) else list(length)
        if not names:
            raise UserError("a line of 0 agents was asked for; expected at least 1")
        return cls(_agents(names), names[0], tuple(pairwise(names)))

    @classmethod
    def debate(cls, debaters: int | Sequence[str] = 2, judge: str = "judge") -> Team:
        """Everyone may message everyone; the judge orchestrates and answers the user."""
        names = [f"debater{i}" for i in range(debaters)] if isinstance(debaters, int) else list(debaters)
        everyone = (judge, *names)
        return cls(_agents(everyone), judge, tuple((a, b) for a in everyone for b in everyone if a != b))

    @classmethod
    def mixture(cls, proposers: int | Sequence[str] = 3, aggregator: str = "aggregator") -> Team:
        """Mixture of agents: the aggregator asks proposers, which answer it and do not see each other."""
        names = [f"proposer{i}" for i in range(proposers)] if isinstance(proposers, int) else list(proposers)
        return cls.orchestrated(aggregator, names)

    @classmethod
    def from_graph(cls, graph: nx.DiGraph[str], orchestrator: str) -> Team:
        """From a networkx graph; node attributes ``role``, ``policy`` and ``trainable`` are taken where given."""
        agents = tuple(Agent(str(name), **data) for name, data in graph.nodes(data=True))
        return cls(agents, orchestrator, tuple((str(a), str(b)) for a, b in graph.edges))

    # -- questions ------------------------------------------------------------------------------------------------

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All agents, in order."""
        return tuple(agent.name for agent in self.agents)

    @cached_property
    def specialists(self) -> tuple[str, ...]:
        """All agents but the orchestrator: the default players of a coalition."""
        return tuple(name for name in self.names if name != self.orchestrator)

    @cached_property
    def _reach(self) -> dict[str, tuple[str, ...]]:
        return {name: tuple(dict.fromkeys(b for a, b in self.edges if a == name)) for name in self.names}

    def teammates(self, agent: str) -> tuple[str, ...]:
        """Whom ``agent`` may message."""
        return self._reach[agent]

    def __getitem__(self, name: str) -> Agent:
        for agent in self.agents:
            if agent.name == name:
                return agent
        raise unknown("agent", name, self.names)

    def graph(self) -> nx.DiGraph[str]:
        """The team as a networkx graph."""
        graph: nx.DiGraph[str] = nx.DiGraph()
        for agent in self.agents:
            graph.add_node(agent.name, role=agent.role, policy=agent.policy, trainable=agent.trainable)
        graph.add_edges_from(self.edges)
        return graph

    # -- changes (each returns a new team) ------------------------------------------------------------------------

    def casting(
        self,
        roles: Mapping[str, str] | None = None,
        policies: Mapping[str, str] | None = None,
        frozen: Iterable[str] = (),
    ) -> Team:
        """The same team with other role texts, policies, or frozen agents; names are checked."""
        roles, policies, frozen = roles or {}, policies or {}, frozenset(frozen)
        for name in (*roles, *policies, *frozen):
            self[name]
        return replace(
            self,
            agents=tuple(
                replace(
                    agent,
                    role=roles.get(agent.name, agent.role),
                    policy=policies.get(agent.name, agent.policy),
                    trainable=agent.trainable and agent.name not in frozen,
                )
                for agent in self.agents
            ),
        )

    # -- JSON -----------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The ``team`` object of an episode record."""
        agents: dict[str, dict[str, Any]] = {}
        for agent in self.agents:
            agents[agent.name] = {"policy": agent.policy}
            if agent.role:
                agents[agent.name]["role"] = agent.role
            if not agent.trainable:
                agents[agent.name]["trainable"] = False
        return {"orchestrator": self.orchestrator, "agents": agents, "edges": [list(edge) for edge in self.edges]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Team:
        """The inverse of :meth:`to_json`; ``edges`` may be absent (unknown: everyone may message everyone)."""
        if not isinstance(data.get("orchestrator"), str) or not isinstance(data.get("agents"), Mapping):
            raise UserError("a team needs 'orchestrator' (a name) and 'agents' (an object: name → policy, role)")
        for name, about in data["agents"].items():
            if not isinstance(about, Mapping) or any(type(about[key]) is not _ABOUT.get(key) for key in about):
                raise UserError(
                    f"team agent {name!r} is {about!r}; expected an object of policy (text), role (text), trainable "
                    "(true or false)"
                )
        agents = tuple(Agent(name, **about) for name, about in data["agents"].items())
        edges = data.get("edges")
        if edges is None:
            edges = [(a.name, b.name) for a in agents for b in agents if a is not b]
        if not isinstance(edges, list) or not all(isinstance(edge, list | tuple) and len(edge) == 2 for edge in edges):
            raise UserError(f"team edges are {edges!r}; expected a list of [from, to] pairs")
        return cls(agents, data["orchestrator"], tuple((str(a), str(b)) for a, b in edges))


_ABOUT = {"policy": str, "role": str, "trainable": bool}


def _agents(names: Iterable[str]) -> tuple[Agent, ...]:
    return tuple(Agent(name) for name in names)
