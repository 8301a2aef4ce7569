"""Aggregation: near states merged, what is left solved, and its policy carried back."""

from __future__ import annotations

from bisimetric.uses.aggregation.curves import (
    AggregationCurve,
    aggregation_curve,
    manhattan_distances,
)
from bisimetric.uses.aggregation.groups import cluster
from bisimetric.uses.aggregation.merging import aggregate
from bisimetric.uses.aggregation.record import Aggregation

__all__ = [
    "Aggregation",
    "AggregationCurve",
    "aggregate",
    "aggregation_curve",
    "cluster",
    "manhattan_distances",
]
