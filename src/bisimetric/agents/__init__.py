"""Trained agents as encoders of what they see: our own, and those of other people."""

from bisimetric.agents.api import evaluate, load, pretrained
from bisimetric.games.agent import Agent, AgentOutput

__all__ = ["Agent", "AgentOutput", "evaluate", "load", "pretrained"]
