"""What the orchestration costs beside the engine, and what replays cost beside naive re-runs.

    python benchmarks/engines.py                                    (a random tiny Llama)
    python benchmarks/engines.py --kind vllm --model FOLDER         (vLLM, extra ``vllm``)

Times are medians: the share of wall time spent outside the engine with 64 episodes in flight, the ratio of that wall
time to the same requests given to the engine all at once, and the share of a training step that hand-overs take.
Counts are exact: calls and uncached prompt tokens of counterfactual credit, beside re-running every question (c3: every
branch of its tree) from the first message. Their speakers are scripted; a token is what the tiny Llama's tokenizer and
chat template make of a prompt (one a byte of text, one a mark of a role or of an end), behind a prefix cache.

Exit status 1 if a count misses its target; with ``--strict``, on a machine that does nothing else, if a time does.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any

from values_rows import Row, at_most, percent, times, told

from macredit.agents import HF, make_policies
from macredit.cli import world_of
from macredit.collect import tree
from macredit.config import MethodConfig, RunConfig, TrainConfig
from macredit.credit import METHODS, credit
from macredit.env import TeamEnv
from macredit.envs import make_env
from macredit.episode import Episode
from macredit.ledger import Ledger
from macredit.policy import Policy, Request, Said
from macredit.retrace import key_of, retrace
from macredit.rollout import Plan, Scene, World, play, tasks_of
from macredit.run_folder import read_metrics
from macredit.train import train
from macredit.units import Coalition
from macredit.whatif import WhatIf

BLOCK = 16
"""Tokens that a prefix cache keeps or forgets together: vLLM's default."""
SHARE = 0.05
"""Of wall time outside the engine, and of a step for hand-overs: at most this."""
ROWS = 1024
"""Tokens a learner computes at once: 4,096 of a model of 135M parameters do not fit beside vLLM in 24 GB."""
Encode = Callable[[Request], tuple[int, ...]]
"""Ids of a request's prompt."""


class Clocked:
    """A policy whose time inside is measured, and whose requests are kept."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.name, self.version, self.sampling = policy, policy.name, policy.version, policy.sampling
        self.inside, self.asked = 0.0, list[Request]()

    def submit(self, requests: Sequence[tuple[int, Request]]) -> None:
        """Pass on."""
        self.asked += [request for _, request in requests]
        begun = perf_counter()
        self.policy.submit(requests)
        self.inside += perf_counter() - begun

    def collect(self) -> Sequence[tuple[int, Said | Exception]]:
        """Pass back."""
        begun = perf_counter()
        answers = self.policy.collect()
        self.inside += perf_counter() - begun
        return answers


def outside(kind: str, model: str, episodes: int, repeats: int) -> tuple[float, float]:
    """Share of wall time outside the engine, and wall time over that of the same requests all at once; medians."""
    env = make_env("coalition_v0", preset="glove")
    about = {"kind": kind, "model": model, "lora": {"rank": 4}, "max_tokens": 8}
    made = make_policies({**dict.fromkeys("abc", about), "planner": {"kind": "table", "replies": ["@a,@b,@c"]}})
    play(World(env, made), tasks_of(0, episodes // 8, 8), in_flight=episodes)  # caches are warm for both
    measured = [_outside_once(env, made, episodes) for _ in range(repeats)]
    shares, ratios = zip(*measured, strict=True)
    return statistics.median(shares), statistics.median(ratios)


def _outside_once(env: TeamEnv, made: dict[str, Policy], episodes: int) -> tuple[float, float]:
    clocked = {name: Clocked(policy) for name, policy in made.items()}
    begun = perf_counter()
    play(World(env, clocked), tasks_of(0, episodes // 8, 8), in_flight=episodes)
    wall = perf_counter() - begun
    engines = [clocked[name] for name in "abc"]
    begun = perf_counter()
    for one in engines:
        one.policy.submit(list(enumerate(one.asked)))
    for one in engines:
        answered = 0
        while answered < len(one.asked):
            answered += len(one.policy.collect())
    return 1 - sum(one.inside for one in engines) / wall, wall / (perf_counter() - begun)


def handed_over(engine: str, model: str, steps: int) -> float:
    """Share of a training step that the hand-over of three adapters takes; the median of some steps."""
    policies: dict[str, Any] = {
        "*": {"kind": "hf", "model": model, "lora": {"rank": 4}, "engine": engine, "max_tokens": 8},
        "planner": {"kind": "table", "replies": ["@a,@b,@c"]},
    }
    t = TrainConfig(steps=steps, tasks=4, group=8, evaluate_tasks=0, save_every=0)
    config = RunConfig(
        {"name": "coalition_v0", "preset": "glove"}, policies, (), MethodConfig("dr_mas"), t, {"batch_tokens": ROWS}
    )
    with tempfile.TemporaryDirectory() as folder:
        train(world_of(config), config, Path(folder))
        rows = [row for row in read_metrics(Path(folder)) if "hand_over" in row]
    return float(
        statistics.median(sum(one["seconds"] for one in row["hand_over"].values()) / row["seconds"] for row in rows)
    )


class Counting:
    """A scripted policy with the prompt tokens that an engine with a prefix cache would compute."""

    def __init__(self, policy: Policy, encode: Encode) -> None:
        self.policy, self.name, self.version, self.sampling = policy, policy.name, policy.version, policy.sampling
        self._encode, self._known = encode, set[tuple[int, ...]]()

    def submit(self, requests: Sequence[tuple[int, Request]]) -> None:
        """Pass on, and count what is new."""
        self._prompts = {ticket: self._encode(request) for ticket, request in requests}
        self.policy.submit(requests)

    def collect(self) -> Sequence[tuple[int, Said | Exception]]:
        """Pass back, with the usage."""
        return [
            (ticket, replace(said, usage=self._usage(self._prompts[ticket])) if isinstance(said, Said) else said)
            for ticket, said in self.policy.collect()
        ]

    def _usage(self, prompt: tuple[int, ...]) -> dict[str, int]:
        blocks = [prompt[:end] for end in range(BLOCK, len(prompt) + 1, BLOCK)]
        cached = BLOCK * sum(block in self._known for block in blocks)
        self._known.update(blocks)
        return {"prompt": len(prompt), "cached": cached, "sampled": 0}


class Noted(WhatIf):
    """Replays that note what was asked."""

    asked: tuple[tuple[int, Coalition], ...] = ()

    def ask(self, questions: Sequence[tuple[int, Coalition]]) -> Any:
        """Note and answer."""
        self.asked += tuple(questions)
        return super().ask(questions)


def world(env: TeamEnv, encode: Encode) -> World:
    """Noisy scripted speakers, each behind an empty cache."""
    specs = {name: {"kind": "scripted", "style": "noisy", "skill": 0.6} for name in env.team.names}
    return World(env, {name: Counting(policy, encode) for name, policy in make_policies(specs, env).items()})


def replays(env: TeamEnv, method: str, encode: Encode, tasks: int = 4, group: int = 8) -> tuple[Ledger, Ledger]:
    """What a method's counterfactuals cost here, and what they cost when every question is run from its start."""
    ours, naive = Ledger(), Ledger()
    if "tree" in METHODS[method].needs:
        again = world(env, encode)
        for episode in tree(world(env, encode), tasks_of(0, tasks), "auto", group, ledger=ours):
            ask_again(again, episode, naive)
        return ours, naive
    own = world(env, encode)
    episodes = play(own, tasks_of(0, tasks, group))
    whatif = Noted(episodes, own, ledger=ours)
    credit(episodes, method, whatif=whatif)
    again = world(env, encode)
    episodes = play(again, tasks_of(0, tasks, group))
    asks = Noted(episodes, again)
    for e, silenced in whatif.asked:
        if silenced:
            play(again, [replace(asks.silence(e, silenced), start=None)], ledger=naive)
    return ours, naive


