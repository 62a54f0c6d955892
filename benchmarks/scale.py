"""How many engines and learners, which traffic, what saturates first: the tables of SCALE.md, recomputed.

``python benchmarks/scale.py`` prints them; every number it starts from is named here, with where it comes from.
``python benchmarks/scale.py --measure`` prints this machine's value of the one that can be measured anywhere.
"""

from __future__ import annotations

import math
import pickle
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from macredit.agents import make_policies
from macredit.envs import make_env
from macredit.episode import Episode, Turn
from macredit.rollout import World, play, tasks_of
from macredit.whatif import WhatIf

GB, TERA = 1e9, 1e12


@dataclass(frozen=True)
class Machine:
    """A node of eight H100 SXM (NVIDIA H100 and DGX H100 data sheets), and what we assume software reaches of it."""

    gpus: int = 8
    flops: float = 989 * TERA
    """Dense bf16, per second and GPU (data sheet)."""
    memory: float = 80 * GB
    """Per GPU (data sheet)."""
    bandwidth: float = 3.35 * TERA
    """HBM3, bytes per second and GPU (data sheet)."""
    utilisation: float = 0.40
    """Model FLOP utilisation of learning and of prompts (assumption: the target that benchmarks/gpu.sh checks)."""
    reached: float = 0.70
    """Share of the memory bandwidth that decoding reaches (assumption)."""
    overhead: float = 0.005
    """Seconds of every decoding step that no kernel runs: scheduling, sampling (assumption)."""
    store: float = 2.5 * GB
    """Bytes per second of one object-store transfer between two nodes, over TCP (assumption)."""
    copy: float = 10 * GB
    """Bytes per second from the object store's shared memory into one GPU (assumption; PCIe 5 x16 allows 64)."""
    fill: float = 0.90
    """Share of a GPU's memory that an engine may use (vLLM's default)."""

    @property
    def computed(self) -> float:
        """FLOP/s that software reaches of one GPU."""
        return self.flops * self.utilisation

    @property
    def read(self) -> float:
        """Bytes per second that decoding reads from one GPU's memory."""
        return self.bandwidth * self.reached


@dataclass(frozen=True)
class Model:
    """A dense transformer (Qwen2.5 technical report, arXiv 2412.15115, and the published configurations)."""

    name: str
    parameters: float
    layers: int
    hidden: int
    inner: int
    kv: int
    """Width of keys (and of values) of one layer: KV heads × 128."""

    @property
    def weights(self) -> float:
        """Bytes in bf16."""
        return 2 * self.parameters

    @property
    def kv_token(self) -> float:
        """Bytes of one token's keys and values in bf16."""
        return 2 * 2 * self.layers * self.kv

    def adapter(self, rank: int) -> float:
        """Parameters of a LoRA adapter on all linear layers: rank · (inputs + outputs) each."""
        h, i, kv = self.hidden, self.inner, self.kv
        return self.layers * rank * (2 * (h + h) + 2 * (h + kv) + 3 * (h + i))


SMALL = Model("1.5B", 1.54e9, 28, 1536, 8960, 256)
LARGE = Model("7B", 7.61e9, 28, 3584, 18944, 512)


@dataclass(frozen=True)
class Work:
    """One training step (all assumptions; the first three are the case asked about)."""

    tasks: int = 64
    group: int = 16
    turns: int = 8
    agents: int = 3
    role: int = 512
    """Tokens of an agent's role text, the same in every episode."""
    shown: int = 256
    """New prompt tokens a turn."""
    reply: int = 256
    """Sampled tokens a turn."""
    asked_anew: float = 0.5
    """Share of an episode's turns that a leave-one-out replay asks the engine for; the rest is on record or silent."""
    rank: int = 16
    driver: float = 0.0003
    """Seconds of the driving process a turn, nearly all of it for rebuilding moments (0.32 ms on two busy cores)."""

    @property
    def originals(self) -> int:
        """Turns of a step's independent episodes."""
        return self.tasks * self.group * self.turns

    @property
    def sharp(self) -> float:
        """Turns asked anew in leave-one-out replays of every specialist."""
        return self.tasks * self.group * (self.agents - 1) * self.turns * self.asked_anew

    @property
    def c3(self) -> float:
        """Turns of trees with as many leaves as a group has members: fan-out 2 at log2(group) of the turns.

        The d-th of k turns drawn from T is turn d(T + 1)/(k + 1) on average; 2**(d - 1) plays branch there.
        """
        k, T = int(math.log2(self.group)), self.turns
        forks = sum(2.0 ** (d - 1) * (T + 1 - d * (T + 1) / (k + 1)) for d in range(1, k + 1))
        return self.tasks * (T + forks)

    @property
    def context(self) -> float:
        """Prompt tokens at a turn: role, what is new, and the agent's own turns before, half of them on average."""
        own = self.turns / self.agents
        return self.role + self.shown + (own - 1) / 2 * (self.shown + self.reply)

    @property
    def row(self) -> float:
        """Tokens of a training row: one turn with its whole prompt."""
        return self.context + self.reply


