"""Rainbow: agents that we train ourselves, as Dopamine defines them (C51, 3 steps, priorities)."""

from __future__ import annotations

from bisimetric.agents.rainbow.files import load, save
from bisimetric.agents.rainbow.learner import RainbowConfig
from bisimetric.agents.rainbow.network import RainbowAgent, RainbowNetwork
from bisimetric.agents.rainbow.training import RainbowRun, train

__all__ = ["RainbowAgent", "RainbowConfig", "RainbowNetwork", "RainbowRun", "load", "save", "train"]
