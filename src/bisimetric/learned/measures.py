"""How far a learned table is from the exact one, on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from bisimetric.learned.distance import symmetric

SMALL = 1e-30
"""Stands for the norm of a table of zeros, whose shares are 0 too."""


def against(truth: ArrayLike, network: Any, points: Array) -> Callable[[Any], dict[str, Array]]:
    """From parameters to the paper's two errors, and the correlation with the truth (S, S).

    error = max |d - psi|; normalised = max |d / |d| - psi / |psi| |, with |.| the root of the sum
    of the squares of a table; psi symmetrised.
    """
    exact = jnp.asarray(truth, jnp.float32)

    def measured(parameters: Any) -> dict[str, Array]:
        psi = symmetric(network, parameters, points, points)
        return errors(exact, psi)

    return measured


def errors(exact: Array, psi: Array) -> dict[str, Array]:
    """The paper's errors of a table psi, and its correlation with the exact one.

    >>> table = jnp.array([[0.0, 2.0], [2.0, 0.0]])
    >>> {name: round(float(each), 6) for name, each in errors(table, table / 2).items()}
    {'error': 1.0, 'normalised': 0.0, 'correlation': 1.0}
    """
    scaled = exact / jnp.maximum(jnp.linalg.norm(exact), SMALL)
    own = psi / jnp.maximum(jnp.linalg.norm(psi), SMALL)
    x, y = exact - exact.mean(), psi - psi.mean()
    spread = jnp.linalg.norm(x) * jnp.linalg.norm(y)
    return {
        "error": jnp.abs(exact - psi).max(),
        "normalised": jnp.abs(scaled - own).max(),
        "correlation": jnp.sum(x * y) / jnp.maximum(spread, SMALL),
    }
