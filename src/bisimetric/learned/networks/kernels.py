"""The hidden layer of pairs as GPU kernels: tiles in registers, pairs of other groups skipped."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array

if TYPE_CHECKING:
    from bisimetric.learned.networks.hidden import TileGroups

TILE = 8
"""Rows and columns of a tile of pairs."""

UNITS = 64
"""Hidden units at a time; a thread has one of them, for all pairs of a tile."""

WARPS = 2
MIN_UNITS = 128
"""Hidden units below which plain XLA is as good."""

interpret = False
"""Whether the kernels run as plain XLA, on any device: for tests."""


def get_platform() -> str:
    """What is computed on: "cpu", "gpu", ..."""
    chosen = getattr(jax.config, "jax_default_device", None)
    return str(getattr(chosen, "platform", chosen) or jax.default_backend())


def can_use_kernels(A: Array, B: Array) -> bool:
    """Whether the kernels fit the shapes and the device."""
    fits = A.shape[0] % TILE == 0 and B.shape[0] % TILE == 0 and A.shape[1] >= MIN_UNITS
    return fits and (interpret or get_platform() == "gpu")


def sum_relu_kernel(A: Array, B: Array, v: Array, groups: TileGroups | None) -> Array:
    """sum_k v_k relu(A_ik + B_jk), (n, m); 0 in tiles without pairs of one group."""
    from jax.experimental import pallas as pl

    (n, _), m = A.shape, len(B)
    A, B, v = _pad_units(A), _pad_units(B), _pad_units(v)
    units = A.shape[1]
    tiles = jnp.ones((n // TILE, m // TILE), jnp.int32) if groups is None else groups.tiles

    def kernel(a: Any, b: Any, weights: Any, tile: Any, out: Any) -> None:
        def one_tile() -> Array:
            def some_units(step: Any, total: Array) -> Array:
                part = pl.ds(step * UNITS, UNITS)
                before = a[:, part][:, None, :] + b[:, part][None, :, :]
                return total + jnp.maximum(before, 0.0) * weights[part]

            empty = jnp.zeros((TILE, TILE, UNITS), jnp.float32)
            return jnp.sum(jax.lax.fori_loop(0, units // UNITS, some_units, empty), axis=-1)

        nothing = functools.partial(jnp.zeros, (TILE, TILE), jnp.float32)
        out[...] = jax.lax.cond(tile[0, 0] > 0, one_tile, nothing)

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
    """U_ik = sum_j g_ij [A_ik + B_jk > 0], (n, k), over the tiles with pairs of one group."""
    from jax.experimental import pallas as pl

    (n, k), m = A.shape, len(B)
    A, B = _pad_units(A), _pad_units(B)
    rows = n // TILE
    low = jnp.zeros(rows, jnp.int32) if groups is None else groups.first_tile
    high = jnp.full(rows, m // TILE, jnp.int32) if groups is None else groups.end_tile

    def kernel(a: Any, b: Any, weights: Any, first: Any, last: Any, out: Any) -> None:
        own = a[...]

        def some_columns(step: Any, total: Array) -> Array:
            part = pl.ds(step * TILE, TILE)
            on = own[:, None, :] + b[part, :][None, :, :] > 0
            return total + jnp.sum(jnp.where(on, weights[:, part][:, :, None], 0.0), axis=1)

        empty = jnp.zeros(own.shape, jnp.float32)
        out[...] = jax.lax.fori_loop(first[0], last[0], some_columns, empty)

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
    )(A, B, g, low, high)
    return U[:, :k]


def _pad_units(array: Array) -> Array:
    """Zeros added to the hidden units, so that they fill the last part."""
    more = -array.shape[-1] % UNITS
    return jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, more)])


def _build_kernel_options() -> dict[str, Any]:
    if interpret:
        return {"interpret": True}
    from jax.experimental.pallas import triton

    return {"compiler_params": triton.CompilerParams(num_warps=WARPS)}
