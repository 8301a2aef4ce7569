"""One random batch per loss, for JAX and for PyTorch, with a terminated transition."""

from __future__ import annotations

from typing import Any

import numpy as np

PAIR_LOSSES = (
    "mico",
    "reduced_mico",
    "simsr",
    "dbc",
    "normalised_dbc",
    "rap",
    "pair_q",
    "on_policy",
)
SIZE, NUM_COORDINATES, NUM_ACTIONS, NUM_STEPS = 5, 4, 3, 2


def build_batch(name: str, convert: Any, seed: int = 0) -> dict[str, Any]:
    """Return the arguments of a loss, as 32-bit floats."""
    rng = np.random.default_rng(seed)
    steps = (NUM_STEPS,) if name == "on_policy" else ()
    actions = (NUM_ACTIONS,) if name == "pair_q" else ()

    def sample(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    batch: dict[str, Any] = {
        "embeddings": sample(SIZE, *actions, NUM_COORDINATES),
        "next_embeddings": sample(SIZE, *actions, *steps, NUM_COORDINATES),
        "rewards": sample(SIZE, *steps),
        "terminated": np.zeros((SIZE, *steps), bool),
    }
    batch["terminated"][1] = batch["terminated"][3] = True
    if name == "pair_q":
        batch["actions"] = np.array([0, 1, 1, 2, 0])
    if name == "rap":
        batch["reward_variances"] = np.abs(sample(SIZE))
    if name in ("dbc", "normalised_dbc"):
        batch["next_scales"] = np.abs(sample(SIZE, NUM_COORDINATES))
    batch = {key: convert(value) for key, value in batch.items()}
    if name == "normalised_dbc":
        batch["reward_range"] = 0.3
    return batch | {"discount": 0.9}


def evaluate(losses: Any, name: str, batch: dict[str, Any]) -> Any:
    return getattr(losses, name)(**batch)
