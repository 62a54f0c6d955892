"""Which estimator a game and a budget call for, and why."""

from __future__ import annotations

from macredit.errors import UserError, unknown
from macredit.values import allocation, exhaustive, gaussian, grouped, leverage, permutation, smoothed, stratified
from macredit.values.answers import Method, Plan

METHODS: dict[str, Method] = {
    "allocated": allocation,
    "exact": exhaustive,
    "gaussian": gaussian,
    "grouped": grouped,
    "leverage": leverage,
    "permutation": permutation,
    "smoothed": smoothed,
    "stratified": stratified,
}
"""Name → the module with its three functions."""

MOST_EXACT = 26
"""Players of the largest game that is evaluated whole without being asked to."""
MOST_ALLOCATED = 14
"""Players up to which a noisy game is evaluated whole, each coalition as often as it deserves."""
SMOOTHED, FEW_SCORES = range(4, 9), 4
"""Players, and scores a coalition below which, unless a rule looks on, the noise is worth smoothing."""
MOST_GAUSSIAN = 64
"""Players up to which interactions are worth modelling at the budgets that people have."""


def choose(method: str, plan: Plan) -> tuple[str, str]:
    """The method to use and the reason, in words.

    Raises:
        UserError: an unknown method, a budget below the smallest that will do, or groups without their method.
    """
    if method != "auto" and method not in METHODS:
        raise unknown("method", method, [*METHODS, "auto"])
    if bool(plan.groups) != (method == "grouped") and (method == "grouped" or method != "auto"):
        raise UserError(f"method {method!r} was given {len(plan.groups)} groups; groups and 'grouped' go together")
    name, why = _best(plan) if method == "auto" else (method, "as asked")
    if _whole(plan) and name not in ("exact", "grouped"):
        name, why = "exact", f"the budget covers all 2**{plan.n} coalitions"
    least = METHODS[name].smallest(len(plan.groups) or plan.n)
    if plan.budget < least:
        raise UserError(
            f"the budget is {plan.budget} evaluations; {name} needs at least {least} for {_players(plan)}; raise it"
        )
    return name, why


def _whole(plan: Plan) -> bool:
    return not plan.noise and plan.n <= MOST_EXACT and plan.budget >= 2**plan.n


def _best(plan: Plan) -> tuple[str, str]:
    """The ladder: from what is exact to what is cheapest."""
    n, budget = plan.n, plan.budget
    if plan.groups:
        return "grouped", f"{n} players in {len(plan.groups)} groups"
    if _whole(plan):
        return "exact", f"the budget covers all 2**{n} coalitions"
    if plan.noise and n in SMOOTHED and not plan.blocks and 1 <= budget / 2**n < FEW_SCORES:
        return "smoothed", f"a noisy game with few scores for each of 2**{n} coalitions: they lend each other theirs"
    if plan.noise and n <= MOST_ALLOCATED and budget >= 2**n:
        return "allocated", f"a noisy game whose 2**{n} coalitions fit the budget: each is repeated as it deserves"
    if n <= MOST_GAUSSIAN:
        return "gaussian", f"fewer evaluations than the 2**{n} coalitions: interactions are modelled"
    if budget >= 8 * n:
        return "leverage", f"{n} players and {budget} evaluations: a regression on single players in pairs"
    return "permutation", f"{n} players and only {budget} evaluations: random orders"


def _players(plan: Plan) -> str:
    n = len(plan.groups) or plan.n
    return f"{n} {'groups' if plan.groups else 'players'}"
