"""Learner steps of a team of three: speed, utilisation and memory, beside the straightforward loop and compiled."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from gpu_bench import Bench, Line
from gpu_plain import Plain
from gpu_rows import SHARED, Size, model_flops, team_rows, work_of
from values_rows import at_least, at_most

from macredit.agents import HF, make_policies
from macredit.learn import Learner, LearnerConfig, TrainRow

Team = Mapping[str, list[TrainRow]]
STEPS = 3
"""Timed steps of each side, after one to warm up."""
UTILISATION, MEMORY = 0.4, 1.0
"""Of the last case's learners at least; of memory, by the straightforward loop's, at most."""


@dataclass(frozen=True)
class Case:
    """The team's policies: adapters on one base, or a model each."""

    name: str
    model: str
    lora: int
    """Rank; 0: full models."""
    rate: float
    dtype: str = "float32"
    """Of the weights that do not learn; those that do are float32."""
    compile: bool = False
    """Whether our learners compile their layers."""
    agents: tuple[str, ...] = tuple(SHARED)
    """Who learns."""


def cases(bench: Bench) -> list[Case]:
    """What is measured: toys or Qwen-like models."""
    if bench.tiny:
        return [
            Case("toy, three full models", "toy", 0, 1e-3),
            Case("larger toy, three adapters", "larger toy", 8, 1e-2),
        ]
    return [
        Case("0.5B, three full models", "0.5B", 0, 1e-5),
        Case("1.5B, three adapters", "1.5B", 16, 1e-3, bench.precision),
    ]


def size_of(bench: Bench) -> Size:
    """The rows of a step: prompts of 512 to 2048 tokens and replies of 64 to 512, or toys of them."""
    if bench.tiny:
        return Size(2, 4, (64, 192), (8, 48), 2048)
    return Size(4, 8, (512, 2048), (64, 512), 151_936)


def learner(bench: Bench) -> Iterator[Line]:
    """Every case: our learners, then the straightforward loop on the same rows and weights; the last compiled, too."""
    last = cases(bench)[-1]
    for case in cases(bench):
        where = f"learner, {case.name}"
        ours = side(bench, case, learners)
        line = {"case": case.name, "side": "macredit", **ours}
        yield bench.judged(where, line, "mfu", at_least(UTILISATION)) if case == last else line
        plain = side(bench, case, loops)
        yield {"case": case.name, "side": "straightforward loop", **plain}
        memory = ours["peak_bytes"] / plain["peak_bytes"] if bench.cuda else None
        speed = ours["tokens_per_second"] / plain["tokens_per_second"]
        line = {"case": case.name, "speed_ratio": round(speed, 3), "memory_ratio": memory and round(memory, 3)}
        yield bench.judged(where, line, "memory_ratio", at_most(MEMORY))
        if case == last:
            bench.seconds_per_row = ours["seconds_per_step"] / ours["rows"]
            yield compiled(bench, case)


def compiled(bench: Bench, case: Case) -> Line:
    """One learner of a case with ``compile = true``, by its own speed without; None and why where it cannot be."""
    alone = replace(case, name=f"{case.name}: one learner", agents=("solver",))
    line: Line = {"case": alone.name, "side": "macredit, compile = true", "compile_ratio": None}
    reason = cannot_compile(bench)
    if reason is not None:
        return {**line, "reason": reason}
    plain = side(bench, alone, learners)
    found: Line = {}
    start = time.perf_counter()
    failed = attempt(lambda: found.update(side(bench, replace(alone, compile=True), learners)))
    seconds = time.perf_counter() - start
    torch.compiler.reset()
    if failed is not None:
        bench.check(False, f"learner, {alone.name}: compile = true: {failed}")
        return {**line, "reason": failed}
    ratio = found["tokens_per_second"] / plain["tokens_per_second"]
    return {**line, **found, "compile_ratio": round(ratio, 3), "seconds_with_compiling": round(seconds, 1)}


def cannot_compile(bench: Bench) -> str | None:
    """Why layers are not compiled here; None: they are."""
    if not bench.cuda:
        return "generating code for a CPU takes minutes; give --device cuda"
    return attempt(lambda: torch.compile(lambda x: x.sin() + 1)(torch.ones(2, device=bench.device)))


