"""What a GPU does with the learners, the Hugging Face policy and the credit methods, one JSON line a result.

    benchmarks/gpu.sh [--device cpu --tiny]

Every part checks its own results; a wrong one is named on standard error and makes the exit status 1, and so does a
missed target: on a GPU, a line that has one says so (``target``, ``met``). Models are made on the spot with random
weights: nothing is downloaded. The parts that are timed run one after another in one process.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from gpu_bench import Bench, Line
from gpu_credit import credit
from gpu_learner import learner
from gpu_parity import parity
from gpu_sampling import sampling
from values_rows import at_most

from macredit.errors import UserError

PARTS: dict[str, Callable[[Bench], Iterator[Line]]] = {
    "parity": parity,
    "learner": learner,
    "sampling": sampling,
    "credit": credit,
}
SECONDS = 240
"""All parts together take at most this, once torch is loaded."""


def run(bench: Bench, parts: Sequence[str]) -> None:
    """Print the lines of some parts; what does not fit the device's memory fails its part alone."""
    for name in parts:
        start = time.perf_counter()
        try:
            for line in PARTS[name](bench):
                print(json.dumps({"part": name, **line}), flush=True)
        except (torch.OutOfMemoryError, UserError) as error:
            bench.check(False, f"{name}: {str(error).splitlines()[0]}; --batch-tokens lowers what is computed at once")
        bench.clear()
        print(json.dumps({"part": name, "seconds": round(time.perf_counter() - start, 2)}), flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts and judge them."""
    parser = argparse.ArgumentParser(description="What a GPU does with learners, sampling and credit.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true", help="toy sizes, for any machine")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas")
    parser.add_argument("--batch-tokens", type=int, default=0, help="computed tokens of a micro-batch")
    parser.add_argument("--models", type=Path, required=True, help="an empty folder for the models")
    given = parser.parse_args(argv)
    parts = given.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))}; expected some of {', '.join(PARTS)}")
    if given.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("--device cuda was given, but torch sees no GPU; give --device cpu --tiny")
    start = time.perf_counter()
    bench = Bench(torch.device(given.device), given.tiny, given.models, given.batch_tokens)
    print(json.dumps(bench.about()), flush=True)
    run(bench, parts)
    line: Line = {"part": "verdict", "seconds": round(time.perf_counter() - start, 1)}
    line = bench.judged("all parts", line, "seconds", at_most(SECONDS))
    print(json.dumps({**line, "ok": not bench.failures, "failures": bench.failures}))
    for failure in bench.failures:
        print(failure, file=sys.stderr)
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
