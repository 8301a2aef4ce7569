"""Aggregation: near states merged, what is left solved, and its policy carried back."""

from __future__ import annotations

from bisimetric.uses.aggregation.curves import AggregationCurve, aggregation_curve, map_distances
from bisimetric.uses.aggregation.groups import labels
from bisimetric.uses.aggregation.merging import aggregate
from bisimetric.uses.aggregation.record import Aggregation

__all__ = [
    "Aggregation",
    "AggregationCurve",
    "aggregate",
    "aggregation_curve",
    "labels",
    "map_distances",
]
