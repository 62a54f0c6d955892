"""Rollouts, engines and learners as Ray actors (extra ``ray``): who computes never changes what is computed.

Everything random is keyed, so a task may be played anywhere and, after a kill, again; a worker's result arrives whole
or not at all, so nothing is lost and nothing counts twice. Importing this never imports ray.
"""

from macredit.cluster.parts import Parts
from macredit.cluster.settings import RayConfig

__all__ = ["Parts", "RayConfig"]
