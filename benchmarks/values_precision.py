"""Memory and rounding of exact values."""

from __future__ import annotations

import ctypes
import math
import platform
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Value = Callable[[Any], Any]
FloatN = npt.NDArray[np.float64]
WEIGHTS: dict[str, Callable[[int], list[Fraction]]] = {
    "shapley": lambda n: [Fraction(1, n * math.comb(n - 1, s)) for s in range(n)],
    "banzhaf": lambda n: [Fraction(1, 2 ** (n - 1))] * n,
}
"""Weight of a player's marginal to s of the others, s = 0 … n − 1."""


def peak_memory(value: Value, table: FloatN) -> tuple[float | None, str]:
    """Bytes by which the resident set peaks above its size before the call, and how that was found out."""
    reset = Path("/proc/self/clear_refs")
    if not reset.exists() or platform.libc_ver()[0] != "glibc":
        return None, "only Linux with glibc tells"
    value(table)
    peaks = []
    for _ in range(5):
        ctypes.CDLL(None).malloc_trim(0)  # what earlier calls freed goes back, so that this one must ask for it
        reset.write_text("5")  # the peak starts anew
        before = _kilobytes("VmRSS")
        value(table)
        peaks.append(_kilobytes("VmHWM") - before)
    return 1024.0 * max(min(peaks), 0), "the resident set's peak, least of five calls"


def largest_error(value: Value, n: int) -> float:
    """Largest error of a semivalue by the range of worths; the worths are whole numbers by 2^30, the truth fractions.

    Sums of whole numbers below 2^53 are exact in float64.
    """
    whole = np.random.default_rng(n).integers(-(2**30), 2**30, 2**n)
    mask, weight = np.arange(2**n), WEIGHTS[value.__name__](n)
    size = np.bitwise_count(mask)
    found = np.asarray(value(whole / 2.0**30))
    errors = []
    for i in range(n):
        inside = (mask >> i & 1).astype(np.bool_)
        gain, base = (np.bincount(size[side], whole[side], n + 1) for side in (inside, ~inside))
        truth = sum(weight[s] * Fraction(int(gain[s + 1] - base[s]), 2**30) for s in range(n))
        errors.append(abs(Fraction(float(found[i])) - truth))
    return float(max(errors)) * 2.0**30 / float(np.ptp(whole))


def _kilobytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))
