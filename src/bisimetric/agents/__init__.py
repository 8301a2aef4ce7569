"""Trained agents as encoders of observations: Rainbow, agents of other libraries, and callables."""

from bisimetric.agents.api import evaluate, load, pretrained
from bisimetric.games.agent import Agent, AgentOutput

__all__ = ["Agent", "AgentOutput", "evaluate", "load", "pretrained"]
