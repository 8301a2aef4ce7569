"""Rainbow: agents that we train ourselves, as Dopamine defines them (C51, 3 steps, priorities)."""

from __future__ import annotations

from bisimetric.agents.rainbow.agent import RainbowAgent
from bisimetric.agents.rainbow.files import load, save
from bisimetric.agents.rainbow.network import RainbowNetwork
from bisimetric.agents.rainbow.settings import RainbowConfig
from bisimetric.agents.rainbow.training import RainbowRun, train

__all__ = ["RainbowAgent", "RainbowConfig", "RainbowNetwork", "RainbowRun", "load", "save", "train"]
