"""Walking a recorded episode through an environment, turn by turn; no model is called."""

from __future__ import annotations

from collections.abc import Iterator

from macredit.episode import Episode, Turn
from macredit.errors import UserError
from macredit.policy import Request
from macredit.rollout import Scene
from macredit.seeds import Key


def key_of(episode: Episode) -> Key:
    """The key an episode was played with.

    Raises:
        UserError: it records no seed.
    """
    if episode.seed is None:
        raise UserError(
            f"episode {episode.id!r} records no seed, so it cannot be replayed; expected 'seed' and 'group'"
        )
    return Key(episode.seed, episode.task, episode.group or 0, episode.sample or ())


def retrace(scene: Scene, episode: Episode) -> Iterator[tuple[int, Turn, Request]]:
    """Every recorded turn with what is asked there; the caller lets the scene hear the reply before it goes on.

    Raises:
        UserError: it is another agent's turn here, or the episode is over.
    """
    for t, turn in enumerate(episode.turns):
        env = scene.env
        if env.end is not None or env.agent_selection != turn.agent:
            raise mismatch(episode, f"turn {t} is {turn.agent!r}'s", env.end or env.agent_selection)
        yield t, turn, scene.next_request()


def mismatch(episode: Episode, recorded: str, here: object) -> UserError:
    """The error for a record that its environment does not come to."""
    return UserError(
        f"episode {episode.id!r} does not replay: by the record {recorded}, in this environment it is {here}; "
        "give the environment and the arguments that made the record"
    )
