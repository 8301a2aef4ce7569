"""Exact distances of an MDP, each with a proven error."""

from bisimetric.exact import gaps, sharded
from bisimetric.exact._asynchronous import asynchronous
from bisimetric.exact._composition import composition_bounds
from bisimetric.exact._confidence import confidence_bounds
from bisimetric.exact._mico import mico
from bisimetric.exact._perturbation import perturbation_bound
from bisimetric.exact._potential import Potential, potential
from bisimetric.exact._query import QueryResult, query
from bisimetric.exact._recorded import recorded
from bisimetric.exact._reduced_mico import reduced_mico
from bisimetric.exact._sample_complexity import sample_complexity, sampling_error
from bisimetric.exact._undiscounted import undiscounted
from bisimetric.exact.api import bisimulation, lax, on_policy

__all__ = [
    "Potential",
    "QueryResult",
    "asynchronous",
    "bisimulation",
    "composition_bounds",
    "confidence_bounds",
    "gaps",
    "lax",
    "mico",
    "on_policy",
    "perturbation_bound",
    "potential",
    "query",
    "recorded",
    "reduced_mico",
    "sample_complexity",
    "sampling_error",
    "sharded",
    "undiscounted",
]