def ask_again(here: World, episode: Episode, ledger: Ledger) -> None:
    """Every call of an episode from its first message, as if nothing had been said before a branch."""
    scene = Scene(here, Plan(episode.id, key_of(episode)))
    for _, turn, request in retrace(scene, episode):
        policy = here.speaker(turn.agent, {})
        policy.submit([(0, request)])
        ((_, said),) = policy.collect()
        if isinstance(said, Said):
            ledger.charge(said)
        scene.hear(request, Said(turn.text), policy, turn.null)


def timed(kind: str, model: str, episodes: int, repeats: int) -> Iterator[Row]:
    """What the machine's other work disturbs."""
    share, ratio = outside(kind, model, episodes, repeats)
    how = f"{kind} {Path(model).name}, {episodes} episodes in flight, median of {repeats}"
    yield Row("time outside the engine", percent, at_most(SHARE), None, share, how)
    yield Row("wall time, by all requests at once", times, None, None, ratio, how)
    gc.collect()  # an engine takes memory
    engine = "vllm" if kind == "vllm" else "copy"
    handed = handed_over(engine, model, repeats)
    how = f"to {engine}, median of {repeats} steps"
    yield Row("hand-over of three adapters, of a step", percent, at_most(SHARE), None, handed, how)


def counted() -> Iterator[Row]:
    """What is the same on every machine: replays, which may cost no more than naive re-runs."""
    encode = HF("tiny").voice.template.prompt
    for name in ("solve_verify_v0", "search_qa_v0"):
        for method in ("sharp", "c3", "shapley"):
            ours, naive = replays(make_env(name), method, encode)
            for what, mine, theirs in (
                ("calls", ours.calls, naive.calls),
                ("uncached prompt tokens", ours.prompt_tokens, naive.prompt_tokens),
            ):
                yield Row(
                    f"{method} on {name}: {what}", whole, at_most(theirs), None, mine, "must: what naive re-runs take"
                )


def whole(x: float) -> str:
    """``1,234``."""
    return f"{x:,.0f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rows; the exit status."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--kind", default="hf", choices=("hf", "vllm"))
    words.add_argument("--model", default="tiny")
    words.add_argument("--episodes", type=int, default=64, help="in flight at once")
    words.add_argument("--repeats", type=int, default=3, help="of what is timed, for its median")
    words.add_argument("--strict", action="store_true", help="exit 1 if a time misses its target, too")
    given = words.parse_args(arguments)
    clocked = ((row, given.strict) for row in timed(given.kind, given.model, given.episodes, given.repeats))
    return told(chain(clocked, ((row, True) for row in counted())))


if __name__ == "__main__":
    sys.exit(main())
