"""Distances that a network learns from experience, also of states never seen."""

from bisimetric.errors import InputError

try:
    import jax  # noqa: F401
    import optax  # noqa: F401
    import safetensors  # noqa: F401
except ImportError as error:
    raise InputError(
        f"learned: {error.name} is not installed; pip install 'bisimetric[learn]'."
    ) from None

from bisimetric.learned import paper
from bisimetric.learned.bisimulation import bisimulation
from bisimetric.learned.distance import LearnedDistance, Quality
from bisimetric.learned.fitting import FitResult, fit
from bisimetric.learned.index import PivotIndex
from bisimetric.learned.making import source_from_mdp, source_from_transitions
from bisimetric.learned.networks.coupled import FreeNetwork, MetricNetwork
from bisimetric.learned.on_policy import on_policy
from bisimetric.learned.paper import mico
from bisimetric.learned.settings import PairQConfig
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
    "fit",
    "mico",
    "on_policy",
    "paper",
    "source_from_mdp",
    "source_from_transitions",
]
