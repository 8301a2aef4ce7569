"""Distances from sampled pairs of transitions (Castro 2020, equation 3)."""

from bisimetric.sampled.api import bisimulation, on_policy
from bisimetric.sampled.run import SampledRun
from bisimetric.sampled.samplers import AllActions, Prioritised, Trajectories, Uniform

__all__ = [
    "AllActions",
    "Prioritised",
    "SampledRun",
    "Trajectories",
    "Uniform",
    "bisimulation",
    "on_policy",
]
