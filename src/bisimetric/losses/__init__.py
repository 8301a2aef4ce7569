"""Representation losses of bisimulation metrics for any agent; PyTorch twins in `losses.torch`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bisimetric.losses._distances import (
        cosine_distance,
        euclidean_distance,
        inner_product,
        l1_distance,
        metric_distance,
        mico_distance,
        rap_distance,
    )
    from bisimetric.losses._latent_model import (
        dbc,
        deepmdp_reward,
        deepmdp_transition,
        normalise_embeddings,
        normalised_dbc,
        rap,
    )
    from bisimetric.losses._pair_q import on_policy, pair_q
    from bisimetric.losses._pair_td import mico, reduced_mico, simsr

__all__ = [
    "cosine_distance",
    "dbc",
    "deepmdp_reward",
    "deepmdp_transition",
    "euclidean_distance",
    "inner_product",
    "l1_distance",
    "metric_distance",
    "mico",
    "mico_distance",
    "normalise_embeddings",
    "normalised_dbc",
    "on_policy",
    "pair_q",
    "rap",
    "rap_distance",
    "reduced_mico",
    "simsr",
]

# Names are imported at first use, so that `losses.torch` does not need JAX.
_DEFINING_MODULES = {
    "cosine_distance": "_distances",
    "dbc": "_latent_model",
    "deepmdp_reward": "_latent_model",
    "deepmdp_transition": "_latent_model",
    "euclidean_distance": "_distances",
    "inner_product": "_distances",
    "l1_distance": "_distances",
    "metric_distance": "_distances",
    "mico": "_pair_td",
    "mico_distance": "_distances",
    "normalise_embeddings": "_latent_model",
    "normalised_dbc": "_latent_model",
    "on_policy": "_pair_q",
    "pair_q": "_pair_q",
    "rap": "_latent_model",
    "rap_distance": "_distances",
    "reduced_mico": "_pair_td",
    "simsr": "_pair_td",
}


def __getattr__(name: str) -> Any:
    if name in _DEFINING_MODULES:
        from bisimetric._optional import import_optional

        import_optional("jax", "losses", "learn")
        module = importlib.import_module(f"bisimetric.losses.{_DEFINING_MODULES[name]}")
        return getattr(module, name)
    raise AttributeError(f"module 'bisimetric.losses' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
