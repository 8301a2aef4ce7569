"""sum_k v_k relu(A_ik + B_jk) for all i and j: a hidden layer of pairs that is never stored.

The first layer of a network on pairs is x W + y W', so that its two halves are computed once a
state, not once a pair. What remains is this sum, n * m * k operations on (n + m) * k numbers. Its
derivatives need no more:

    U_ik = sum_j g_ij [A_ik + B_jk > 0],   V_jk = sum_i g_ij [A_ik + B_jk > 0],
    dA = v U,   dB = v V,   dv_k = sum_i A_ik U_ik + sum_j B_jk V_jk.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bisimetric.learned.networks import kernels


class TileGroups(NamedTuple):
    """Rows that are compared only within their group; sorted by it.

    Pairs of different groups may be left at 0. `tiles` (n / TILE, m / TILE) tells, for each tile
    of pairs, whether it holds pairs of one group; `low` and `high` bound them in each row of tiles.
    """

    tiles: Array
    first_tile: Array
    end_tile: Array


def build_tile_groups(labels: Array) -> TileGroups:
    """The groups of sorted labels (n,), n a multiple of the tile."""
    rows = labels.reshape(-1, kernels.TILE)
    first, last = rows[:, 0], rows[:, -1]
    tiles = (first[:, None] <= last[None, :]) & (first[None, :] <= last[:, None])
    low = jnp.argmax(tiles, axis=1)
    high = tiles.shape[1] - jnp.argmax(tiles[:, ::-1], axis=1)
    return TileGroups(tiles.astype(jnp.int32), low.astype(jnp.int32), high.astype(jnp.int32))


@jax.custom_vjp
def sum_relu_pairs(A: Array, B: Array, v: Array, groups: TileGroups | None = None) -> Array:
    """sum_k v_k relu(A_ik + B_jk), (n, m); with `groups`, at least for pairs of one group.

    >>> A, B = jnp.array([[1.0, -1.0]]), jnp.array([[0.0, 0.0], [2.0, 2.0]])
    >>> summed(A, B, jnp.array([10.0, 1.0])).tolist()
    [[10.0, 31.0]]
    """
    if kernels.can_use_kernels(A, B):
        return kernels.sum_relu_kernel(A, B, v, groups)
    if _is_cpu():
        # Row by row: a row stays in the cache.
        return jax.lax.map(lambda row: jax.nn.relu(row[None, :] + B) @ v, A)
    return jnp.sum(jax.nn.relu(A[:, None, :] + B[None, :, :]) * v, axis=-1)


def _sum_relu_forward(
    A: Array, B: Array, v: Array, groups: TileGroups | None
) -> tuple[Array, tuple[Array, Array, Array, TileGroups | None]]:
    return sum_relu_pairs(A, B, v, groups), (A, B, v, groups)


def _sum_relu_backward(
    kept: tuple[Array, Array, Array, TileGroups | None], g: Array
) -> tuple[Array, Array, Array, None]:
    A, B, v, groups = kept
    if kernels.can_use_kernels(A, B):
        U = kernels.sum_active_kernel(A, B, g, groups)
        V = kernels.sum_active_kernel(B, A, g.T, groups)
    else:
        U, V = _sum_active(A, B, g)
    return v * U, v * V, jnp.sum(A * U, axis=0) + jnp.sum(B * V, axis=0), None


def _sum_active(A: Array, B: Array, g: Array) -> tuple[Array, Array]:
    """U and V."""
    if not _is_cpu():
        on = A[:, None, :] + B[None, :, :] > 0
        weighted = jnp.where(on, g[:, :, None], 0.0)
        return weighted.sum(axis=1), weighted.sum(axis=0)

    def row(V: Array, each: tuple[Array, Array]) -> tuple[Array, Array]:
        a, g_i = each
        on = (a[None, :] + B > 0).astype(g.dtype)
        return V + g_i[:, None] * on, g_i @ on

    V, U = jax.lax.scan(row, jnp.zeros_like(B), (A, g))
    return U, V


def _is_cpu() -> bool:
    return kernels.get_platform() == "cpu"


sum_relu_pairs.defvjp(_sum_relu_forward, _sum_relu_backward)
