"""Several devices: seeds side by side on each of them, or one run whose batches they share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

SEED_AXIS, BATCH_AXIS = "seeds", "batches"
"""The axes of a mesh: over what its devices are spread."""


def build_mesh(
    num_seeds: int, devices: Sequence[Any] | None = None, *, data_parallel: bool = False
) -> Mesh | None:
    """The devices of a run with so many seeds, (SEEDS, BATCHES); None where one is all it takes.

    As many devices as divide the seeds take as many of them each. With `share` those that are left
    over take batches of their own for the same seeds, and all learn from what each of them finds.
    """
    found = list(list_local_devices() if devices is None else devices)
    across = math.gcd(num_seeds, len(found))
    sharing = len(found) // across if data_parallel else 1
    if across * sharing == 1 and devices is None:
        return None
    return Mesh(
        np.array(found[: across * sharing]).reshape(across, sharing), (SEED_AXIS, BATCH_AXIS)
    )


def list_local_devices() -> list[Any]:
    """All devices of this process, of the kind that JAX computes on by default."""
    (default,) = jnp.zeros(()).devices()
    return jax.local_devices(backend=default.platform)