@dataclass(frozen=True)
class Plan:
    """One way to share out GPUs."""

    model: Model
    full: bool
    """Three models of their own; else three adapters on one base."""
    gpus: int
    work: Work
    engines: int
    """One GPU each; every engine speaks for all three."""
    machine: Machine = Machine()

    @property
    def named(self) -> str:
        """As the tables call it."""
        return named(self.model, self.full)

    @property
    def per_learner(self) -> int:
        """GPUs of each of the three learners."""
        return (self.gpus - self.engines) // self.work.agents

    @property
    def resident(self) -> float:
        """Bytes of weights in an engine."""
        return self.model.weights * (self.work.agents if self.full else 1)

    @property
    def room(self) -> int:
        """Conversations whose keys and values fit into an engine beside the weights."""
        free = self.machine.fill * self.machine.memory - self.resident
        return int(free // (self.model.kv_token * self.work.row))

    @property
    def alive(self) -> float:
        """Conversations an engine decodes at once."""
        return min(self.work.tasks * self.work.group / self.engines, self.room)

    def decode(self, alive: float) -> float:
        """Seconds of a decoding step: weights and every conversation's keys are read once, or arithmetic is more."""
        m = self.machine
        read = self.resident + alive * self.model.kv_token * (self.work.context + self.work.reply / 2)
        return m.overhead + max(read / m.read, 2 * self.model.parameters * alive / m.computed)

    def speaking(self, turns: float) -> float:
        """Seconds in which the engines answer so many turns."""
        mine, m = turns / self.engines, self.machine
        prompts = 2 * self.model.parameters * mine * self.work.shown / m.computed
        return mine / self.alive * self.work.reply * self.decode(self.alive) + prompts

    @property
    def learning(self) -> float:
        """Seconds of an update, the three at the same time.

        FLOPs a parameter and token: 2 forward, 2 again for checkpointing, 2 for the gradient of activations and, where
        the weights themselves learn, 2 for theirs.
        """
        tokens = self.work.originals / self.work.agents * self.work.row
        return self.passes * self.model.parameters * tokens / (self.machine.computed * self.per_learner)

    @property
    def passes(self) -> int:
        """FLOPs a parameter and token of an update; see :attr:`learning`."""
        return 8 if self.full else 6

    @property
    def trained(self) -> float:
        """Parameters of one learner that learn."""
        return self.model.parameters if self.full else self.model.adapter(self.work.rank)

    @property
    def learner_bytes(self) -> float:
        """Memory of one learner a GPU, without activations.

        bf16 weights; for what learns float32 master weights, gradient and two moments of AdamW.
        """
        return (self.model.weights + 16 * self.trained) / self.per_learner

    @property
    def handed(self) -> float:
        """Bytes of one policy's hand-over: the whole model in bf16, or its adapter in float32."""
        return self.model.weights if self.full else 4 * self.model.adapter(self.work.rank)

    @property
    def handing(self) -> float:
        """Seconds of a hand-over of all three: once to each node, along a binary tree, then into each GPU."""
        nodes = math.ceil(self.gpus / self.machine.gpus)
        bytes_ = self.handed * self.work.agents
        return bytes_ * math.ceil(math.log2(nodes + 1)) * (nodes > 1) / self.machine.store + bytes_ / self.machine.copy

    def stages(self, method: str) -> dict[str, float]:
        """Seconds of everything that may saturate."""
        w = self.work
        turns = {"dr_mas": w.originals, "sharp": w.originals + w.sharp, "c3": w.c3}[method]
        learn = self.learning * (w.c3 / w.originals if method == "c3" else 1)
        return {
            "engines": self.speaking(turns), "learners": learn, "hand-over": self.handing, "driver": turns * w.driver
        }  # fmt: skip

    def step(self, method: str, ahead: bool) -> float:
        """Seconds of a step: one stage after another, or rollouts and credit of the next beside learning."""
        s = self.stages(method)
        speak, learn = s["engines"] + s["driver"], s["learners"]
        return (max(speak, learn) if ahead else speak + learn) + s["hand-over"]

    @property
    def fits(self) -> bool:
        """Whether a learner is on one machine, engines hold 16 conversations, and activations get a quarter of a GPU.

        A learner's ranks are processes of one machine (``fsdp.Ranks``), in one bundle of Ray's placement group.
        """
        placed = 0 < self.per_learner <= self.machine.gpus
        return placed and self.room >= 16 and self.learner_bytes <= 0.75 * self.machine.memory


def best(model: Model, full: bool, gpus: int, work: Work, method: str = "sharp") -> Plan | None:
    """The split with the shortest step at staleness 1, where any fits; learners take GPUs in threes."""
    plans = [Plan(model, full, gpus, work, engines) for engines in range(1, gpus)]
    whole = [plan for plan in plans if (gpus - plan.engines) % work.agents == 0 and plan.fits]
    return min(whole, key=lambda plan: plan.step(method, True), default=None)


CASES = (
    (8, Work()),
    (64, Work()),
    (64, Work(tasks=512)),
)
MODELS = ((SMALL, False), (SMALL, True), (LARGE, False), (LARGE, True))


STAGES = (
    "GPUs", "tasks", "model", "engines", "GPUs a learner", "engines, s", "learners, s", "hand-over, s", "driver, s",
    "step, s", "staleness 1, s", "first to saturate",
)  # fmt: skip


def splits(method: str) -> Iterator[Sequence[str]]:
    """Rows: the best split of every case."""
    yield STAGES
    for gpus, work in CASES:
        for model, full in MODELS:
            plan = best(model, full, gpus, work, method)
            if plan is not None:
                yield split(plan, method)


def single() -> Iterator[Sequence[str]]:
    """Rows: one node with one GPU a learner, where the learner fits one."""
    yield STAGES
    for model, full in MODELS:
        plan = Plan(model, full, 8, Work(), 5)
        if plan.fits:
            yield split(plan, "sharp")


def split(plan: Plan, method: str) -> Sequence[str]:
    """One row: seconds of every stage, of a whole step, and which is the longest."""
    s = plan.stages(method)
    return (
        f"{plan.gpus}", f"{plan.work.tasks}", plan.named, f"{plan.engines}", f"{plan.per_learner}",
        *(f"{value:.1f}" for value in s.values()), f"{plan.step(method, False):.0f}",
        f"{plan.step(method, True):.0f}", max(s, key=lambda stage: s[stage]),
    )  # fmt: skip


def memory() -> Iterator[Sequence[str]]:
    """Rows: what fits where on the best splits for SHARP."""
    yield "GPUs", "model", "weights in an engine, GB", "conversations it has room for", "alive", "a learner's GPU, GB"
    for gpus, work in CASES[:2]:
        for model, full in MODELS:
            plan = best(model, full, gpus, work)
            if plan is not None:
                yield (
                    f"{gpus}", plan.named, f"{plan.resident / GB:.1f}", f"{plan.room}", f"{plan.alive:.0f}",
                    f"{plan.learner_bytes / GB:.1f}",
                )  # fmt: skip


def worked() -> Iterator[Sequence[str]]:
    """Rows: the formulas, and their arithmetic for one line of the first table of splits."""
    p = Plan(LARGE, False, 8, Work(), 5)
    w, m, s = p.work, p.machine, p.stages("sharp")
    turns, alive, per_token = w.originals + w.sharp, p.alive, 2 * p.model.parameters
    weights, speed = f"{p.resident / GB:.2f} GB", f"{m.computed / TERA:.1f} TFLOP/s"
    dense, handed = f"{p.model.parameters / GB:.2f} G", p.handed * w.agents / GB
    yield "what", "formula", f"{p.named}, {p.gpus} GPUs, sharp", "result"
    yield (
        "tokens of a row", "role + new + (turns / agents − 1) / 2 · (new + reply) + reply",
        f"{w.role} + {w.shown} + ({w.turns} / {w.agents} − 1) / 2 · ({w.shown} + {w.reply}) + {w.reply}",
        f"{w.row:.0f}",
    )  # fmt: skip
    yield (
        "alive in an engine", "min(tasks · group / engines, room)",
        f"min({w.tasks} · {w.group} / {p.engines}, {p.room})", f"{alive:.0f}",
    )  # fmt: skip
    yield (
        "a decoding step",
        "overhead + max((weights + alive · KV bytes of a token · (row − reply / 2)) / bandwidth, 2 P · alive / FLOP/s)",
        f"{1000 * m.overhead:.0f} ms + max(({weights} + {alive:.1f} · {p.model.kv_token:.0f} · "
        f"{w.row - w.reply / 2:.0f}) / {m.read / TERA:.2f} TB/s, 2 · {dense} · {alive:.1f} / {speed})",
        f"{1000 * p.decode(alive):.2f} ms",
    )  # fmt: skip
    yield (
        "engines", "turns / engines · (reply / alive · a decoding step + new · 2 P / FLOP/s)",
        f"{turns:.0f} / {p.engines} · ({w.reply} / {alive:.1f} · {1000 * p.decode(alive):.2f} ms + "
        f"{w.shown} · {1000 * per_token / m.computed:.4f} ms)",
        f"{s['engines']:.1f} s",
    )  # fmt: skip
    yield (
        "learners", "6 (full models: 8) · P · original turns / agents · row / (FLOP/s · GPUs a learner)",
        f"{p.passes} · {dense} · {w.originals} / {w.agents} · {w.row:.0f} / ({speed} · {p.per_learner})",
        f"{s['learners']:.1f} s",
    )  # fmt: skip
    yield (
        "hand-over", "bytes · ⌈log2(nodes + 1)⌉ / network, on one node 0, + bytes / copy",
        f"0 + {handed:.3f} GB / {m.copy / GB:.0f} GB/s", f"{s['hand-over']:.2f} s",
    )  # fmt: skip
    yield "driver", "turns · a turn's", f"{turns:.0f} · {1000 * w.driver:.1f} ms", f"{s['driver']:.1f} s"
    shown = {name: f"{value:.1f}" for name, value in s.items()}
    yield (
        "step", "engines + driver + learners + hand-over", " + ".join(
            shown[name] for name in ("engines", "driver", "learners", "hand-over")
        ), f"{p.step('sharp', False):.0f} s",
    )  # fmt: skip
    yield (
        "step, staleness 1", "max(engines + driver, learners) + hand-over",
        f"max({shown['engines']} + {shown['driver']}, {shown['learners']}) + {shown['hand-over']}",
        f"{p.step('sharp', True):.0f} s",
    )  # fmt: skip
    yield (
        "a learner's GPU", "(weights + 16 · parameters that learn) / GPUs a learner",
        f"({weights} + 16 · {p.trained / GB:.4f} G) / {p.per_learner}", f"{p.learner_bytes / GB:.1f} GB",
    )  # fmt: skip


def rows() -> Iterator[Sequence[str]]:
    """Rows: tokens that learners compute."""
    work = Work()
    yield "rows", "tokens a step"
    alone = work.originals * work.row
    together = work.tasks * work.group * (work.agents * work.role + work.turns * (work.shown + work.reply))
    yield "every row with its whole prompt", f"{alone / 1e6:.1f} M"
    yield "every agent's conversation once", f"{together / 1e6:.1f} M"


def methods() -> Iterator[Sequence[str]]:
    """Rows: turns that engines are asked for."""
    yield "method", "turns asked for", "prompt tokens computed", "sampled tokens", "of the originals"
    work = Work()
    for name, turns in (("dr_mas", work.originals), ("sharp", work.originals + work.sharp), ("c3", work.c3)):
        sampled, shown = turns * work.reply / 1e6, turns * work.shown / 1e6
        yield name, f"{turns:.0f}", f"{shown:.2f} M", f"{sampled:.2f} M", f"{turns / work.originals:.2f}"


def traffic() -> Iterator[Sequence[str]]:
    """Rows: bytes of a step (sharp, 64 tasks) through Ray."""
    yield "what", "from", "to", "MB a step", "how often"
    work, turn = Work(), turn_bytes(Work())
    replayed = work.tasks * work.group * (work.agents - 1)
    words = work.context * 4.5  # bytes of the conversation as text
    ids = pickled(tuple(range(100_000, 100_000 + int(work.context))))
    say = words + 2 * ids  # the conversation, and the prompt's ids on the way there and back
    moment = work.turns / 2 * turn + work.agents * (words + ids)
    rows = [
        ("episodes", "workers", "driver", work.originals * turn, "a task"),
        ("replays", "driver", "workers", replayed * moment, "a task and wave"),
        ("replayed episodes", "workers", "driver", replayed * work.turns * turn, "a task and wave"),
        ("replies on record", "driver", "workers", work.originals * (turn + ids), "a task and wave"),
        ("requests and replies", "workers", "engines", (work.originals + work.sharp) * (say + turn), "a turn"),
        ("training rows", "driver", "learners", work.originals * work.row * (8 + 1 + 8), "a policy"),
    ]
    for what, source, target, size, often in rows:
        yield what, source, target, f"{size / 1e6:.0f}", often
    for model, full in MODELS:
        handed = Plan(model, full, 8, work, 5).handed * work.agents
        yield f"weights, {named(model, full)}", "learners", "every node", f"{handed / 1e6:.0f}", "an update"
    for model, full in MODELS:
        saved = 12 * Plan(model, full, 8, work, 5).trained * work.agents  # float32 weights and two moments
        yield f"checkpoint, {named(model, full)}", "learners", "run's folder", f"{saved / 1e6:.0f}", "save_every steps"


def turn_bytes(work: Work) -> float:
    """Bytes of one recorded turn, pickled as Ray sends it."""
    ids, logprobs = tuple(range(100_000, 100_000 + work.shown)), tuple(-1.0 / (i + 3) for i in range(work.reply))
    text = "x" * int(4.5 * work.reply)  # characters a token (assumption)
    turn = Turn("solver", text, id="t0-0/0", prompt_ids=ids, token_ids=ids[: work.reply], logprobs=logprobs)
    return pickled(Episode("t0-0", "t0", (turn,))) - pickled(Episode("t0-0", "t0", ()))


def pickled(value: object) -> float:
    """Bytes of a pickle."""
    return float(len(pickle.dumps(value, protocol=5)))


def named(model: Model, full: bool) -> str:
    """As the tables call it."""
    return f"three {model.name}" if full else f"{model.name}, three LoRA"


def table(rows: Iterator[Sequence[str]]) -> str:
    """A Markdown table."""
    head, *body = list(rows)
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body)]
    return "\n".join(lines)


