"""Uses of a distance: aggregation, transfer, embedding, compression, exploration; with bounds."""

from bisimetric.uses._compress import Compression, compress
from bisimetric.uses._embed import Embedding, embed
from bisimetric.uses.aggregation import (
    Aggregation,
    AggregationCurve,
    aggregate,
    aggregation_curve,
    cluster,
    manhattan_distances,
)
from bisimetric.uses.exploration import EpisodicMemory, VisitCounts, bonus
from bisimetric.uses.policy_transfer import Transfer, disjoint_union, transfer

__all__ = [
    "Aggregation",
    "AggregationCurve",
    "Compression",
    "Embedding",
    "EpisodicMemory",
    "Transfer",
    "VisitCounts",
    "aggregate",
    "aggregation_curve",
    "bonus",
    "cluster",
    "compress",
    "disjoint_union",
    "embed",
    "manhattan_distances",
    "transfer",
]
