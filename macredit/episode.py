"""What happened, as frozen facts: turns, episodes, and their JSON Lines form.

Absent is unknown, never empty. Reading is strict: a bad line names file, line, field, what was given and what was
expected, and nothing is half-imported. Unknown fields survive a round trip.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from macredit.errors import OutsideError, UserError, unknown
from macredit.team import Team

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message: who said what to whom, and how it was sampled."""

    agent: str
    """The speaker."""
    text: str
    """What it said."""
    id: str = ""
    """Names this fact; copies in episodes that share a prefix carry the same id. Absent: ``<episode>/<index>``."""
    to: tuple[str, ...] | None = None
    """Recipients; None is unknown."""
    reads: tuple[str, ...] | None = None
    """Ids of the turns its speaker newly read, its own previous turn among them; None: any earlier turn may be read."""
    valid: bool | None = None
    """False: the turn could not be delivered or its tool call could not run; None is unknown."""
    null: bool = False
    """True: the speaker was silenced, and nobody was asked."""
    reward: float | None = None
    """The turn's own reward; used only by methods that declare it."""
    context: str | None = None
    """Digest of everything before this turn (task, transcript, speaker): equal contexts are siblings."""
    finish: str | None = None
    """Why sampling stopped: ``stop``, ``length``, …"""
    prompt_ids: tuple[int, ...] | None = None
    """The prompt; with ``prompt_after``, only the ids after that turn's prompt and reply."""
    prompt_after: str | None = None
    """Id of the earlier turn of the same speaker that this prompt continues."""
    token_ids: tuple[int, ...] | None = None
    """Exactly the ids the speaker's policy sampled."""
    logprobs: tuple[float, ...] | None = None
    """Natural log-probability of each sampled id under the recorded sampling parameters."""
    sampling: Mapping[str, Any] | None = None
    """Sampling parameters."""
    policy: str | None = None
    """Policy and version, ``name@version``."""
    usage: Mapping[str, Any] | None = None
    """Tokens spent: ``prompt``, ``sampled``."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields macredit does not know, kept for the round trip."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to train on: no sampled token, or (ids unknown) no text."""
        return not self.token_ids if self.token_ids is not None else not self.text


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """A known outcome of the same episode with agents silenced."""

    silenced: tuple[str, ...]
    reward: float | None = None
    absence: str = "null_message"
    replicate: int = 0
    end: str = "done"
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Episode:
    """One play of one task by the team, from the first message to the reward."""

    id: str
    task: str
    turns: tuple[Turn, ...]
    reward: float | None = None
    """The team's terminal reward; None and NaN mean "no reward"."""
    agent_rewards: Mapping[str, float | None] = field(default_factory=dict)
    """Rewards of single agents, added to the team's on their rows."""
    group: int | None = None
    env: str | None = None
    env_args: Mapping[str, Any] | None = None
    seed: int | None = None
    sample: tuple[int | str, ...] | None = None
    """Sample path of the key; None is the original's ``()``."""
    end: str = "done"
    """``done``, ``truncated`` or ``failed:<where>``."""
    error: str | None = None
    team: Team | None = None
    forked_from: Mapping[str, Any] | None = None
    counterfactuals: tuple[Counterfactual, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether an environment, policy or tool broke: the episode leaves statistics and loss."""
        return self.end.startswith("failed")

    @property
    def scored(self) -> bool:
        """Whether the episode counts: it did not fail and has a reward."""
        return not self.failed and self.reward is not None and not math.isnan(self.reward)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Turn id → position."""
        return {turn.id: t for t, turn in enumerate(self.turns)}

    def prompt(self, t: int) -> tuple[int, ...] | None:
        """All prompt ids of turn ``t`` (the chain of ``prompt_after`` unrolled); None where they are unknown."""
        parts: list[tuple[int, ...]] = []
        turn = self.turns[t]
        while turn.prompt_ids is not None:
            parts.append(turn.prompt_ids)
            if turn.prompt_after is None:
                return tuple(i for part in reversed(parts) for i in part)
            turn = self.turns[self.index[turn.prompt_after]]
            parts.append(turn.token_ids or ())
        return None


# -- JSON: one table of fields for writing, reading and the error texts --------------------------------------------

Check = tuple[str, Callable[[Any], bool]]
_text: Check = ("a string", lambda x: isinstance(x, str))
_flag: Check = ("true or false", lambda x: isinstance(x, bool))
_object: Check = ("an object", lambda x: isinstance(x, dict))
_number: Check = ("a number or null", lambda x: isinstance(x, int | float) and not isinstance(x, bool))
_integer: Check = ("an integer", lambda x: isinstance(x, int) and not isinstance(x, bool))
_texts: Check = ("a list of strings", lambda x: isinstance(x, list) and all(isinstance(i, str) for i in x))
_integers: Check = ("a list of integers", lambda x: isinstance(x, list) and all(type(i) is int for i in x))
_numbers: Check = ("a list of numbers", lambda x: isinstance(x, list) and all(type(i) in (int, float) for i in x))
_path: Check = ("a list of integers, strings", lambda x: isinstance(x, list) and all(type(i) in (int, str) for i in x))
_end: Check = (
    "'done', 'truncated' or 'failed:<where>'",
    lambda x: isinstance(x, str) and (x in ("done", "truncated") or x.startswith("failed:")),
)
_rewards: Check = (
    "an object of numbers or nulls",
    lambda x: isinstance(x, dict) and all(v is None or type(v) in (int, float) for v in x.values()),
)
_list: Check = ("a list", lambda x: isinstance(x, list))
_seen: Check = ("a list of objects", lambda x: isinstance(x, list) and all(isinstance(i, dict) for i in x))

_TURN: dict[str, Check] = {
    "id": _text, "agent": _text, "to": _texts, "reads": _texts, "text": _text, "valid": _flag, "null": _flag,
    "reward": _number, "context": _text, "finish": _text, "prompt_ids": _integers, "prompt_after": _text,
    "token_ids": _integers, "logprobs": _numbers, "sampling": _object, "policy": _text, "usage": _object,
}  # fmt: skip
_COUNTERFACTUAL: dict[str, Check] = {
    "silenced": _texts, "absence": _text, "replicate": _integer, "reward": _number, "end": _end,
}  # fmt: skip
_EPISODE: dict[str, Check] = {
    "id": _text, "task": _text, "group": _integer, "env": _text, "env_args": _object, "seed": _integer,
    "sample": _path, "end": _end, "error": _text, "reward": _number, "agent_rewards": _rewards, "team": _object,
    "turns": _seen, "forked_from": _object, "counterfactuals": _seen,
}  # fmt: skip
_REQUIRED = {"turn": ("agent", "text"), "counterfactual": ("silenced",), "episode": ("id", "task", "turns")}


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"


def _fields(data: Any, table: Mapping[str, Check], kind: str, at: str) -> JsonObject:
    """The checked fields of one JSON object, lists as tuples; unknown ones under ``extra``. Null is absent."""
    if not isinstance(data, dict):
        raise UserError(f"{at or 'the line'}: given {_shown(data)}, expected an object")
    for name in _REQUIRED[kind]:
        if data.get(name) is None:
            raise UserError(f"field '{at}{name}': absent, but every {kind} needs it")
    known: JsonObject = {"extra": {}}
    for name, value in data.items():
        if name not in table:
            known["extra"][name] = value
        elif value is not None:
            expected, holds = table[name]
            if not holds(value):
                raise UserError(f"field '{at}{name}': given {_shown(value)}, expected {expected}")
            known[name] = tuple(value) if isinstance(value, list) else value
    return known


def _reward(value: float | None) -> float | None:
    if value is None or value != value:
        return None
    if not abs(value) <= sys.float_info.max:
        raise UserError(f"field 'reward': given {str(value)[:20]}, expected a finite number or null")
    return float(value)


def episode_from_json(data: Any) -> Episode:
    """One episode from its JSON object.

    Raises:
        UserError: naming the field, what was given and what was expected.
    """
    known = _fields(data, _EPISODE, "episode", "")
    turns = []
    for t, item in enumerate(known["turns"]):
        at = f"turns[{t}]."
        parts = _fields(item, _TURN, "turn", at)
        parts.setdefault("id", f"{known['id']}/{t}")
        parts["reward"] = _reward(parts.get("reward"))
        turn = Turn(**parts)
        if turn.logprobs is not None and len(turn.logprobs) != len(turn.token_ids or ()):
            raise UserError(
                f"field '{at}logprobs': given {len(turn.logprobs)} numbers, expected one for each of the "
                f"{len(turn.token_ids or ())} token_ids"
            )
        turns.append(turn)
    known["turns"] = tuple(turns)
    known["counterfactuals"] = tuple(
        Counterfactual(**{**parts, "reward": _reward(parts.get("reward"))})
        for k, item in enumerate(known.get("counterfactuals", ()))
        for parts in [_fields(item, _COUNTERFACTUAL, "counterfactual", f"counterfactuals[{k}].")]
    )
    known["reward"] = _reward(known.get("reward"))
    if "agent_rewards" in known:
        known["agent_rewards"] = {name: _reward(value) for name, value in known["agent_rewards"].items()}
    if "team" in known:
        known["team"] = Team.from_json(known["team"])
    episode = Episode(**known)
    _check_order(episode)
    _check_silenced(episode)
    return episode


def _check_silenced(episode: Episode) -> None:
    """Only agents of the team can have been silent."""
    if episode.team is None:
        return
    for k, outcome in enumerate(episode.counterfactuals):
        for name in outcome.silenced:
            if name not in episode.team.names:
                raise unknown(f"agent in field 'counterfactuals[{k}].silenced'", name, episode.team.names)


def _check_order(episode: Episode) -> None:
    seen: dict[str, str] = {}
    for t, turn in enumerate(episode.turns):
        if turn.id in seen:
            raise UserError(f"field 'turns[{t}].id': {turn.id!r} stands twice in one episode; ids name one turn")
        for name, ids in (("reads", turn.reads or ()), ("prompt_after", (turn.prompt_after,))):
            for other in ids:
                if other is not None and other not in seen:
                    raise UserError(f"field 'turns[{t}].{name}': {other!r} is no earlier turn of this episode")
        if turn.prompt_after is not None and seen[turn.prompt_after] != turn.agent:
            raise UserError(f"field 'turns[{t}].prompt_after': {turn.prompt_after!r} was said by another agent")
        seen[turn.id] = turn.agent


def _plain(value: Any) -> Any:
    """NaN has no JSON; it means "no number", which is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return value


def _written(fact: Any, table: Mapping[str, Check]) -> JsonObject:
    known = {f.name for f in fields(fact)}
    out = {name: getattr(fact, name) for name in table if name in known and getattr(fact, name) is not None}
    return {**out, **fact.extra}


def episode_to_json(episode: Episode) -> JsonObject:
    """The JSON object of an episode; what is unknown is left out, except the reward, which is null."""
    out = _written(episode, _EPISODE)
    out["reward"] = episode.reward
    out["turns"] = [_written(turn, _TURN) for turn in episode.turns]
    for turn in out["turns"]:
        if not turn["null"]:
            del turn["null"]
    for name in ("agent_rewards", "counterfactuals"):
        if not out[name]:
            del out[name]
    if episode.counterfactuals:
        out["counterfactuals"] = [_written(seen, _COUNTERFACTUAL) for seen in episode.counterfactuals]
    if episode.team is not None:
        out["team"] = episode.team.to_json()
    plain: JsonObject = _plain(out)
    return plain


def episode_line(episode: Episode) -> str:
    """One line of an episodes file, without the newline; lone surrogates, which UTF-8 lacks, stay escaped."""
    line = json.dumps(episode_to_json(episode), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", line)


# -- files ---------------------------------------------------------------------------------------------------------


def read_episodes(path: str | os.PathLike[str]) -> list[Episode]:
    """All episodes of a JSON Lines file.

    A last line without its newline that is no JSON was torn by a killed writer: it is left out with a warning.

    Raises:
        UserError: the file is missing or empty, a line is malformed, or copies of one turn differ.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); expected an episodes file (JSON Lines)") from None
    episodes: list[Episode] = []
    lines = raw.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                warnings.warn(f"{path}, line {number}: cut off by a killed writer; left out", stacklevel=2)
                continue
            raise UserError(f"{path}, line {number}: not JSON ({error}); expected one episode object a line") from None
        try:
            episodes.append(episode_from_json(data))
        except UserError as error:
            raise UserError(f"{path}, line {number}: {error}") from None
    if not episodes:
        raise UserError(f"{path}: holds no episode; expected one JSON object a line, as `macredit play` writes them")
    check_forest(episodes, str(path))
    return episodes


