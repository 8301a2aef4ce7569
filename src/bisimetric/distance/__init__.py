"""Distances between the states of an MDP, with proven errors, explanations and files."""

from bisimetric.distance._distance import Distance, Kind
from bisimetric.distance._protocol import StateDistance
from bisimetric.distance.bounds import DistanceBounds
from bisimetric.distance.coverage import Coverage
from bisimetric.distance.explanation import Explanation, Match, PairStep, Proof

__all__ = [
    "Coverage",
    "Distance",
    "DistanceBounds",
    "Explanation",
    "Kind",
    "Match",
    "PairStep",
    "Proof",
    "StateDistance",
]
