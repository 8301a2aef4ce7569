"""The losses of `bisimetric.losses` for PyTorch: equal names, arguments, values and gradients."""

from bisimetric.losses.torch._distances import (
    cosine_distance,
    euclidean_distance,
    inner_product,
    l1_distance,
    metric_distance,
    mico_distance,
    rap_distance,
)
from bisimetric.losses.torch._latent_model import (
    dbc,
    deepmdp_reward,
    deepmdp_transition,
    normalise_embeddings,
    normalised_dbc,
    rap,
)
from bisimetric.losses.torch._pair_q import on_policy, pair_q
from bisimetric.losses.torch._pair_td import mico, reduced_mico, simsr

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
