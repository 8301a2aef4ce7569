"""Distances that a network learns from experience, also of states never seen."""

from bisimetric._optional import import_optional

for _package in ("jax", "optax", "safetensors"):
    import_optional(_package, "learned", "learn")

from bisimetric.learned import castro2020
from bisimetric.learned._fit import FitResult, fit
from bisimetric.learned.api import bisimulation, on_policy
from bisimetric.learned.build_sources import source_from_mdp, source_from_transitions
from bisimetric.learned.castro2020 import mico
from bisimetric.learned.config import PairQConfig
from bisimetric.learned.learned_distance import LearnedDistance, PivotIndex, Quality
from bisimetric.learned.networks.metric_networks import FreeNetwork, MetricNetwork
from bisimetric.learned.sources import FeatureScaling

__all__ = [
    "FeatureScaling",
    "FitResult",
    "FreeNetwork",
    "LearnedDistance",
    "MetricNetwork",
    "PairQConfig",
    "PivotIndex",
    "Quality",
    "bisimulation",
    "castro2020",
    "fit",
    "mico",
    "on_policy",
    "source_from_mdp",
    "source_from_transitions",
]
