"""verl's trainer, our credit: every method as an advantage estimator in verl's own registry.

Importing this module registers ``macredit_grpo``, ``macredit_dr_mas``, and so on; verl imports it by itself, through
its plugin entry point, wherever macredit is installed:

    algorithm.adv_estimator=macredit_dr_mas +algorithm.macredit.preset=balanced

A method needs to know which rows are turns of one rollout, and whose. verl hands an estimator the group index ``uid``
and nothing else, so either the ``uid`` of a row says it (:func:`macredit.integrations.columns.label`), or a trainer of
your own calls :func:`compute_advantage`, which reads the batch's other non-tensor columns. A plain ``uid`` makes every
row a rollout of one agent.

A row's loss weight is multiplied into its advantage: the clipped loss of w · A is w times that of A for w ≥ 0. verl's
own aggregation still counts such rows in its denominator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from macredit.credit import METHODS
from macredit.errors import UserError, missing_extra
from macredit.integrations.columns import Columns, credit_columns, label, labelled

try:
    from verl.trainer.ppo.core_algos import register_adv_est
except ImportError as error:
    if (error.name or "").split(".")[0] != "verl":  # a package that verl needs
        raise
    raise missing_extra("verl", "verl") from None

if TYPE_CHECKING:
    import torch

__all__ = ["COLUMNS", "PREFIX", "compute_advantage", "estimator", "label"]

PREFIX = "macredit_"
"""Before a method's name in verl's registry, where ``grpo`` and ``rloo`` are verl's own."""
COLUMNS = ("episode", "agent", "turn", "context", "counterfactuals", "valid")
"""Non-tensor columns that :func:`compute_advantage` reads beside ``uid`` (see :class:`Columns`)."""

Estimator = Callable[..., "tuple[torch.Tensor, torch.Tensor]"]


def estimator(method: str) -> Estimator:
    """An advantage estimator as verl calls it."""

    def estimate(
        token_level_rewards: torch.Tensor,
        response_mask: torch.Tensor,
        index: Any = None,
        config: Any = None,
        non_tensor_batch: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Advantages and returns of a batch.

        Args:
            token_level_rewards: float[B, L]; their sum is the row's reward.
            response_mask: [B, L]: 1 on tokens that are trained.
            index: B group indices, verl's ``uid``.
            config: verl's ``algorithm`` table; ``macredit`` in it may hold ``preset`` and ``settings``.
            non_tensor_batch: columns of :data:`COLUMNS`.

        Returns:
            float[B, L] twice: the row's weighted advantage on its trained tokens, 0 elsewhere.

        Raises:
            UserError: no ``uid``, a malformed column or table, or what the method needs is not there.
        """
        if index is None:
            raise UserError(f"{PREFIX}{method} compares rows of one task, and the batch has no 'uid'; add it")
        given: dict[str, Any] = {name: (non_tensor_batch or {}).get(name) for name in COLUMNS}
        columns = Columns(
            reward=token_level_rewards.sum(-1).detach().double().cpu().numpy(),
            tokens=response_mask.sum(-1).long().cpu().numpy(),
            **(given | labelled(index)),
        )
        chosen = (config.get("macredit", None) if config is not None else None) or {}
        if not isinstance(chosen, Mapping):
            raise UserError(f"algorithm.macredit is {chosen!r}; expected a table, as {{preset: code, settings: {{…}}}}")
        advantage, weight, _credits = credit_columns(
            columns, method, chosen.get("preset", "paper"), chosen.get("settings")
        )
        scores = token_level_rewards.new_tensor(advantage * weight)[:, None] * response_mask
        return scores, scores

    return estimate


def compute_advantage(data: Any, adv_estimator: str, config: Any = None, **others: Any) -> Any:
    """What verl's ``compute_advantage`` does, with the batch's columns for our estimators; others are verl's business.

    Args:
        data: a ``DataProto``; gets ``advantages`` and ``returns``.
        adv_estimator: a name in verl's registry.
        config: verl's ``algorithm`` table.
        others: what verl's own function takes.
    """
    name = str(getattr(adv_estimator, "value", adv_estimator))
    if not name.startswith(PREFIX):
        from verl.trainer.ppo.ray_trainer import compute_advantage as verls

        return verls(data, adv_estimator, config=config, **others)
    data.batch["advantages"], data.batch["returns"] = ESTIMATORS[name](
        data.batch["token_level_rewards"], data.batch["response_mask"], data.non_tensor_batch.get("uid"), config,
        data.non_tensor_batch,
    )  # fmt: skip
    return data


ESTIMATORS: dict[str, Estimator] = {
    PREFIX + method: register_adv_est(PREFIX + method)(estimator(method)) for method in METHODS
}
"""Name in verl's registry → estimator."""
