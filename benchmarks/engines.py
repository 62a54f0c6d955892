"""What the orchestration costs beside the engine, and what replays cost beside naive re-runs.

    python benchmarks/engines.py                                    (a random tiny Llama)
    python benchmarks/engines.py --kind vllm --model FOLDER         (vLLM, extra ``vllm``)

Three tables: the share of wall time spent outside the engine with 64 episodes in flight, beside the ratio to the same
requests given to the engine all at once; the share of a training step that hand-overs take; calls and uncached prompt
characters of counterfactual credit (scripted speakers behind a prefix cache of blocks of 32), beside re-running every
question (c3: every branch of its tree) from the first message behind the same cache.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

from macredit.agents import make_policies
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

BLOCK = 32
"""Characters that a prefix cache keeps or forgets together."""


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


def outside(kind: str, model: str, episodes: int) -> tuple[float, float]:
    """Share of wall time outside the engine, and wall time over that of the same requests all at once."""
    env = make_env("coalition_v0", preset="glove")
    about = {"kind": kind, "model": model, "lora": {"rank": 4}, "max_tokens": 8}
    made = make_policies({**dict.fromkeys("abc", about), "planner": {"kind": "table", "replies": ["@a,@b,@c"]}})
    play(World(env, made), tasks_of(0, episodes // 8, 8), in_flight=episodes)  # caches are warm for both
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


def handed_over(engine: str, model: str) -> float:
    """Share of training steps that the hand-over of three adapters takes."""
    policies: dict[str, Any] = {
        "*": {"kind": "hf", "model": model, "lora": {"rank": 4}, "engine": engine, "max_tokens": 8},
        "planner": {"kind": "table", "replies": ["@a,@b,@c"]},
    }
    t = TrainConfig(steps=2, tasks=4, group=8, evaluate_tasks=0, save_every=0)
    config = RunConfig({"name": "coalition_v0", "preset": "glove"}, policies, (), MethodConfig("dr_mas"), t)
    with tempfile.TemporaryDirectory() as folder:
        train(world_of(config), config, Path(folder))
        steps = [row for row in read_metrics(Path(folder)) if "hand_over" in row]
    handed = sum(one["seconds"] for row in steps for one in row["hand_over"].values())
    return float(handed / sum(row["seconds"] for row in steps))


class Counting:
    """A scripted policy with the tokens (characters) that an engine with a prefix cache would compute."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.name, self.version, self.sampling = policy, policy.name, policy.version, policy.sampling
        self._known: set[str] = set()

    def submit(self, requests: Sequence[tuple[int, Request]]) -> None:
        """Pass on, and count what is new."""
        self._prompts = {ticket: "".join(map(str, request.messages)) for ticket, request in requests}
        self.policy.submit(requests)

    def collect(self) -> Sequence[tuple[int, Said | Exception]]:
        """Pass back, with the usage."""
        return [
            (ticket, replace(said, usage=self._usage(self._prompts[ticket])) if isinstance(said, Said) else said)
            for ticket, said in self.policy.collect()
        ]

    def _usage(self, prompt: str) -> dict[str, int]:
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


def world(env: TeamEnv) -> World:
    """Noisy scripted speakers behind an empty cache."""
    specs = {name: {"kind": "scripted", "style": "noisy", "skill": 0.6} for name in env.team.names}
    return World(env, {name: Counting(policy) for name, policy in make_policies(specs, env).items()})


def replays(env: TeamEnv, method: str, tasks: int = 4, group: int = 8) -> tuple[Ledger, Ledger]:
    """What a method's counterfactuals cost here, and what they cost when every question is run from its start."""
    ours, naive = Ledger(), Ledger()
    if "tree" in METHODS[method].needs:
        again = world(env)
        for episode in tree(world(env), tasks_of(0, tasks), "auto", group, ledger=ours):
            ask_again(again, episode, naive)
        return ours, naive
    own = world(env)
    episodes = play(own, tasks_of(0, tasks, group))
    whatif = Noted(episodes, own, ledger=ours)
    credit(episodes, method, whatif=whatif)
    again = world(env)
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


def main() -> None:
    """Print the three tables."""
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    words.add_argument("--kind", default="hf", choices=("hf", "vllm"))
    words.add_argument("--model", default="tiny")
    words.add_argument("--episodes", type=int, default=64)
    given = words.parse_args()
    share, ratio = outside(given.kind, given.model, given.episodes)
    handed = handed_over("vllm" if given.kind == "vllm" else "copy", given.model)
    first = Table("engine", "time outside the engine", "wall / all requests at once", "hand-over, of a step")
    first.add_row(f"{given.kind} {given.model}", f"{share:.1%}", f"{ratio:.2f}", f"{handed:.1%}")
    second = Table("environment", "method", "calls", "naive", "uncached prompt characters", "naive")
    for name in ("solve_verify_v0", "search_qa_v0"):
        for method in ("sharp", "c3", "shapley"):
            ours, naive = replays(make_env(name), method)
            numbers = (ours.calls, naive.calls, ours.prompt_tokens, naive.prompt_tokens)
            second.add_row(name, method, *map(str, numbers))
    console = Console()
    console.print(first)
    console.print(second)


if __name__ == "__main__":
    main()
