"""Distances that a network learns from experience, also of states never seen (Castro 2020)."""

from bisimetric.errors import InputError

try:
    import jax  # noqa: F401
    import optax  # noqa: F401
    import safetensors  # noqa: F401
except ImportError as error:
    raise InputError(
        f"learned: {error.name} is not installed; pip install 'bisimetric[learn]'."
    ) from None

from bisimetric.learned.bisimulation import bisimulation
from bisimetric.learned.distance import Learned, Quality
from bisimetric.learned.fitting import Fit, fit
from bisimetric.learned.making import of_mdp, of_transitions
from bisimetric.learned.mico import mico
from bisimetric.learned.networks import AnyNetwork, PairNetwork
from bisimetric.learned.on_policy import on_policy
from bisimetric.learned.sources import Scale
from bisimetric.learned.training import Settings

__all__ = [
    "AnyNetwork",
    "Fit",
    "Learned",
    "PairNetwork",
    "Quality",
    "Scale",
    "Settings",
    "bisimulation",
    "fit",
    "mico",
    "of_mdp",
    "of_transitions",
    "on_policy",
]