def attempt(work: Callable[[], object]) -> str | None:
    """What some work raises, in a line; None: nothing."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 whatever a compiler lacks or cannot do
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return None


def policies_of(bench: Bench, case: Case, names: Sequence[str]) -> dict[str, HF]:
    """The three policies, freshly made."""
    spec: dict[str, Any] = {"kind": "hf", "model": bench.model(case.model, case.dtype), "device": str(bench.device)}
    spec |= {"dtype": case.dtype} | ({"lora": {"rank": case.lora}} if case.lora else {})
    made = make_policies(dict.fromkeys(names, spec))
    return {name: policy for name, policy in made.items() if isinstance(policy, HF)}


def config_of(bench: Bench, case: Case) -> LearnerConfig:
    """How a case learns."""
    return LearnerConfig(
        rate=case.rate, batch_tokens=bench.batch_tokens, dual_clip=None, precision=bench.precision, compile=case.compile
    )


Step = Callable[[Sequence[TrainRow]], float]


def learners(bench: Bench, case: Case, policies: Mapping[str, HF]) -> dict[str, Step]:
    """Our side: each agent's optimiser step, which returns its loss."""
    made = {name: Learner(policy, config_of(bench, case)) for name, policy in policies.items()}
    return {name: lambda rows, one=one: one.update(rows)["loss"] for name, one in made.items()}  # type: ignore[misc]


def loops(bench: Bench, case: Case, policies: Mapping[str, HF]) -> dict[str, Step]:
    """The other side."""

    def stepping(policy: HF) -> Step:
        policy.activate()
        loop = Plain(policy.module, case.rate, bench.batch_tokens, bench.precision)

        def step(rows: Sequence[TrainRow]) -> float:
            policy.activate()
            return loop.step(rows)

        return step

    return {name: stepping(policy) for name, policy in policies.items()}


def side(bench: Bench, case: Case, make: Callable[[Bench, Case, Mapping[str, HF]], dict[str, Step]]) -> dict[str, Any]:
    """Times of some steps on one fixed batch, whose loss must fall."""
    bench.clear()
    team = team_rows(size_of(bench))
    rows: Team = {name: team[name] for name in case.agents}
    policies = policies_of(bench, case, list(rows))
    rows = behaved(policies, rows, config_of(bench, case))
    bench.clear()
    steps = make(bench, case, policies)
    losses: list[float] = []

    def step() -> None:
        losses.append(sum(steps[name](rows[name]) for name in rows))

    with computed_tokens(policies) as computed:
        bench.seconds(step)
    seconds = statistics.median(bench.seconds(step) for _ in range(STEPS))
    where = f"learner, {case.name}, {make.__name__}"
    bench.check(losses[-1] < losses[0], f"{where}: the loss of a fixed batch went from {losses[0]} to {losses[-1]}")
    return bench.check_finite(where, figures(bench, policies, rows, seconds, computed[0], losses))


def behaved(policies: Mapping[str, HF], rows: Team, config: LearnerConfig) -> dict[str, list[TrainRow]]:
    """Rows with the log-probabilities that their policies give them."""
    out = {}
    for name, policy in policies.items():
        policy.prepare(config)
        out[name] = [
            replace(row, logprob=logp) for row, logp in zip(rows[name], policy.logprobs(rows[name]), strict=True)
        ]
    return out


def figures(
    bench: Bench, policies: Mapping[str, HF], rows: Team, seconds: float, computed: int, losses: Sequence[float]
) -> dict[str, Any]:
    """A side's numbers.

    ``tokens`` are those of the rows, ``distinct_tokens`` those that must be computed at least once (no prefix twice, no
    last token), ``computed_tokens`` went through the model. ``mfu`` is the model FLOP utilisation on the distinct
    tokens, ``mfu_of_rows`` on the rows as if each had to be computed whole: prefixes computed once raise it, and it may
    exceed 1.
    """
    whole = {name: work_of(part, shared=False) for name, part in rows.items()}
    least = {name: work_of(part, shared=True) for name, part in rows.items()}
    tokens = sum(len(row.ids) for part in rows.values() for row in part)

    def utilisation(works: Mapping[str, Any]) -> float | None:
        flops = 0.0
        for name, policy in policies.items():
            policy.activate()
            flops += model_flops(works[name], policy.module)
        return round(flops / seconds / bench.peak, 4) if bench.peak else None

    return {
        "rows": sum(len(part) for part in rows.values()), "tokens": tokens, "computed_tokens": computed,
        "distinct_tokens": sum(work.tokens for work in least.values()),
        "seconds_per_step": seconds, "tokens_per_second": tokens / seconds, "mfu": utilisation(least),
        "mfu_of_rows": utilisation(whole), "peak_bytes": bench.peak_memory(), "precision": bench.precision,
        "batch_tokens": bench.batch_tokens, "loss_first": losses[0], "loss_last": losses[-1],
    }  # fmt: skip


@contextmanager
def computed_tokens(policies: Mapping[str, HF]) -> Iterator[list[int]]:
    """Counts the ids, padding included, that go into the embeddings of the policies' models."""
    count = [0]

    def counting(_: Any, inputs: tuple[Any, ...]) -> None:
        count[0] += inputs[0].numel()

    embeddings = {id(e): e for e in (policy.module.get_input_embeddings() for policy in policies.values())}
    hooks = [embedding.register_forward_pre_hook(counting) for embedding in embeddings.values()]
    yield count
    for hook in hooks:
        hook.remove()
