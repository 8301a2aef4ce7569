"""Exploration: a bonus for what is new by a distance, and how much it helps a learning agent."""

from __future__ import annotations

from bisimetric.uses.exploration.memory import EpisodicMemory
from bisimetric.uses.exploration.visits import VisitCounts
from bisimetric.uses.exploration.wrapping import bonus

__all__ = ["EpisodicMemory", "VisitCounts", "bonus"]
