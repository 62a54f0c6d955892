"""TRL's ``GRPOTrainer``, our team and credit: it trains one agent while macredit plays the others.

    bridge = TeamRollout(world, "solver", method="sharp")
    trainer = GRPOTrainer(
        model=bridge.policy.module, processing_class=bridge.policy.tokenizer, train_dataset=bridge.dataset(tasks=64),
        rollout_func=bridge, reward_funcs=bridge.reward, args=GRPOConfig(...))

A sample is one rollout as the agent saw it: its first prompt, then its own replies and the prompts in between, of which
``env_mask`` keeps the loss to the replies. The sample's reward is the agent's credit, which TRL then compares within
the group of its task. With ``signal="advantage"`` it is the mean advantage of the agent's turns, already compared: take
``scale_rewards="none"``, so that TRL only subtracts a mean (which is 0 where the method centres per rollout). A sample
counts once in TRL's loss, whatever its turns' loss weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from macredit.credit import Credits, resolve
from macredit.episode import Episode
from macredit.errors import UserError, missing_extra, unknown
from macredit.rollout import Plan, World, play
from macredit.rows import rows_of
from macredit.seeds import Key
from macredit.whatif import WhatIf

if TYPE_CHECKING:
    from datasets import Dataset

Sample = dict[str, list[Any]]
"""What a rollout function returns: one entry a prompt under every name."""


class TeamRollout:
    """A rollout function for ``GRPOTrainer``, and the reward function and data set that go with it.

    Args:
        world: environment and policies; the agent's is an ``hf`` policy, and the trainer gets its ``module`` as model.
        agent: who is trained. Everyone else is frozen, and speaks as the world says.
        method: a credit method that takes groups of rollouts; it may replay.
        preset: of the method.
        settings: changes to the preset, by name.
        signal: what the reward is, the agent's ``credit`` or its ``advantage``.
        seed: draws tasks and replies.
        whatif: settings of the replays (``absence``, ``players``, ``replicates``).

    Raises:
        UserError: an unknown agent, a policy without a model, or a method that needs a tree.
    """

    def __init__(
        self,
        world: World,
        agent: str,
        method: str = "dr_mas",
        preset: str = "paper",
        settings: Mapping[str, Any] | None = None,
        signal: Literal["credit", "advantage"] = "credit",
        seed: int = 0,
        whatif: Mapping[str, Any] | None = None,
    ) -> None:
        if agent not in world.env.team.names:
            raise unknown("agent", agent, world.env.team.names)
        self.policy: Any = world.speaker(agent, {})
        if not hasattr(self.policy, "module"):
            raise UserError(f"agent {agent!r} is spoken for by {type(self.policy).__name__}; expected an hf policy")
        self.method, self.settings = resolve(method, preset, settings)
        if "tree" in self.method.needs:
            raise UserError(f"method {method!r} needs a tree, and TRL's groups are rollouts; take another, as dr_mas")
        self.world, self.agent, self.signal, self.seed = world, agent, signal, seed
        self._whatif = dict(whatif or {})
        self._members: Counter[str] = Counter()

    def dataset(self, tasks: int) -> Dataset:
        """Names of so many tasks as TRL's column ``prompt``; the prompts themselves come from the environment."""
        try:
            from datasets import Dataset
        except ImportError:
            raise missing_extra("trl", "trl") from None
        return Dataset.from_dict({"prompt": [f"t{i}" for i in range(tasks)]})

    def __call__(self, prompts: Sequence[str], trainer: Any) -> Sample:
        """Play one rollout a prompt (TRL repeats a prompt for each member of its group).

        Returns:
            ``prompt_ids``, ``completion_ids``, ``logprobs``, ``env_mask`` and ``credit``. A rollout that failed or in
            which the agent did not speak is one masked token without a reward.

        Raises:
            UserError: advantages of a group that is spread over processes, or prompts that do not go on where the
                agent's last reply ended.
            OutsideError: every rollout failed.
        """
        if self.signal == "advantage" and trainer.accelerator.num_processes > 1:
            raise UserError("signal is 'advantage', whose groups TRL spreads over processes; take signal='credit'")
        self.policy.version = f"{self.policy.name}.{trainer.state.global_step}"
        training = self.policy.module.training
        self.policy.module.eval()
        episodes = play(self.world, [self._plan(task) for task in prompts])
        credit = self._earned(self._credits(episodes), len(episodes))
        self.policy.module.train(training)
        samples = [self._sample(episode) for episode in episodes]
        names = ("prompt_ids", "completion_ids", "logprobs", "env_mask")
        return {
            **{name: list(column) for name, column in zip(names, zip(*samples, strict=True), strict=True)},
            "credit": credit,
        }

    @staticmethod
    def reward(credit: Sequence[float | None], **_: Any) -> list[float | None]:
        """The reward function: what the rollouts' agent earned."""
        return list(credit)

    def _plan(self, task: str) -> Plan:
        """The next member of a task's group."""
        member = self._members[task]
        self._members[task] += 1
        return Plan(f"{task}-{member}", Key(self.seed, task, member))

    def _credits(self, episodes: Sequence[Episode]) -> Credits:
        replays = self.world if "replay" in self.method.needs else None
        rows = rows_of(episodes, getattr(self.settings, "invalid_penalty", 0.0))
        return self.method.run(rows, self.settings, WhatIf(episodes, replays, **self._whatif))

    def _earned(self, credits: Credits, episodes: int) -> list[float | None]:
        """The agent's credit or mean advantage in each episode; None where there is none."""
        rows = credits.rows
        spoken = rows.counts & np.array([rows.agents[a] == self.agent for a in rows.agent])
        own = spoken & (credits.weight > 0)
        if spoken.any() and not own.any():
            why = credits.reasons[int(spoken.argmax())]
            raise UserError(
                f"method {self.method.name!r} gives agent {self.agent!r} no credit ({why}); train another agent, "
                "or take another method"
            )
        if self.signal == "advantage":
            mine = [credits.advantage[own & (rows.episode == e)] for e in range(episodes)]
            return [float(part.mean()) if len(part) else None for part in mine]
        spoke = set(rows.episode[own].tolist())
        totals = {total.episode: total.credit for total in credits.agents if total.agent == self.agent}
        return [totals.get(e) if e in spoke else None for e in range(episodes)]

    def _sample(self, episode: Episode) -> tuple[list[int], list[int], list[float], list[int]]:
        """The rollout as the agent saw it: prompt, completion, log-probabilities, and 1 on what it sampled."""
        turns = [(t, turn) for t, turn in enumerate(episode.turns) if turn.agent == self.agent and turn.token_ids]
        if episode.failed or not turns:
            end = self.policy.tokenizer.eos_token_id
            return [end], [end], [0.0], [0]
        seen: tuple[int, ...] = ()
        logprobs: list[float] = []
        mask: list[int] = []
        for t, turn in turns:
            shown, said = episode.prompt(t) or (), turn.token_ids or ()
            if shown[: len(seen)] != seen:
                raise UserError(
                    f"agent {self.agent!r} was shown another history at turn {turn.id!r} than the ids it had sampled, "
                    "which one sample cannot hold; give its policy history = 'grow'"
                )
            new = len(shown) - len(seen)
            logprobs += [*[0.0] * new, *(turn.logprobs or ())]
            mask += [0] * new + [1] * len(said)
            seen = shown + said
        first = len(episode.prompt(turns[0][0]) or ())
        return list(seen[:first]), list(seen[first:]), logprobs[first:], mask[first:]