def check_forest(episodes: Iterable[Episode], where: str = "episodes") -> None:
    """A turn id is one fact: its copies in several episodes must be equal, and an episode id stands once."""
    facts: dict[str, tuple[str, Turn]] = {}
    seen: set[str] = set()
    for episode in episodes:
        if episode.id in seen:
            raise UserError(f"{where}: two episodes have the id {episode.id!r}; ids name one episode")
        seen.add(episode.id)
        for turn in episode.turns:
            task, first = facts.setdefault(turn.id, (episode.task, turn))
            if first is not turn and (first != turn or task != episode.task):
                raise UserError(
                    f"{where}: turn id {turn.id!r} stands for different turns (again in episode {episode.id!r}); "
                    "copies of one turn must be equal"
                )


class EpisodeWriter:
    """Appends whole lines as episodes end; ``finish`` puts them in the order asked for, atomically.

    A kill leaves a valid file with every complete episode; a full disk takes back the half line and raises.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = self.path.open("wb", buffering=0)
        except OSError as error:
            raise OutsideError(f"{self.path}: cannot be written ({error.strerror})") from None
        self._lines: dict[str, bytes] = {}

    def write(self, episode: Episode) -> None:
        """Append one episode."""
        line = episode_line(episode).encode() + b"\n"
        good = self._file.tell()
        try:
            if self._file.write(line) != len(line):
                raise OSError(28, "no space left")
        except OSError as error:
            with contextlib.suppress(OSError):  # a device has no length to take back
                self._file.truncate(good)
            raise OutsideError(
                f"{self.path}: could not write episode {episode.id!r} ({error.strerror}); those before it are kept"
            ) from None
        self._lines[episode.id] = line

    def finish(self, order: Iterable[str]) -> None:
        """Close, with the lines in the order of these episode ids."""
        self._file.close()
        wanted = [self._lines[i] for i in order if i in self._lines]
        if wanted != list(self._lines.values()):
            write_atomically(self.path, b"".join(wanted))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a whole file, or nothing: to a temporary file beside it, then renamed."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise OutsideError(f"{path}: cannot be written ({error.strerror}); the file before it is kept") from None


def write_episodes(path: str | os.PathLike[str], episodes: Iterable[Episode]) -> None:
    """Write a whole episodes file atomically."""
    write_atomically(path, b"".join(episode_line(episode).encode() + b"\n" for episode in episodes))


def numbered(episodes: Iterable[Episode]) -> Iterator[tuple[int, int, Episode, Turn]]:
    """Every turn in file order as (episode index, turn index, episode, turn)."""
    for e, episode in enumerate(episodes):
        for t, turn in enumerate(episode.turns):
            yield e, t, episode, turn
