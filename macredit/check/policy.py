"""What every policy promises; each check returns None, or one sentence on what is wrong.

Scripted and table policies promise the same reply whatever the batch. A language model's sums depend on the batch in
their last bits, which may flip a sampled token once in very many.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

from macredit.env import TeamEnv
from macredit.policy import Chat, Policy, Request, Said
from macredit.rollout import Plan, Scene, World
from macredit.seeds import Key

REQUESTS = tuple(
    Request("a", (Chat("user", f"Say a word. {n % 3}"),), Key(0, str(n % 3), n), teammates=("b",)) for n in range(8)
)
"""What is asked where no requests are given."""


def first_requests(env: TeamEnv, tasks: int = 8) -> tuple[Request, ...]:
    """What the first agent to speak is asked, in so many tasks of an environment."""
    plans = [Plan(f"t{n}", Key(0, f"t{n}")) for n in range(tasks)]
    return tuple(Scene(World(env, {}), plan).next_request() for plan in plans)


def ask(policy: Policy, requests: Sequence[Request]) -> list[Said]:
    """The replies of a policy, in the order of the requests.

    Raises:
        Exception: what a call failed with.
    """
    policy.submit(list(enumerate(requests)))
    said: dict[int, Said] = {}
    while len(said) < len(requests):
        for ticket, answer in policy.collect():
            if isinstance(answer, Exception):
                raise answer
            said[ticket] = answer
    return [said[ticket] for ticket in range(len(requests))]


def names_itself(policy: Policy, _: Sequence[Request]) -> str | None:
    """It has a version, and sampling parameters that can be recorded."""
    if not isinstance(policy.version, str) or not policy.version:
        return f"its version is {policy.version!r}; expected a text that changes whenever its replies may"
    json.dumps(dict(policy.sampling))
    return None


def keyed(policy: Policy, requests: Sequence[Request]) -> str | None:
    """The same request gets the same reply, whatever the order and size of the batch."""
    whole = [said.text for said in ask(policy, requests)]
    backward = [said.text for said in ask(policy, requests[::-1])][::-1]
    single = [ask(policy, [request])[0].text for request in requests]
    for how, texts in (("in another order", backward), ("one by one", single)):
        if texts != whole:
            at = next(i for i, (a, b) in enumerate(zip(texts, whole, strict=True)) if a != b)
            return (
                f"asked {how}, request {at} got {texts[at]!r} instead of {whole[at]!r}; draw from request.rng() alone"
            )
    return None


def ids_and_logprobs(policy: Policy, requests: Sequence[Request]) -> str | None:
    """One log-probability, finite and at most 0, for each sampled id; prompt ids beside them."""
    for said in ask(policy, requests):
        if said.logprobs is not None and len(said.logprobs) != len(said.token_ids or ()):
            return f"{len(said.logprobs)} log-probabilities came with {len(said.token_ids or ())} token ids"
        if said.logprobs is not None and not all(-math.inf < x <= 1e-6 for x in said.logprobs):
            return f"log-probabilities are {said.logprobs[:5]}; expected finite numbers up to 0"
        if said.token_ids is not None and said.prompt_ids is None:
            return "token ids came without prompt ids; give both, or neither"
        if not all(isinstance(i, int) for i in (*(said.token_ids or ()), *(said.prompt_ids or ()))):
            return "ids are not plain integers; a record could not be written"
    return None


POLICY_CHECKS: dict[str, Callable[[Policy, Sequence[Request]], str | None]] = {
    "names_itself": names_itself,
    "keyed": keyed,
    "ids_and_logprobs": ids_and_logprobs,
}
