"""What a credit method promises, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from macredit.rows import FloatN, IntN, Rows

if TYPE_CHECKING:
    from macredit.whatif import WhatIf

Grain = Literal["agent", "turn", "message", "link"]
Need = Literal["group", "tree", "replay", "judge", "critic", "belief", "gold"]
Sequence = Literal["turn", "trajectory", "invocation"]
Loss = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "dr-grpo"]


@dataclass(frozen=True, slots=True)
class AgentCredit:
    """The total of one agent in one episode."""

    episode: int
    agent: str
    credit: float | None
    stderr: float | None
    """0 is exact, None is not estimated."""
    reason: str | None = None


@dataclass(frozen=True)
class Credits:
    """The answer: credit in reward units, the advantage the learner gets, and what both cost.

    Columns have length N, one entry per row of ``rows`` in file order. NaN credit or stderr means null.
    """

    rows: Rows
    credit: FloatN
    advantage: FloatN
    weight: FloatN
    reasons: tuple[str | None, ...]
    stderr: FloatN
    agents: tuple[AgentCredit, ...] = ()
    links: tuple[Mapping[str, Any], ...] = ()
    """``{"episode", "from", "to", "credit", "stderr"}`` of channels between agents, where the method values them."""
    interactions: tuple[Mapping[str, Any], ...] = ()
    """``{"episode", "agents", "value"}`` of two agents: below 0 they replace each other, above they need each other."""
    sequence: IntN | None = None
    """Code of the unit of ratio and loss each row belongs to; None: every turn is its own."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Counts worth showing (singleton groups, invocations per rollout, …) by name."""
    warnings: tuple[str, ...] = ()

    def to_json(self, method: str, preset: str, settings: Mapping[str, Any], cost: Mapping[str, Any]) -> dict[str, Any]:
        """The object that ``macredit credit --json`` prints (DESIGN: stable)."""
        rows = self.rows
        turns = [
            {
                "episode": rows.episodes[e].id, "turn": int(t), "agent": rows.agents[a], "credit": _number(c),
                "stderr": _number(s), "advantage": float(adv), "weight": float(w), "reason": reason,
            }
            for e, t, a, c, s, adv, w, reason in zip(
                rows.episode, rows.turn, rows.agent, self.credit, self.stderr, self.advantage, self.weight,
                self.reasons, strict=True,
            )
        ]  # fmt: skip
        agents = [
            {
                "episode": rows.episodes[a.episode].id, "agent": a.agent, "credit": _number(a.credit),
                "stderr": _number(a.stderr), "reason": a.reason,
            }
            for a in self.agents
        ]  # fmt: skip
        return {
            "method": method, "preset": preset, "settings": dict(settings), "turns": turns, "agents": agents,
            "links": [dict(link) for link in self.links], "interactions": [dict(pair) for pair in self.interactions],
            "notes": dict(self.notes), "cost": dict(cost), "warnings": list(self.warnings),
        }  # fmt: skip


def _number(value: float | np.floating[Any] | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)


def one(players: int) -> int:  # noqa: ARG001 (other methods need it)
    """An episode is one terminal evaluation."""
    return 1


def nothing(settings: Any) -> frozenset[Need]:  # noqa: ARG001 (other methods need them)
    """No settings need anything more."""
    return frozenset()


def no_index(settings: Mapping[str, Any]) -> str | None:  # noqa: ARG001 (other methods need them)
    """The credit estimates no index of a cooperative game."""
    return None


@dataclass(frozen=True)
class Method:
    """One credit method: its promises as data, and the function that keeps them."""

    name: str
    run: Callable[[Rows, Any, WhatIf | None], Credits]
    """(rows, settings, replays where there are any) → credits."""
    settings: type
    """A frozen dataclass, one docstring under each field; its defaults are the ``paper`` preset."""
    grain: Grain
    needs: frozenset[Need]
    estimand: str
    paper: str
    """Author, year, arXiv id."""
    needs_more: Callable[[Any], frozenset[Need]] = nothing
    """Settings → what these need besides ``needs``, such as a critic."""
    index: Callable[[Mapping[str, Any]], str | None] = no_index
    """All settings by name → the exact index (``shapley``, ``banzhaf``, ``loo``) that the credit estimates."""
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"paper": {}})
    """Preset name → settings that differ from the defaults."""
    evaluations: Callable[[int], int] = one
    """Terminal evaluations an episode takes at most, its own among them, with so many players and the defaults."""
    estimates: bool = False
    """Whether its setting ``budget`` makes an estimate where it takes too many."""
    axioms: frozenset[str] = frozenset()
    """Axioms kept exactly: ``efficiency``, ``symmetry``, ``dummy``, ``linearity``, ``centred``."""
    sequence: Sequence = "turn"
    loss: Loss = "token-mean"
    """How token losses become one number; under a sequence ratio all tokens of a sequence share one loss, and their
    mean counts it once."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The survey's labels (arXiv 2604.09459): ``setting``, ``granularity``, ``methodology``."""

    def needs_with(self, settings: Any) -> frozenset[Need]:
        """Everything it needs with these settings."""
        return self.needs | self.needs_more(settings)
