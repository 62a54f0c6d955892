"""Why leave-one-out and Shapley disagree about some agents, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MOST_PAIRS = 6
"""Pairs of agents in one sentence."""
SMALL = 0.05
"""Credits nearer to each other than this share of the largest count as equal."""


def disagreements(lost: Mapping[str, float], shared: Mapping[str, float], names: tuple[str, str]) -> list[str]:
    """Sentences about agents that can replace each other, or need each other.

    Args:
        lost: Leave-one-out credit by agent.
        shared: Shapley value by agent.
        names: Where the two come from.
    """
    both = [agent for agent in lost if agent in shared]
    small = SMALL * max((abs(v) for agent in both for v in (lost[agent], shared[agent])), default=0.0)
    spare = [agent for agent in both if abs(lost[agent]) <= small < shared[agent]]
    joint = [agent for agent in both if shared[agent] > small and lost[agent] - shared[agent] > small]
    found = []
    if spare:
        found.append(
            f"{names[0]} gives {_list(spare)} about 0 where {names[1]} gives {_values(spare, shared)}: leave-one-out "
            "asks what is lost when one agent alone falls silent, and here another stands in; Shapley averages over "
            "all coalitions, so agents that can replace each other share the reward."
        )
    if len(joint) > 1:
        found.append(
            f"{names[0]} gives {_list(joint)} {_values(joint, lost)} where {names[1]} gives {_values(joint, shared)}: "
            "they need each other, so leave-one-out counts what they earn together once for each of them, and its "
            "credits add up to more than was earned."
        )
    return found


def interplay(pairs: Mapping[tuple[str, str], float], largest: float) -> list[str]:
    """Which agents replace each other and which need each other, the strongest first.

    Args:
        pairs: Mean Shapley interaction of two agents.
        largest: The largest credit of an agent, to which an interaction is small or not.
    """
    strong = sorted((pair for pair in pairs if abs(pairs[pair]) > SMALL * largest), key=lambda pair: -abs(pairs[pair]))
    spare = [f"{a} and {b} ({pairs[a, b]:+.3f})" for a, b in strong if pairs[a, b] < 0]
    joint = [f"{a} and {b} ({pairs[a, b]:+.3f})" for a, b in strong if pairs[a, b] > 0]
    told = ((spare, "replace each other"), (joint, "need each other"))
    return [f"Interactions: {', '.join(names[:MOST_PAIRS])} {what}." for names, what in told if names]


def _list(agents: Sequence[str]) -> str:
    return f"{', '.join(agents[:-1])} and {agents[-1]}" if len(agents) > 1 else agents[0]


def _values(agents: Sequence[str], credit: Mapping[str, float]) -> str:
    return _list([f"{credit[agent]:.3f}" for agent in agents])
