"""Exact distances of an MDP, each with a proven error."""

from bisimetric.exact import sharded
from bisimetric.exact._bisimulation import bisimulation
from bisimetric.exact._lax import lax
from bisimetric.exact._mico import mico
from bisimetric.exact._on_policy import on_policy
from bisimetric.exact._query import QueryResult, query

__all__ = ["QueryResult", "bisimulation", "lax", "mico", "on_policy", "query", "sharded"]
