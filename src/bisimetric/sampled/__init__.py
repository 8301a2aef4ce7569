"""Distances from experience, one pair of transitions at a time (Castro 2020, equation 3)."""

from bisimetric.sampled.bisimulation import bisimulation
from bisimetric.sampled.on_policy import on_policy
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
