"""Exploration with a novelty bonus by a distance, and an experiment that measures its effect."""

from __future__ import annotations

from bisimetric.uses.exploration._bonus import bonus
from bisimetric.uses.exploration.visit_counts import EpisodicMemory, VisitCounts

__all__ = ["EpisodicMemory", "VisitCounts", "bonus"]
