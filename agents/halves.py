"""The two halves of a policy that learns, for processes of their own: one speaks, one learns."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from macredit.errors import UserError, unknown
from macredit.learn.handover import Weights
from macredit.learn.learner import Trainable

if TYPE_CHECKING:
    from macredit.learn.torch_policy import TorchPolicy


def speaking(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of the half that speaks.

    Of an hf policy that is its engine, with what the engine takes of the policy's settings, or a copy that takes
    weights; any other policy as it is.

    Raises:
        UserError: an unknown engine.
    """
    from . import ENGINES, policy_class

    if spec.get("kind") != "hf":
        return dict(spec)
    engine = "copy" if spec.get("engine") is None else spec["engine"]
    about = dict(engine) if isinstance(engine, Mapping) else {"kind": engine}
    kind = about.get("kind")
    if not isinstance(kind, str):
        raise UserError(
            f"engine was given as {engine!r:.80}; expected a kind of {', '.join(ENGINES)}, as in engine = {{ kind = "
            '"copy" }'
        )
    if kind not in ENGINES:
        raise unknown("engine", kind, ENGINES)
    takes = inspect.signature(policy_class(kind)).parameters
    learned = {"served": "*"} if "served" in takes else {}  # its weights are the learner's, which is checked
    return {**learned, **{key: value for key, value in spec.items() if key in takes}, **about}


def learning(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of the half that learns: without an engine."""
    return {key: value for key, value in spec.items() if key != "engine"}


def outgoing(policy: Trainable) -> Weights:
    """What a learning half hands over, in main memory."""
    if not hasattr(policy, "module"):
        return Weights(policy.version, policy.state().tensors)
    from .weights import weights_of

    found = weights_of(cast("TorchPolicy", policy))
    return replace(found, tensors={name: tensor.detach().cpu() for name, tensor in found.tensors.items()})
