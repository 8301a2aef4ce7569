"""Trained agents as encoders of what they see: our own, and those of other people."""

from bisimetric.agents.evaluation import evaluate
from bisimetric.agents.loading import load
from bisimetric.agents.shipped import pretrained
from bisimetric.games.protocol import Agent, AgentOutput

__all__ = ["Agent", "AgentOutput", "evaluate", "load", "pretrained"]
