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
from bisimetric.learned.distance import Learned, Quality
from bisimetric.learned.fitting import Fit, fit
from bisimetric.learned.index import Index
from bisimetric.learned.making import of_mdp, of_transitions
from bisimetric.learned.networks.coupled import FreeNetwork, MetricNetwork
from bisimetric.learned.on_policy import on_policy
from bisimetric.learned.paper import mico
from bisimetric.learned.settings import Settings
from bisimetric.learned.sources import Scale

__all__ = [
    "Fit",
    "FreeNetwork",
    "Index",
    "Learned",
    "MetricNetwork",
    "Quality",
    "Scale",
    "Settings",
    "bisimulation",
    "fit",
    "mico",
    "of_mdp",
    "of_transitions",
    "on_policy",
    "paper",
]
