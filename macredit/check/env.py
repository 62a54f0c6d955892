"""What every environment promises; each check returns None, or one sentence on what is wrong.

PettingZoo's ``parallel_api_test`` does not apply: in a ``TeamEnv`` one agent speaks at a time (``is_parallelizable`` is
False).
"""

from __future__ import annotations

import contextlib
import io
import math
import pickle
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from macredit.env import Snapshot, TeamEnv
from macredit.seeds import Key, generator

MakeEnv = Callable[[], TeamEnv]
KEY = Key(7, "check")


def _quiet(test: Callable[[], object]) -> None:
    """Run a test of PettingZoo without its prints and its advice on arrays (observations here are texts)."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.filterwarnings("ignore", category=UserWarning, module=r"pettingzoo\.test\.")
        test()


def pettingzoo_api(make: MakeEnv) -> None:
    """PettingZoo's ``api_test``."""
    from pettingzoo.test import api_test

    _quiet(lambda: api_test(make(), num_cycles=50))


def pettingzoo_seed(make: MakeEnv) -> None:
    """PettingZoo's ``seed_test``."""
    from pettingzoo.test import seed_test

    _quiet(lambda: seed_test(make, num_cycles=20))


def babble(env: TeamEnv, rng: np.random.Generator) -> str:
    """What a talkative agent might say: a word or a number, often with an address."""
    word = str(rng.choice(["help", "pass", "approve", "reject", "search", "answer", *map(str, range(10))]))
    reach = env.addresses(env.agent_selection)
    return f"@{rng.choice(reach)} {word}" if reach and rng.random() < 0.5 else word


def _moment(env: TeamEnv) -> dict[str, Any]:
    """Everything that can be seen of an environment."""
    return {
        "speaker": env.agent_selection,
        "prompt": env.observe(env.agent_selection)["text"],
        "turn": env.turn,
        "end": env.end,
        "rewards": dict(env.rewards),
        "terminations": dict(env.terminations),
        "truncations": dict(env.truncations),
        "transcript": env.render(),
        "last": env.last()[1:4],
    }


@dataclass(frozen=True, slots=True)
class _Play:
    texts: list[str]
    moments: list[dict[str, Any]]
    """Before each text, and at the end."""
    snapshots: list[Snapshot]


def _play(env: TeamEnv, key: Key = KEY) -> _Play:
    env.reset(options={"key": key})
    play, rng = _Play([], [_moment(env)], [env.snapshot()]), generator("babble", key.group)
    while env.end is None:
        play.texts.append(babble(env, rng))
        env.step(play.texts[-1])
        play.moments.append(_moment(env))
        play.snapshots.append(env.snapshot())
    return play


def _differs(turn: int, found: Mapping[str, Any], expected: Mapping[str, Any]) -> str | None:
    for name, value in expected.items():
        if found[name] != value:
            return f"before turn {turn}, {name} is {found[name]!r}; expected {value!r}"
    return None


def _some(count: int) -> list[int]:
    """At most eight of the numbers below ``count``, the first and the last among them."""
    return sorted({round(x) for x in np.linspace(0, count - 1, 8)})


def restore_and_step(make: MakeEnv) -> str | None:
    """Playing on after ``restore`` equals the original, from any turn."""
    env = make()
    play = _play(env)
    for start in _some(len(play.snapshots)):
        env.restore(play.snapshots[start])
        wrong = _differs(start, _moment(env), play.moments[start])
        for turn in range(start, len(play.texts)):
            env.step(play.texts[turn])
            wrong = wrong or _differs(turn + 1, _moment(env), play.moments[turn + 1])
        if wrong:
            return f"restored at turn {start}: {wrong}"
    return None


def rebuild_from_record(make: MakeEnv) -> str | None:
    """Feeding the recorded texts to a new environment reproduces the original."""
    play = _play(make())
    for turn in _some(len(play.moments)):
        env = make()
        env.rebuild(KEY, play.texts[:turn])
        if wrong := _differs(turn, _moment(env), play.moments[turn]):
            return f"rebuilt from {turn} texts: {wrong}"
    return None


