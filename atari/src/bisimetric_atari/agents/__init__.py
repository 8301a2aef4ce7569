"""Trained agents as encoders of observations: Rainbow, agents of other libraries, and callables."""

from bisimetric_atari.agents.api import evaluate, load, pretrained
from bisimetric_atari.agents.callables import GameContext
from bisimetric_atari.games.agent import Agent, AgentOutput, BatchContext

__all__ = [
    "Agent",
    "AgentOutput",
    "BatchContext",
    "GameContext",
    "evaluate",
    "load",
    "pretrained",
]
