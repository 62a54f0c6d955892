"""The rivals' side: runs in their interpreter, answers (function, arguments) from a pipe.

Started by :class:`values_sides.Rivals`. A table is handed over as a NumPy array, a game as (family, players, seed).
"""

from __future__ import annotations

import importlib.metadata
import sys
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import values_rival_estimates as estimates
import values_rival_exact as exact

PACKAGES = ["shapiq", "pyDVL", "shapley-numba", "coopgame-py", "myerson", "xgboost", "lightgbm", "gpytorch", "numpy"]


def versions() -> dict[str, str]:
    """What is installed here."""
    found = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


CALLS: dict[str, Callable[..., Any]] = {
    "coopgame": exact.coopgame,
    "coopgame_myerson": exact.coopgame_myerson,
    "estimate": estimates.estimate,
    "myerson_package": exact.myerson_package,
    "noisy": estimates.noisy,
    "shapiq_batch": exact.shapiq_batch,
    "shapiq_exact": exact.shapiq_exact,
    "shapiq_moebius": exact.shapiq_moebius,
    "shapley_numba": exact.shapley_numba,
    "true_values": estimates.true_values,
    "versions": versions,
}


def main() -> None:
    """Answer until the pipe closes."""
    warnings.simplefilter("ignore")
    pipe: Connection[Any, Any] = Connection(int(sys.argv[1]))
    while True:
        try:
            name, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, CALLS[name](*arguments)))
        except Exception as error:  # noqa: BLE001 a rival's failure is a fact of the table
            pipe.send((False, f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    main()