def branches_apart(make: MakeEnv) -> str | None:
    """What happens in one branch changes neither the original nor another branch."""
    env = make()
    play = _play(env)
    for turn in _some(len(play.texts)):
        env.restore(play.snapshots[turn])
        one, other = env.branch(), env.branch()
        for text in play.texts[turn:]:
            one.step(text)
        other.pass_turn()
        if wrong := _differs(turn, _moment(env), play.moments[turn]):
            return f"after stepping its branches, the original changed: {wrong}"
        if wrong := _differs(len(play.texts), _moment(one), play.moments[-1]):
            return f"after a step of another branch, a branch changed: {wrong}"
    return None


ODD = (
    "", " ", "\n", "@", "@@", "@all", "@all hi", "@user", "héllo ✓ 日本 \u202e", "\ud800", "\0", "x" * 20_000, "{",
    "{}", '{"to": 3}', '{"name": "x", "arguments": [1]}', "<tool_call>{}</tool_call>", "-99999999999999999999",
)  # fmt: skip
"""Texts that have broken parsers, prompts and records."""


def odd_messages(make: MakeEnv) -> str | None:
    """No text breaks it: whatever is said, the episode goes on or ends within the turn limit."""
    for first, addressed in product(range(len(ODD)), (False, True)):
        env = make()
        env.reset(options={"key": KEY})
        while env.end is None:
            text, reach = ODD[(first + env.turn) % len(ODD)], env.addresses(env.agent_selection)
            env.step(f"@{reach[env.turn % len(reach)]} {text}" if addressed and reach else text)
        if not math.isfinite(env.scores()[0]):
            return f"the score is {env.scores()[0]}; expected a finite number"
    return None


def group_faces_one_task(make: MakeEnv) -> str | None:
    """The task depends on seed and task name alone: members of a group get the same first state and prompt."""
    env, moments, states = make(), [], []
    for group in range(3):
        env.reset(options={"key": Key(7, "check", group)})
        moments.append(_moment(env))
        states.append(pickle.dumps(env._board.state))
    if len(set(states)) > 1:
        return "members of one group begin in different states; draw everything in begin() from its rng alone"
    return _differs(0, moments[1], moments[0]) or _differs(0, moments[2], moments[0])


def turn_limit(make: MakeEnv) -> str | None:
    """At the limit the episode is truncated, and scored."""
    env = make()
    env.max_turns = 1
    env.reset(options={"key": KEY})
    env.step("@nobody-of-this-name hello")
    if env.end != "truncated" or not all(env.truncations.values()):
        return f"after max_turns turns the end is {env.end!r}; expected 'truncated' for every agent"
    return None if math.isfinite(env.scores()[0]) else f"a truncated episode has the score {env.scores()[0]}"


def silence_ends(make: MakeEnv) -> str | None:
    """Null messages never leave anybody waiting: a silent team comes to an end before the turn limit."""
    for silent in (*({name} for name in make().team.names), set(make().team.names)):
        env, rng = make(), generator("babble", sorted(silent))
        env.reset(options={"key": KEY})
        while env.end is None:
            if env.agent_selection in silent:
                env.pass_turn()
            else:
                env.step(babble(env, rng))
        if len(silent) == len(env.team.names) and env.end != "done":
            return f"a team of silent agents ended {env.end!r}; expected 'done' before max_turns = {env.max_turns}"
    return None


ENV_CHECKS: dict[str, Callable[[MakeEnv], str | None]] = {
    "pettingzoo_api": pettingzoo_api,
    "pettingzoo_seed": pettingzoo_seed,
    "restore_and_step": restore_and_step,
    "rebuild_from_record": rebuild_from_record,
    "branches_apart": branches_apart,
    "odd_messages": odd_messages,
    "group_faces_one_task": group_faces_one_task,
    "turn_limit": turn_limit,
    "silence_ends": silence_ends,
}
