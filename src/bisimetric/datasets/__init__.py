"""Where Transitions come from: rollouts in Gymnasium environments, Minari data sets, replay
buffers.

>>> from bisimetric import datasets
>>> datasets.rollout("CliffWalking-v1", steps=500, key=1)
Transitions(500 steps, ...)
"""

from __future__ import annotations

from bisimetric.datasets.dopamine import from_dopamine
from bisimetric.datasets.minari_sets import from_minari
from bisimetric.datasets.rollouts import rollout, stream
from bisimetric.datasets.stable_baselines import from_stable_baselines

__all__ = [
    "from_dopamine",
    "from_minari",
    "from_stable_baselines",
    "rollout",
    "stream",
]
