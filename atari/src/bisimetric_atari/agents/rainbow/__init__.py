"""Rainbow as in Dopamine: C51, 3-step returns and prioritised replay, trained on many games."""

from __future__ import annotations

from bisimetric_atari.agents.rainbow.files import load, save
from bisimetric_atari.agents.rainbow.learner import RainbowConfig
from bisimetric_atari.agents.rainbow.network import RainbowAgent, RainbowNetwork
from bisimetric_atari.agents.rainbow.training import RainbowRun, train

__all__ = ["RainbowAgent", "RainbowConfig", "RainbowNetwork", "RainbowRun", "load", "save", "train"]
