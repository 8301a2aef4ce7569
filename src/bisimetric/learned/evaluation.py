"""How far a learned table is from the exact one, on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from bisimetric.learned.learned_distance import compute_distances

MIN_NORM = 1e-30
"""Stands for the norm of a table of zeros, whose shares are 0 too."""


def build_reference_measure(
    reference: ArrayLike, network: Any, points: Array
) -> Callable[[Any], dict[str, Array]]:
    """From parameters to the paper's two errors, and the correlation with the truth (S, S).

    error = max |d - psi|; normalised = max |d / |d| - psi / |psi| |, with |.| the root of the sum
    of the squares of a table; psi symmetrised.
    """
    exact = jnp.asarray(reference, jnp.float32)

    def measure(parameters: Any) -> dict[str, Array]:
        psi = compute_distances(network, parameters, points, points)
        return compute_errors(exact, psi)

    return measure


def compute_errors(reference: Array, psi: Array) -> dict[str, Array]:
    """The paper's errors of a table psi, and its correlation with the exact one.

    >>> table = jnp.array([[0.0, 2.0], [2.0, 0.0]])
    >>> {name: round(float(each), 6) for name, each in errors(table, table / 2).items()}
    {'error': 1.0, 'normalised': 0.0, 'correlation': 1.0}
    """
    scaled = reference / jnp.maximum(jnp.linalg.norm(reference), MIN_NORM)
    own = psi / jnp.maximum(jnp.linalg.norm(psi), MIN_NORM)
    x, y = reference - reference.mean(), psi - psi.mean()
    spread = jnp.linalg.norm(x) * jnp.linalg.norm(y)
    return {
        "error": jnp.abs(reference - psi).max(),
        "normalised": jnp.abs(scaled - own).max(),
        "correlation": jnp.sum(x * y) / jnp.maximum(spread, MIN_NORM),
    }
