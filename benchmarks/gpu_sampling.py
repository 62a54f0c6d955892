"""Replies of the Hugging Face policy in batches: one base, one adapter active, keyed noise, log-probabilities kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gpu_bench import Bench, Line

from macredit.agents import make_policy
from macredit.policy import Chat, Request
from macredit.seeds import Key


def sampling(bench: Bench) -> Iterator[Line]:
    """Tokens a second over groups of like prompts, as rollouts send them."""
    model, dtype = ("larger toy", "float32") if bench.tiny else ("1.5B", bench.precision)
    batch, prompt, reply = (8, 64, 16) if bench.tiny else (64, 1024, 128)
    spec: dict[str, Any] = {
        "kind": "hf",
        "model": bench.model(model, dtype),
        "dtype": dtype,
        "device": str(bench.device),
    }
    spec |= {"lora": {"rank": 16}, "max_tokens": reply, "batch_tokens": 2 * batch * (prompt + reply)}
    policy: Any = make_policy(spec, name="solver")
    text = "abcdefgh" * (prompt // 8)
    requests = [
        Request("solver", (Chat("user", text + str(n // 8)),), Key(0, str(n // 8), n % 8)) for n in range(batch)
    ]
    policy.say(requests[:8])
    bench.clear()
    said: list[Any] = []
    seconds = bench.seconds(lambda: said.extend(policy.say(requests)))
    sampled = sum(len(one.token_ids) for one in said)
    bench.check(
        all(np.isfinite(one.logprobs).all() and one.token_ids for one in said),
        "sampling: an empty reply or a log-probability that is not finite",
    )
    bench.check(len({one.token_ids for one in said}) == batch, "sampling: two replies with different noise are equal")
    yield bench.check_finite("sampling", {
        "model": model, "dtype": dtype, "batch": batch, "prompt_tokens": sum(len(one.prompt_ids) for one in said),
        "sampled_tokens": sampled, "seconds": seconds, "sampled_per_second": sampled / seconds,
        "peak_bytes": bench.peak_memory(),
    })  # fmt: skip
