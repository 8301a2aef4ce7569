"""Record or read transitions: rollouts in Gymnasium environments, Minari, replay buffers.

>>> from bisimetric import datasets
>>> datasets.rollout("CliffWalking-v1", steps=500, seed=1)
Transitions(500 steps, ...)
"""

from __future__ import annotations

from bisimetric.datasets._rollout import rollout, stream
from bisimetric.datasets.minari import from_minari
from bisimetric.datasets.replay_buffers import from_dopamine, from_stable_baselines

__all__ = [
    "from_dopamine",
    "from_minari",
    "from_stable_baselines",
    "rollout",
    "stream",
]
