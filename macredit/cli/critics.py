"""The critic that ``--critic`` names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from macredit.credit import Method
from macredit.errors import UserError
from macredit.rows import rows_of
from macredit.whatif import WhatIf

if TYPE_CHECKING:
    from macredit.moves import Values

CROSS_FIT = "cross-fit"


def named_critic(whatif: WhatIf, name: str, method: Method, settings: Any) -> Values:
    """Critics fitted on the record's other tasks, or the one of a run's newest checkpoint.

    Raises:
        UserError: the method needs none with these settings, the run has none, or it knows these very episodes or not
            all who spoke in them.
    """
    from macredit.learn.team_critic import CrossFit, TeamCritic
    from macredit.run_folder import checkpoints

    if "critic" not in method.needs_with(settings):
        raise UserError(
            f"--critic {name} was given, but {method.name} uses no critic with these settings; leave it out"
        )
    policies = whatif.world.policies if whatif.world is not None else {}
    rows = rows_of(whatif.episodes, getattr(settings, "invalid_penalty", 0.0))
    if name == CROSS_FIT:
        return CrossFit(rows, policies)
    found = checkpoints(Path(name))
    if not found:
        raise UserError(f"--critic {name} was given; expected {CROSS_FIT}, or the folder of a run with a checkpoint")
    critic = TeamCritic(policies)
    critic.load(found[-1])
    if critic.saw(whatif.episodes):
        raise UserError(
            f"the critic of {name} was fitted on these very episodes, so that their returns would be in their own "
            f"baselines; give other episodes, or --critic {CROSS_FIT}"
        )
    spoke = {rows.teams[e][rows.agents[a]].policy for e, a in zip(rows.episode, rows.agent, strict=True)}
    if not spoke <= critic.critics.keys():
        raise UserError(
            f"the critic of {name} knows the policies {', '.join(critic.critics)}, and in this record "
            f"{', '.join(sorted(spoke - critic.critics.keys()))} speak too; give a run of the same team"
        )
    return critic
