"""Exploration: a bonus for what is new by a distance, and how much it helps a learning agent."""

from __future__ import annotations

from bisimetric.uses.exploration.memory import Memory
from bisimetric.uses.exploration.visits import Visits
from bisimetric.uses.exploration.wrapping import explore

__all__ = ["Memory", "Visits", "explore"]
