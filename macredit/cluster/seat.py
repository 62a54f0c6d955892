"""A place for one actor: whoever dies there is replaced, and told what its predecessor knew."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from macredit.errors import OutsideError


class DiedError(OutsideError):
    """An actor's process is gone."""


def fetch(ref: Any) -> Any:
    """The result of a call; what the actor's own code raised is raised here as it was.

    Raises:
        DiedError: the actor died.
    """
    try:
        return ray.get(ref)
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        raise DiedError(f"an actor died ({type(error).__name__})") from None


class Seat:
    """One actor and its successors.

    Args:
        what: who sits here, in errors.
        kind: the actor's class.
        options: Ray's options for it.
        begin: its first call, sent at once.
        settle: what a new actor has to be told after that.
        tries: how many may die before they have begun.
    """

    def __init__(
        self, what: str, kind: type[Any], options: dict[str, Any], begin: Callable[[Any], Any],
        settle: Callable[[Any], None], tries: int,
    ) -> None:  # fmt: skip
        self.what, self.tries = what, tries
        self.deaths = 0
        """Who died here in a row; whoever sees work done sets it back."""
        self._kind, self._options, self._begin, self._settle = ray.remote(kind), options, begin, settle
        self.start()

    def start(self) -> None:
        """Seat an actor, and let it begin."""
        self.actor: Any = self._kind.options(**self._options).remote()
        self._begun = self._begin(self.actor)

    def ready(self) -> Any:
        """Wait until the actor has begun and knows everything; the result of its first call.

        Raises:
            OutsideError: too many died.
        """
        for _ in range(self.tries):
            try:
                found = fetch(self._begun)
                self._settle(self.actor)
            except DiedError:
                self.end()
                self.start()
            else:
                return found
        raise OutsideError(
            f"{self.what} died {self.tries} times before it was ready; expected it to hold its models: give it more "
            "memory, or look into Ray's logs"
        )

    def surely(self, call: Callable[[Any], Any], ref: Any = None) -> Any:
        """The result of a call (``ref``: made already), made again where the actor dies.

        Raises:
            OutsideError: too many died over it.
        """
        for _ in range(self.tries):
            try:
                return fetch(call(self.actor) if ref is None else ref)
            except DiedError:
                self.replace()
                ref = None
        raise OutsideError(
            f"{self.what} died {self.tries} times over one call; expected it to have room for that: give it more "
            "memory, or lower batch_tokens"
        )

    def replace(self) -> None:
        """Seat another actor, and wait for it."""
        self.end()
        self.start()
        self.ready()

    def end(self) -> None:
        """Send the actor away."""
        with contextlib.suppress(RayError):
            ray.kill(self.actor)
