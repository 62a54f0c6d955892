"""The conformance checks that macredit's own parts pass, for yours: an environment, a policy, a credit method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from macredit.check.env import ENV_CHECKS
from macredit.check.method import METHOD_CHECKS, promised
from macredit.check.policy import POLICY_CHECKS, REQUESTS, first_requests
from macredit.credit import METHODS, Method
from macredit.env import TeamEnv
from macredit.errors import OutsideError, UserError, unknown
from macredit.policy import Policy, Request
from macredit.rollout import attempt

__all__ = ["Result", "check_env", "check_method", "check_policy", "first_requests", "run"]


@dataclass(frozen=True, slots=True)
class Result:
    """One check."""

    name: str
    ok: bool
    detail: str = ""
    """What is wrong."""


def check_env(env: TeamEnv | Callable[[], TeamEnv]) -> list[Result]:
    """All checks of an environment, given it or a function that makes a new one."""
    return run(ENV_CHECKS, partial(type(env), **env.args) if isinstance(env, TeamEnv) else env)


def check_policy(policy: Policy | Callable[[], Policy], requests: Sequence[Request] = REQUESTS) -> list[Result]:
    """All checks of a policy, given it or a function that makes it, on some requests."""
    made = policy if isinstance(policy, Policy) else policy()
    return run(POLICY_CHECKS, made, requests)


def check_method(method: str | Method) -> list[Result]:
    """The checks of what a credit method declares, on random episodes.

    Raises:
        UserError: no such method.
    """
    if isinstance(method, str):
        if method not in METHODS:
            raise unknown("method", method, METHODS)
        method = METHODS[method]
    return run({name: METHOD_CHECKS[name] for name in promised(method)}, method)


def run(checks: Mapping[str, Callable[..., str | None]], *subject: object) -> list[Result]:
    """Each check's result; what a check raises is what is wrong."""
    results = []
    for name, check in checks.items():
        try:
            wrong = attempt(partial(check, *subject))
        except (UserError, OutsideError) as error:
            wrong = error
        detail = f"{type(wrong).__name__}: {wrong}" if isinstance(wrong, Exception) else wrong or ""
        results.append(Result(name, wrong is None, detail))
    return results
