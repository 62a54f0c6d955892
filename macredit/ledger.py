"""What an answer cost: counted as it happens, compared at equal terminal evaluations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from macredit.policy import Said


@dataclass
class Ledger:
    """Counters of one piece of work; ``json()`` is the ``cost`` object of results."""

    resets: int = 0
    """Episodes begun, from the start or from a snapshot."""
    replays: int = 0
    """Counterfactual episodes played to their end (terminal evaluations)."""
    replays_saved: int = 0
    """Counterfactual outcomes known without a replay: recorded, asked before, or equal on everything that came up."""
    turns_kept: int = 0
    """Recorded turns before the first that differs, which replays did not play again."""
    calls: int = 0
    """Replies a policy really made."""
    calls_reused: int = 0
    """Replies taken from the record instead."""
    prompt_tokens: int = 0
    """Prompt tokens computed."""
    prompt_tokens_cached: int = 0
    """Prompt tokens an engine took from its cache."""
    sampled_tokens: int = 0
    micros: int = 0
    """Price of the calls in millionths of a currency, as far as policies were given prices."""
    judge_calls: int = 0
    seconds: float = 0.0
    _timing: bool = field(default=False, init=False, repr=False)

    def charge(self, said: Said) -> None:
        """Count one reply that a policy made."""
        usage = said.usage or {}
        cached = usage.get("cached", 0)
        self.calls += 1
        self.prompt_tokens += usage.get("prompt", 0) - cached
        self.prompt_tokens_cached += cached
        self.sampled_tokens += usage.get("sampled", 0)
        self.micros += usage.get("micros", 0)

    @property
    def cache_hit_rate(self) -> float | None:
        """Share of prompt tokens that an engine took from its cache; None: no prompt token was counted."""
        prompt = self.prompt_tokens + self.prompt_tokens_cached
        return self.prompt_tokens_cached / prompt if prompt else None

    def add(self, other: Ledger) -> None:
        """Add another's counters; not its seconds, since both may have run at the same time."""
        for name, value in other.json().items():
            if name != "seconds":
                setattr(self, name, getattr(self, name) + value)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the wall time of a block; of blocks within blocks only the outermost counts."""
        if self._timing:
            yield
            return
        self._timing, begun = True, time.perf_counter()
        try:
            yield
        finally:
            self._timing = False
            self.seconds += time.perf_counter() - begun

    def json(self) -> dict[str, float]:
        """All counters by name."""
        return {name: value for name, value in asdict(self).items() if name != "_timing"}

    def load(self, data: dict[str, float]) -> None:
        """Set all counters from :meth:`json`'s object; one that it lacks, as older files may, stays."""
        for name, value in data.items():
            setattr(self, name, value)