def tables() -> dict[str, str]:
    """Every table of SCALE.md by its name there."""
    return {
        "methods": table(methods()), "worked": table(worked()), "single": table(single()),
        "sharp": table(splits("sharp")), "c3": table(splits("c3")), "memory": table(memory()), "rows": table(rows()),
        "traffic": table(traffic()),
    }  # fmt: skip


def written(page: Path) -> dict[str, str]:
    """The tables that a page holds, each between ``<!-- name -->`` and an empty line."""
    parts = page.read_text(encoding="utf-8").split("<!-- ")[1:]
    return {part.split(" -->")[0]: part.split(" -->\n")[1].split("\n\n")[0] for part in parts}


def measured() -> float:
    """Seconds of processor time in which this machine rebuilds the moments of one recorded turn."""
    env = make_env("solve_verify_v0", dataset="chain_sum")
    everyone = {agent.policy: {"kind": "scripted", "style": "perfect"} for agent in env.team.agents}
    world = World(env, make_policies(everyone, env))
    episodes = play(world, tasks_of(0, 16, 16))
    begun = time.process_time()
    whatif = WhatIf(episodes, world)
    for e in range(len(episodes)):
        whatif.silence_message(e, 0)
    return (time.process_time() - begun) / sum(len(episode.turns) for episode in episodes)


if __name__ == "__main__":
    if sys.argv[1:] == ["--measure"]:
        print(f"{1000 * measured():.2f} ms of the driving process a turn")
    else:
        for name, text in tables().items():
            print(f"<!-- {name} -->\n{text}\n")
