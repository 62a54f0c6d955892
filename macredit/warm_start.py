"""A warm start: before the first step every learner imitates what recorded episodes say in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from macredit.elsewhere import Learns
from macredit.episode import Episode
from macredit.learn import imitation_rows
from macredit.policy import Said
from macredit.retrace import key_of, retrace
from macredit.rollout import Plan, Scene, World


def imitate(world: World, learners: Mapping[str, Learns], episodes: Sequence[Episode], steps: int) -> None:
    """So many updates of each learner that speaks in the scored episodes.

    Raises:
        UserError: an episode is of another environment, or a policy cannot say a recorded text.
    """
    told = [retell(world, episode, learners) for episode in episodes if episode.scored]
    for name, learner in learners.items():
        rows = imitation_rows(told, name)
        for _ in range(steps if rows else 0):
            learner.imitate(rows)


def retell(world: World, episode: Episode, learners: Mapping[str, Learns]) -> Episode:
    """A recorded episode with the ids that the learners' policies would have sampled had they said it.

    Raises:
        UserError: the episode is of another environment, or a policy cannot say a recorded text.
    """
    scene = Scene(world, Plan(episode.id, key_of(episode)))
    for _, turn, request in retrace(scene, episode):
        policy = world.speaker(turn.agent, {})
        said = learners[policy.name].policy.dictate(request, turn.text) if policy.name in learners else Said(turn.text)
        scene.hear(request, said, policy, turn.null)
    return scene.episode()
