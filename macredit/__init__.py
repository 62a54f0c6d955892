"""Who in the team earned the reward? Train, measure and compare teams of LLM agents."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "Episode": "episode", "Key": "seeds", "Ledger": "ledger", "Policy": "policy", "Report": "report", "Team": "team",
    "TeamEnv": "env", "Turn": "episode", "UserError": "errors", "WhatIf": "whatif", "World": "rollout",
    "play": "rollout", "read_episodes": "episode", "tasks_of": "rollout", "write_episodes": "episode",
}  # fmt: skip
"""Name → module: loaded when asked for, so that the mathematics imports without the environments."""

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
