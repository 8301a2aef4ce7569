"""Rainbow: agents that we train ourselves, as Dopamine defines them (C51, 3 steps, priorities)."""

from __future__ import annotations

from bisimetric.agents.rainbow.agent import RainbowAgent
from bisimetric.agents.rainbow.files import load, save
from bisimetric.agents.rainbow.network import Network
from bisimetric.agents.rainbow.settings import Settings
from bisimetric.agents.rainbow.training import Training, train

__all__ = ["Network", "RainbowAgent", "Settings", "Training", "load", "save", "train"]
