"""The critics of a team: one a policy, fitted after credit, saved with the run, or cross-fitted on a record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from macredit.credit.members import first_copies, mean_by
from macredit.episode import Episode
from macredit.errors import UserError
from macredit.learn.critic import Critic, Modelled, Quality, Readable, Reads, TableCritic, model_of
from macredit.learn.learner import State, Trainable
from macredit.learn.saved import check_fields, check_saved, read_saved, write_saved
from macredit.moves import Move, moves_of
from macredit.policy import Enumerable, Policy
from macredit.rows import BoolN, FloatN, IntN, Rows

if TYPE_CHECKING:
    from macredit.rollout import World

FOLDS = 5
"""Parts of a record's tasks, each valued by critics fitted on the others."""


class TeamCritic:
    """Values of everyone's messages, each by the critic of the policy that said it.

    Args:
        policies: whose models may carry a critic; a policy without one, or not given, gets a table.
    """

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self._policies = policies
        self.critics: dict[str, Critic] = {}
        """By policy."""
        self._last = ""

    def predict(self, moves: Sequence[Move]) -> FloatN:
        """See :class:`macredit.learn.critic.Values`."""
        values = np.full(len(moves), np.nan)
        for name, at in _by_policy(moves):
            values[at] = self.of(name).predict([moves[m] for m in at])
        return values

    def fit(self, rows: Rows, where: BoolN | None = None) -> dict[str, Quality]:
        """Learn from every row that counts (and of these only ``where``); by policy, how well it was predicted before.

        Rows may be learned from only after their credit was computed. A baseline may depend on anything but the
        message it is subtracted for: a critic that has seen what the message returned takes a part of just that away
        again, and the gradient is no longer that of the expected return.
        """
        counts = rows.counts if where is None else rows.counts & where
        lead = np.flatnonzero(first_copies(rows.fact, counts))
        moves, fact = moves_of(rows, lead), rows.fact[lead]
        returns = mean_by(rows.fact, rows.reward, counts)[fact]
        weight = np.bincount(rows.fact[counts])[fact].astype(np.float64)
        self._last = _digest(rows.episodes)
        return {
            name: self.of(name).fit([moves[m] for m in at], returns[at], weight[at]) for name, at in _by_policy(moves)
        }

    def saw(self, episodes: Sequence[Episode]) -> bool:
        """Whether these are the very episodes it was fitted on last."""
        return self._last == _digest(episodes)

    def of(self, name: str) -> Critic:
        """The critic of a policy."""
        if name not in self.critics:
            self.critics[name] = critic_of(self._policies.get(name))
        return self.critics[name]

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write ``critic.safetensors`` and ``critic.json``."""
        tensors: dict[str, Any] = {}
        about: dict[str, Any] = {"last": self._last, "critics": {}}
        for name, critic in sorted(self.critics.items()):
            state = critic.state()
            tensors |= {f"{name}/{key}": array for key, array in state.tensors.items()}
            about["critics"][name] = {"scalars": state.scalars, "identity": state.identity}
        write_saved(folder, "critic", tensors, about)

    def load(self, folder: Path) -> None:
        """Go on from a saved folder.

        Raises:
            UserError: there is no critic in it, a damaged one, or one of another model.
        """
        missing = f"{folder} holds no critic; expected one of a run whose method needs it, such as c3 with "
        fields = {"last": str, "critics": dict}
        tensors, about = read_saved(folder, "critic", missing + "variant=value_assisted", fields)
        file, saved = folder / "critic.json", about["critics"]
        for name in sorted({*self.critics, *saved}):
            check_fields(file, f"critics/{name}", saved.get(name), {"scalars": dict, "identity": dict})
        critics = {name: self.critics.get(name) or critic_of(self._policies.get(name)) for name in saved}
        fits: dict[str, Any] = {}
        for name, critic in critics.items():
            state, identity = critic.state(), saved[name]["identity"]
            here = json.loads(json.dumps(state.identity))
            if here != identity:
                raise UserError(
                    f"the critic of policy {name!r} in {folder} is {_words(identity)}, and the policy given "
                    f"here takes {_words(here)}; give the policy it was fitted on: --policy {name}=…"
                )
            fits |= _fitting(name, state, tensors)
        check_saved(folder, "critic", tensors, fits)
        self._last, self.critics = about["last"], critics
        for name, critic in critics.items():
            own = {key.rpartition("/")[2]: t for key, t in tensors.items() if key.rpartition("/")[0] == name}
            critic.load(State(own, saved[name]["scalars"], saved[name]["identity"]))


class CrossFit:
    """Values of a record's messages, each task's by critics that were fitted on the others'.

    Whole tasks change sides: a context's messages stand in each other's baselines, and all of them belong to one task.

    Args:
        rows: the record.
        policies: see :class:`TeamCritic`.

    Raises:
        UserError: the record is of one task.
    """

    def __init__(self, rows: Rows, policies: Mapping[str, Policy]) -> None:
        names = sorted({rows.tasks[task] for task in rows.task[rows.counts]})
        if len(names) < 2:
            raise UserError(
                f"a critic is cross-fitted on the other tasks of a record, and this one is of {len(names)}; give "
                "episodes of two tasks or more, or --critic RUN of a run that trained one"
            )
        self._fold = {name: n % FOLDS for n, name in enumerate(names)}
        fold = np.array([self._fold.get(task, -1) for task in rows.tasks])[rows.task]
        self._critics = [TeamCritic(policies) for _ in range(min(FOLDS, len(names)))]
        for which, critic in enumerate(self._critics):
            critic.fit(rows, fold != which)

    def predict(self, moves: Sequence[Move]) -> FloatN:
        """See :class:`macredit.learn.critic.Values`."""
        fold = np.array([self._fold[move.task] for move in moves], dtype=np.int64)
        values = np.full(len(moves), np.nan)
        for which, critic in enumerate(self._critics):
            at = np.flatnonzero(fold == which)
            values[at] = critic.predict([moves[int(m)] for m in at])
        return values


def critic_in(world: World, staleness: int) -> TeamCritic:
    """The critic of a run, which reads the models that learn while they do not.

    Raises:
        UserError: a model cannot be read, or speaks in the next step's episodes meanwhile.
    """
    if staleness:
        for name in {agent.policy: None for agent in world.env.team.agents}:
            if isinstance(world.policies[name], Modelled):
                raise UserError(
                    f"staleness is {staleness}, but policy {name!r} speaks with the very model that its critic reads; "
                    'put an engine before it (engine = "copy"), leave staleness at 0, or choose settings without a '
                    "critic (c3: variant=reward_only)"
                )
    critic = TeamCritic(world.policies)
    for agent in world.env.team.agents:
        critic.of(agent.policy)
    return critic


def critic_of(policy: Policy | None) -> Critic:
    """A head on the policy's own model where it has one (behind an engine, the model that learns), else a table.

    Raises:
        UserError: see :func:`reader_of`.
    """
    reader = policy.reader() if isinstance(policy, Readable) else reader_of(policy)
    if reader is None:
        return TableCritic()
    from macredit.learn.torch_critic import TorchCritic

    return TorchCritic(reader)


def reader_of(policy: object) -> Reads | None:
    """Reads the model of a policy of this process; None: it has none.

    Raises:
        UserError: the policy learns, but neither is its model in this process nor are its replies a table's.
    """
    model = model_of(policy)
    if model is not None:
        from macredit.learn.torch_critic import Reader

        return Reader(model)
    half = getattr(policy, "learner", policy)
    if isinstance(half, Trainable) and not isinstance(half, Enumerable):
        raise UserError(
            f"policy {half.name!r} holds its model in other processes, where its critic cannot read it; give it one "
            "process, or choose settings without a critic (c3: variant=reward_only)"
        )
    return None


def _by_policy(moves: Sequence[Move]) -> Iterator[tuple[str, IntN]]:
    """Each policy with the places of its moves, in order of names."""
    names = np.array([move.policy for move in moves], dtype=np.str_)
    for name in np.unique(names):
        yield str(name), np.flatnonzero(names == name)


def _digest(episodes: Sequence[Episode]) -> str:
    told = [[e.id, e.seed, e.reward, [turn.text for turn in e.turns]] for e in episodes]
    return hashlib.blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()


def _fitting(name: str, state: State, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays like those that a critic can take over: its own, or, a table having any number of rows, as many rows."""
    rows = len(np.atleast_1d(tensors.get(f"{name}/keys", ())))
    return {
        f"{name}/{key}": np.empty(rows, array.dtype) if state.identity["kind"] == "table" else array
        for key, array in state.tensors.items()
    }


def _words(identity: Mapping[str, Any]) -> str:
    return "a table" if identity.get("kind") == "table" else f"a head on a model of width {identity.get('width')}"
