"""Coming to a Ray cluster and leaving it: one for this run alone, or one that runs already; Ray itself stays quiet."""

from __future__ import annotations

import logging
import math
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from macredit.cluster.settings import RayConfig
from macredit.errors import OutsideError, UserError, missing_extra

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
SPARING = {"prestart_worker_first_driver": False, "enable_worker_prestart": False}
"""A cluster of its own starts no process before an actor needs it."""
ANSWER = 3.0
"""Seconds in which an address has to answer."""


@contextmanager
def connected(settings: RayConfig, room: Sequence[Mapping[str, float]]) -> Iterator[Any]:
    """The module ``ray``, connected; what was begun here is ended here.

    Args:
        settings: the address, if any.
        room: what a cluster made here has to hold.

    Raises:
        UserError: ray is not installed, or nothing answers at the address.
    """
    os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
    try:
        import ray
    except ImportError:
        raise missing_extra("ray", "ray") from None
    if ray.is_initialized():  # a program of the user's that runs on Ray itself
        yield ray
        return
    _begin(ray, settings, room)
    try:
        yield ray
    finally:
        ray.shutdown()


def _begin(ray: Any, settings: RayConfig, room: Sequence[Mapping[str, float]]) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if not settings.address:  # processes share the machine's cores, as many as there are
        asked = sum(bundle.get("CPU", 0.0) for bundle in room)
        cpus = max(os.cpu_count() or 1, math.ceil(asked))
        try:
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, _system_config=SPARING, **quiet)
        except Exception as error:  # noqa: BLE001 (Ray raises nothing narrower)
            raise OutsideError(
                f"Ray did not start here ({str(error).splitlines()[0]}); expected a machine with time for it: try again"
            ) from None
        return
    if settings.address != "auto":
        _knock(settings.address)
    try:
        ray.init(address=settings.address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _no_cluster(settings.address, str(error).splitlines()[0]) from None


def _knock(address: str) -> None:
    """Find out soon whether anything listens there, which Ray itself tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(f"--ray was given {address!r}; expected HOST:PORT, auto, or nothing for a cluster of its own")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER).close()
    except OSError as error:
        raise _no_cluster(address, str(error)) from None


def _no_cluster(address: str, why: str) -> UserError:
    return UserError(
        f"no Ray cluster answers at {address!r} ({why}); expected the HOST:PORT that `ray start --head` printed there "
        "(one that asks for a token: set RAY_AUTH_MODE=token), or no address for a cluster of its own"
    )
