"""Values of cooperative games against every other package: each claim with its target, its number and a verdict.

    python benchmarks/values.py --setup     # once: the rivals in a virtual environment outside the repository
    python benchmarks/values.py             # the whole table
    python benchmarks/values.py --quick     # what needs no rivals, small, under a minute

Both sides of a ratio are measured in turn in one run; times are medians (with --quick the least of several). What it
printed stands in README.md beside this file.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numba
import values_estimates
import values_exact
import values_noisy
import values_setup
from values_rows import HEADER, Row
from values_sides import Bench

GROUPS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "exact": values_exact.exact,
    "interactions": values_exact.order_two,
    "batches": values_exact.batches,
    "graphs": values_exact.graphs,
    "costs": values_estimates.costs,
    "estimates": values_estimates.estimates,
    "others": values_estimates.others,
    "choosing": values_estimates.choosing,
    "shapleig": values_estimates.shapleig,
    "noisy": values_noisy.noisy,
    "coverage": values_noisy.coverage,
}


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 if ``--strict`` and a must is not met."""
    options = _options(arguments)
    if options.setup:
        values_setup.prepare(options.rivals)
        return 0
    python = None if options.quick else values_setup.python_in(options.rivals)
    bench = Bench(python, options.quick, options.seed, options.repeats, options.cells)
    _print_versions(bench)
    print(HEADER)
    rows = []
    for name in options.only:
        start = time.perf_counter()
        for row in GROUPS[name](bench):
            print(row.line(), flush=True)
            rows.append(row)
        print(f"    {name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    failed = sum(row.failed for row in rows)
    print(f"{sum(row.must is not None for row in rows)} musts, {failed} not met")
    return int(options.strict and failed > 0)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setup", action="store_true", help="prepare the rivals and end")
    parser.add_argument("--rivals", type=Path, default=values_setup.default_folder(), help="their folder")
    parser.add_argument("--only", type=_groups, default=list(GROUPS), help=f"groups, by comma: {', '.join(GROUPS)}")
    parser.add_argument("--quick", action="store_true", help="small and without rivals")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a must is not met")
    parser.add_argument("--cells", action="store_true", help="print every cell of the estimates")
    parser.add_argument("--repeats", type=int, default=8, help="games a cell of the estimates")
    parser.add_argument("--seed", type=int, default=0, help="of games and estimators")
    return parser.parse_args(arguments)


def _groups(names: str) -> list[str]:
    chosen = names.split(",")
    for name in chosen:
        if name not in GROUPS:
            raise argparse.ArgumentTypeError(f"{name!r} is no group; expected some of {', '.join(GROUPS)}")
    return chosen


def _print_versions(bench: Bench) -> None:
    ours = {"python": platform.python_version()}
    ours |= {name: importlib.metadata.version(name) for name in ("macredit", "numpy", "numba", "scipy")}
    print(f"ours: {_listed(ours)}, {numba.get_num_threads()} threads")
    print(f"rivals: {_listed(bench.theirs('versions')) if bench.python else 'none'}")


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


if __name__ == "__main__":
    sys.exit(main())
