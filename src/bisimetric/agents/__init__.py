"""Trained agents as encoders of what they see: our own, and those of other people."""

from bisimetric.agents.evaluation import scores
from bisimetric.agents.loading import load
from bisimetric.agents.shipped import shipped
from bisimetric.games.protocol import Agent, Seen

__all__ = ["Agent", "Seen", "load", "scores", "shipped"]
