"""How tests share a machine: with several workers, each computes on one core, and one file alone needs no workers."""

import os

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # before anything imports them; numba's setting counts for torch's OpenMP too
    for library in ("OMP", "OPENBLAS", "NUMBA"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """0 for one file or test alone, which ends before workers have begun; otherwise one for each core."""
    return 0 if len(config.args) == 1 and ".py" in config.args[0] else None
