"""What a distance is good for: each use with what it promises and what it kept."""

from bisimetric.uses.aggregation import (
    Aggregation,
    AggregationCurve,
    aggregate,
    aggregation_curve,
    labels,
    map_distances,
)
from bisimetric.uses.compression import Compressed, compress
from bisimetric.uses.embedding import Embedding, embed
from bisimetric.uses.exploration import Memory, Visits, explore
from bisimetric.uses.transfer import Transfer, paired, transfer

__all__ = [
    "Aggregation",
    "AggregationCurve",
    "Compressed",
    "Embedding",
    "Memory",
    "Transfer",
    "Visits",
    "aggregate",
    "aggregation_curve",
    "compress",
    "embed",
    "explore",
    "labels",
    "map_distances",
    "paired",
    "transfer",
]
