"""Exact distances from an MDP, each with a proven error."""

from bisimetric.exact.bisimulation import bisimulation
from bisimetric.exact.lax import lax
from bisimetric.exact.on_policy import on_policy

__all__ = ["bisimulation", "lax", "on_policy"]
