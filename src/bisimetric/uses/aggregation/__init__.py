"""State aggregation: cluster by a distance, solve the aggregated MDP, lift its policy."""

from __future__ import annotations

from bisimetric.uses.aggregation._aggregate import Aggregation, aggregate
from bisimetric.uses.aggregation.clustering import cluster
from bisimetric.uses.aggregation.curve import (
    AggregationCurve,
    aggregation_curve,
    manhattan_distances,
)

__all__ = [
    "Aggregation",
    "AggregationCurve",
    "aggregate",
    "aggregation_curve",
    "cluster",
    "manhattan_distances",
]
