"""Layers on all pairs of two sets of states that are never stored pair by pair.

`sum_relu_pairs`: sum_k v_k relu(A_ik + B_jk), the hidden layer of a network on pairs. Its first
layer is x W + y W', so that the halves A and B are computed once per state. The derivatives are

    U_ik = sum_j g_ij [A_ik + B_jk > 0],   V_jk = sum_i g_ij [A_ik + B_jk > 0],
    dA = v U,   dB = v V,   dv_k = sum_i A_ik U_ik + sum_j B_jk V_jk.

On a GPU it is a Pallas kernel: tiles in registers, tiles of other groups skipped.

`sum_group_max`: sum_g max_k |U_ikg - V_jkg|, a distance between embeddings. Every group g gives a
pseudometric, the largest difference of a coordinate k; so does their sum. The derivatives go to the
coordinates of largest difference:

    dU_ikg = sum_j w_ij sign(U_ikg - V_jkg) [k is largest],   dV_jkg the same with opposite sign.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

TILE = 8
"""Rows and columns of a tile of pairs."""

UNITS = 64
"""Hidden units per step; a thread has one of them, for all pairs of a tile."""

WARPS = 2

MIN_UNITS = 128
"""Hidden units below which plain XLA is as fast."""

MAX_UNCHUNKED = 2**19
"""The most differences that a CPU holds at once; more are computed row by row."""

interpret = False
"""Whether Pallas interprets the kernels, on any device: for tests."""


def get_platform() -> str:
    """Return the platform of the default device: "cpu", "gpu", ..."""
    device = getattr(jax.config, "jax_default_device", None)
    return str(getattr(device, "platform", device) or jax.default_backend())


def can_use_kernels(A: Array, B: Array) -> bool:
    """Return whether the GPU kernels fit the shapes and the device."""
    fits = A.shape[0] % TILE == 0 and B.shape[0] % TILE == 0 and A.shape[1] >= MIN_UNITS
    return fits and (interpret or get_platform() == "gpu")


def sum_relu_kernel(A: Array, B: Array, v: Array, groups: TileGroups | None) -> Array:
    """Return sum_k v_k relu(A_ik + B_jk), (n, m); 0 in tiles without pairs of one group."""
    from jax.experimental import pallas as pl

    (n, _), m = A.shape, len(B)
    A, B, v = _pad_units(A), _pad_units(B), _pad_units(v)
    units = A.shape[1]
    tiles = jnp.ones((n // TILE, m // TILE), jnp.int32) if groups is None else groups.tiles

    def kernel(a: Any, b: Any, weights: Any, tile: Any, out: Any) -> None:
        def sum_tile() -> Array:
            def add_units(step: Any, total: Array) -> Array:
                part = pl.ds(step * UNITS, UNITS)
                before = a[:, part][:, None, :] + b[:, part][None, :, :]
                return total + jnp.maximum(before, 0.0) * weights[part]

            empty = jnp.zeros((TILE, TILE, UNITS), jnp.float32)
            return jnp.sum(jax.lax.fori_loop(0, units // UNITS, add_units, empty), axis=-1)

        skip_tile = functools.partial(jnp.zeros, (TILE, TILE), jnp.float32)
        out[...] = jax.lax.cond(tile[0, 0] > 0, sum_tile, skip_tile)

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((n, m), jnp.float32),
        grid=(n // TILE, m // TILE),
        in_specs=[
            pl.BlockSpec((TILE, units), lambda i, j: (i, 0)),
            pl.BlockSpec((TILE, units), lambda i, j: (j, 0)),
            pl.BlockSpec((units,), lambda i, j: (0,)),
            pl.BlockSpec((1, 1), lambda i, j: (i, j)),
        ],
        out_specs=pl.BlockSpec((TILE, TILE), lambda i, j: (i, j)),
        **_build_kernel_options(),
    )(A, B, v, tiles)


def sum_active_kernel(A: Array, B: Array, g: Array, groups: TileGroups | None) -> Array:
    """Return sum_j g_ij [A_ik + B_jk > 0], (n, k), over the tiles with pairs of one group."""
    from jax.experimental import pallas as pl

    (n, k), m = A.shape, len(B)
    A, B = _pad_units(A), _pad_units(B)
    rows = n // TILE
    first_tile = jnp.zeros(rows, jnp.int32) if groups is None else groups.first_tile
    end_tile = jnp.full(rows, m // TILE, jnp.int32) if groups is None else groups.end_tile

    def kernel(a: Any, b: Any, weights: Any, first: Any, last: Any, out: Any) -> None:
        own = a[...]

        def add_columns(step: Any, total: Array) -> Array:
            part = pl.ds(step * TILE, TILE)
            on = own[:, None, :] + b[part, :][None, :, :] > 0
            return total + jnp.sum(jnp.where(on, weights[:, part][:, :, None], 0.0), axis=1)

        empty = jnp.zeros(own.shape, jnp.float32)
        out[...] = jax.lax.fori_loop(first[0], last[0], add_columns, empty)

    U = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(A.shape, jnp.float32),
        grid=(rows, A.shape[1] // UNITS),
        in_specs=[
            pl.BlockSpec((TILE, UNITS), lambda i, k: (i, k)),
            pl.BlockSpec((m, UNITS), lambda i, k: (0, k)),
            pl.BlockSpec((TILE, m), lambda i, k: (i, 0)),
            pl.BlockSpec((1,), lambda i, k: (i,)),
            pl.BlockSpec((1,), lambda i, k: (i,)),
        ],
        out_specs=pl.BlockSpec((TILE, UNITS), lambda i, k: (i, k)),
        **_build_kernel_options(),
    )(A, B, g, first_tile, end_tile)
    return U[:, :k]


def _pad_units(array: Array) -> Array:
    """Pad the hidden units with zeros to a multiple of UNITS."""
    more = -array.shape[-1] % UNITS
    return jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, more)])


def _build_kernel_options() -> dict[str, Any]:
    if interpret:
        return {"interpret": True}
    from jax.experimental.pallas import triton

    return {"compiler_params": triton.CompilerParams(num_warps=WARPS)}


class TileGroups(NamedTuple):
    """Groups of sorted rows; only pairs of one group are compared, others may be left at 0.

    Attributes:
        tiles: (n / TILE, m / TILE), whether a tile holds pairs of one group.
        first_tile: (n / TILE,), the first such tile of each row of tiles.
        end_tile: (n / TILE,), the tile after the last one.
    """

    tiles: Array
    first_tile: Array
    end_tile: Array


def build_tile_groups(labels: Array) -> TileGroups:
    """Return the groups of sorted labels (n,), n a multiple of TILE."""
    rows = labels.reshape(-1, TILE)
    first, last = rows[:, 0], rows[:, -1]
    tiles = (first[:, None] <= last[None, :]) & (first[None, :] <= last[:, None])
    first_tile = jnp.argmax(tiles, axis=1)
    end_tile = tiles.shape[1] - jnp.argmax(tiles[:, ::-1], axis=1)
    return TileGroups(*(each.astype(jnp.int32) for each in (tiles, first_tile, end_tile)))


@jax.custom_vjp
def sum_relu_pairs(A: Array, B: Array, v: Array, groups: TileGroups | None = None) -> Array:
    """Return sum_k v_k relu(A_ik + B_jk), (n, m); with `groups`, at least for pairs of one group.

    >>> A, B = jnp.array([[1.0, -1.0]]), jnp.array([[0.0, 0.0], [2.0, 2.0]])
    >>> sum_relu_pairs(A, B, jnp.array([10.0, 1.0])).tolist()
    [[10.0, 31.0]]
    """
    if can_use_kernels(A, B):
        return sum_relu_kernel(A, B, v, groups)
    if _is_cpu():
        # Row by row: a row stays in the cache.
        return jax.lax.map(lambda row: jax.nn.relu(row[None, :] + B) @ v, A)
    return jnp.sum(jax.nn.relu(A[:, None, :] + B[None, :, :]) * v, axis=-1)


def _sum_relu_forward(
    A: Array, B: Array, v: Array, groups: TileGroups | None
) -> tuple[Array, tuple[Array, Array, Array, TileGroups | None]]:
    return sum_relu_pairs(A, B, v, groups), (A, B, v, groups)


def _sum_relu_backward(
    saved: tuple[Array, Array, Array, TileGroups | None], g: Array
) -> tuple[Array, Array, Array, None]:
    A, B, v, groups = saved
    if can_use_kernels(A, B):
        U = sum_active_kernel(A, B, g, groups)
        V = sum_active_kernel(B, A, g.T, groups)
    else:
        U, V = _sum_active(A, B, g)
    return v * U, v * V, jnp.sum(A * U, axis=0) + jnp.sum(B * V, axis=0), None


def _sum_active(A: Array, B: Array, g: Array) -> tuple[Array, Array]:
    """Return U and V."""
    if not _is_cpu():
        on = A[:, None, :] + B[None, :, :] > 0
        weighted = jnp.where(on, g[:, :, None], 0.0)
        return weighted.sum(axis=1), weighted.sum(axis=0)

    def add_row(V: Array, each: tuple[Array, Array]) -> tuple[Array, Array]:
        a, g_i = each
        on = (a[None, :] + B > 0).astype(g.dtype)
        return V + g_i[:, None] * on, g_i @ on

    V, U = jax.lax.scan(add_row, jnp.zeros_like(B), (A, g))
    return U, V


def _is_cpu() -> bool:
    return get_platform() == "cpu"


sum_relu_pairs.defvjp(_sum_relu_forward, _sum_relu_backward)


@jax.custom_vjp
def sum_group_max(U: Array, V: Array) -> Array:
    """Return the distances (n, m) between embeddings U (n, size, groups) and V (m, size, groups).

    >>> U = jnp.array([[[0.0, 0.0], [1.0, 5.0]]])
    >>> sum_group_max(U, jnp.zeros((2, 2, 2))).tolist()
    [[6.0, 6.0]]
    """
    if _fits_at_once(U, V):
        return _max_abs(_split_differences(U[:, None], V[None])).sum(axis=-1)
    return jax.lax.map(lambda u: _max_abs(_split_differences(u[None], V)).sum(axis=-1), U)


def _fits_at_once(U: Array, V: Array) -> bool:
    return get_platform() != "cpu" or len(U) * V.size <= MAX_UNCHUNKED


def _split_differences(U: Array, V: Array) -> list[Array]:
    """Return one array per coordinate, so that the groups are the vectorised axis."""
    return [U[..., k, :] - V[..., k, :] for k in range(U.shape[-2])]


def _max_abs(differences: list[Array]) -> Array:
    largest = jnp.abs(differences[0])
    for each in differences[1:]:
        largest = jnp.maximum(largest, jnp.abs(each))
    return largest


def _max_abs_gradients(differences: list[Array]) -> list[Array]:
    """Return the derivatives of `_max_abs`; all coordinates that tie have one."""
    largest = _max_abs(differences)
    return [jnp.where(jnp.abs(each) == largest, jnp.sign(each), 0.0) for each in differences]


def _group_max_forward(U: Array, V: Array) -> tuple[Array, tuple[Array, Array]]:
    return sum_group_max(U, V), (U, V)


def _group_max_backward(saved: tuple[Array, Array], w: Array) -> tuple[Array, Array]:
    U, V = saved
    if _fits_at_once(U, V):
        parts = [
            w[:, :, None] * each
            for each in _max_abs_gradients(_split_differences(U[:, None], V[None]))
        ]
        return (
            jnp.stack([part.sum(axis=1) for part in parts], axis=1),
            -jnp.stack([part.sum(axis=0) for part in parts], axis=1),
        )

    def add_row(dV: list[Array], row: tuple[Array, Array]) -> tuple[list[Array], Array]:
        u, w_i = row
        gradients = _max_abs_gradients(_split_differences(u[None], V))
        after = [total - w_i[:, None] * each for total, each in zip(dV, gradients, strict=True)]
        return after, jnp.stack([w_i @ each for each in gradients])

    start = [jnp.zeros_like(V[:, 0]) for _ in range(V.shape[1])]
    dV, dU = jax.lax.scan(add_row, start, (U, w))
    return dU, jnp.stack(dV, axis=1)


sum_group_max.defvjp(_group_max_forward, _group_max_backward)
