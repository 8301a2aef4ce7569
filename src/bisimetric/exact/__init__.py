"""Exact distances from an MDP, each with a proven error."""

from bisimetric.exact import sharded
from bisimetric.exact.bisimulation import bisimulation
from bisimetric.exact.lax import lax
from bisimetric.exact.mico import mico
from bisimetric.exact.on_policy import on_policy
from bisimetric.exact.queries import QueryResult

__all__ = ["QueryResult", "bisimulation", "lax", "mico", "on_policy", "sharded"]
