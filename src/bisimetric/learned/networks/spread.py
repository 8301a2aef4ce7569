"""sum_g max_k |U_ikg - V_jkg| for all i and j: a distance of embeddings, never stored by pairs.

Every group g of coordinates k gives a pseudometric, the largest difference; so does their sum. Its
derivative goes to the coordinate that differs most, in each group:

    dU_ikg = sum_j w_ij sign(U_ikg - V_jkg) [k differs most],   dV_jkg the same with the other sign.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from bisimetric.learned.networks.kernels import get_platform

MAX_UNCHUNKED = 2**19
"""Differences that a processor holds all at once; of more, it takes row after row."""


@jax.custom_vjp
def sum_group_max(U: Array, V: Array) -> Array:
    """The distances (n, m) of embeddings U (n, size, groups) and V (m, size, groups).

    >>> U = jnp.array([[[0.0, 0.0], [1.0, 5.0]]])
    >>> spread(U, jnp.zeros((2, 2, 2))).tolist()
    [[6.0, 6.0]]
    """
    if _fits_at_once(U, V):
        return _max_abs(_split_differences(U[:, None], V[None])).sum(axis=-1)
    return jax.lax.map(lambda u: _max_abs(_split_differences(u[None], V)).sum(axis=-1), U)


def _fits_at_once(U: Array, V: Array) -> bool:
    return get_platform() != "cpu" or len(U) * V.size <= MAX_UNCHUNKED


def _split_differences(U: Array, V: Array) -> list[Array]:
    """One array a coordinate, so that what runs side by side are the groups."""
    return [U[..., k, :] - V[..., k, :] for k in range(U.shape[-2])]


def _max_abs(differences: list[Array]) -> Array:
    found = jnp.abs(differences[0])
    for each in differences[1:]:
        found = jnp.maximum(found, jnp.abs(each))
    return found


def _max_abs_gradients(differences: list[Array]) -> list[Array]:
    """The derivatives of `_largest`; coordinates that tie all have theirs."""
    most = _max_abs(differences)
    return [jnp.where(jnp.abs(each) == most, jnp.sign(each), 0.0) for each in differences]


def _group_max_forward(U: Array, V: Array) -> tuple[Array, tuple[Array, Array]]:
    return sum_group_max(U, V), (U, V)


def _group_max_backward(kept: tuple[Array, Array], w: Array) -> tuple[Array, Array]:
    U, V = kept
    if _fits_at_once(U, V):
        parts = [
            w[:, :, None] * each
            for each in _max_abs_gradients(_split_differences(U[:, None], V[None]))
        ]
        return (
            jnp.stack([part.sum(axis=1) for part in parts], axis=1),
            -jnp.stack([part.sum(axis=0) for part in parts], axis=1),
        )

    def row(dV: list[Array], each: tuple[Array, Array]) -> tuple[list[Array], Array]:
        u, w_i = each
        slopes = _max_abs_gradients(_split_differences(u[None], V))
        after = [total - w_i[:, None] * slope for total, slope in zip(dV, slopes, strict=True)]
        return after, jnp.stack([w_i @ slope for slope in slopes])

    start = [jnp.zeros_like(V[:, 0]) for _ in range(V.shape[1])]
    dV, dU = jax.lax.scan(row, start, (U, w))
    return dU, jnp.stack(dV, axis=1)


sum_group_max.defvjp(_group_max_forward, _group_max_backward)
