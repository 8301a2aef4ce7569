"""Exploration: a bonus for what is new by a distance, and how much it helps a learning agent."""

from __future__ import annotations

from bisimetric.uses.exploration._bonus import bonus
from bisimetric.uses.exploration.visit_counts import EpisodicMemory, VisitCounts

__all__ = ["EpisodicMemory", "VisitCounts", "bonus"]
