"""The rows of a sharded matrix on disk: each process writes its own, and reads what it needs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from bisimetric._io import name_write_errors
from bisimetric._text import format_bytes
from bisimetric.distance import zarr_matrix
from bisimetric.errors import InputError
from bisimetric.exact.sharded.kernels import REPLICATED_SPEC, ROW_SPEC, first_row
from bisimetric.exact.sharded.layout import Layout
from bisimetric.exact.sharded.process_group import ROW_AXIS, ProcessGroup


def write_rows(
    group: ProcessGroup, layout: Layout, values: jax.Array, path: Path, target: Path | None = None
) -> None:
    """Write a matrix into an empty folder, one file at a time; an error in one is raised in all.

    All processes must see the folder. Errors name `target`, its later path, if given.
    """
    named = path if target is None else target

    def create() -> None:
        if group.rank == 0:
            with name_write_errors(named, path.parent):
                zarr_matrix.create_matrix(
                    path,
                    num_states=layout.num_states,
                    dtype=layout.dtype,
                    chunk_rows=layout.chunk_rows,
                    shard_rows=layout.shard_rows,
                )

    def write() -> None:
        rows = zarr_matrix.open_matrix(path, "r+")
        for part in values.addressable_shards:
            low = first_row(part.index)
            for start in range(0, layout.rows_per_device, layout.shard_rows):
                end = min(layout.num_states, low + start + layout.shard_rows)
                if low + start < end:
                    # A copy: JAX would cache all rows of a device on the host, and return them
                    # again after a kernel has changed them in place.
                    shard = np.asarray(jnp.array(part.data[start : end - low], copy=True))
                    with name_write_errors(named, path.parent):
                        rows[low + start : end] = shard

    group.run_collectively(create)
    group.run_collectively(write)


def read_rows(group: ProcessGroup, layout: Layout, path: Path) -> jax.Array:
    """Read the matrix in a folder into the given layout, whatever layout wrote it."""

    def open_rows() -> Any:
        rows = zarr_matrix.open_matrix(path, "r")
        if (rows.shape, rows.dtype) != ((layout.num_states,) * 2, layout.dtype):
            raise InputError(f"{path} holds another matrix; remove it to start a new run.")
        return rows

    rows = group.run_collectively(open_rows)

    def read_shard(which: slice) -> NDArray[Any]:
        try:
            return zarr_matrix.read_rows(rows, which)
        except InputError as error:
            reason = str(error).rpartition(": ")[2].partition(";")[0]
            raise InputError(
                f"{path} is damaged: {reason}; remove it to start a new run."
            ) from None

    def read_local(index: tuple[slice, ...] | None) -> NDArray[Any]:
        low = first_row(index)
        part = np.zeros((layout.rows_per_device, layout.num_states), layout.dtype)
        for start in range(0, layout.rows_per_device, layout.shard_rows):
            end = min(layout.num_states, low + start + layout.shard_rows)
            if low + start < end:
                part[start : end - low] = read_shard(slice(low + start, end))
        return part

    shape = (layout.num_devices * layout.rows_per_device, layout.num_states)
    return group.run_collectively(
        lambda: jax.make_array_from_callback(shape, group.row_sharding(), read_local)
    )


def gather_matrix(
    group: ProcessGroup, layout: Layout, values: jax.Array, row_index: NDArray[np.integer]
) -> NDArray[Any]:
    """Gather the distances of all states (S, S) on every process, one block of rows at a time.

    State s has row and column row_index[s].
    """
    matrix = np.empty((len(row_index), len(row_index)), layout.dtype)
    states = np.argsort(row_index, kind="stable")
    in_order = np.array_equal(row_index, np.arange(len(row_index)))
    num_rows = max(1, layout.block_rows // layout.num_devices)
    gather = _compile_gather(group, num_rows)
    for start in range(0, layout.rows_per_device, num_rows):
        # The last block may overlap the one before it.
        start = min(start, layout.rows_per_device - num_rows)
        for device, rows in enumerate(np.asarray(gather(values, np.int32(start)))):
            low = device * layout.rows_per_device + start
            if in_order:
                matrix[low : low + num_rows] = rows[: max(0, len(matrix) - low)]
                continue
            first, last = np.searchsorted(row_index, (low, low + num_rows), sorter=states)
            for s in states[first:last]:
                matrix[s] = rows[row_index[s] - low][row_index]
    return matrix


def _compile_gather(group: ProcessGroup, num_rows: int) -> Callable[..., Any]:
    def gather_block(values: Any, start: Any) -> Any:
        rows = lax.dynamic_slice_in_dim(values, start, num_rows)
        return lax.all_gather(rows, ROW_AXIS)

    mapped = jax.shard_map(
        gather_block,
        mesh=group.mesh,
        in_specs=(ROW_SPEC, REPLICATED_SPEC),
        out_specs=REPLICATED_SPEC,
        check_vma=False,
    )
    return group.jit(mapped)


def require_disk_space(caller: str, folder: Path, needed: float) -> None:
    """Raise InputError if a disk has not enough free space."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"{caller}: the disk of {folder} has {format_bytes(free)} free, and "
            f"{format_bytes(needed)} are needed; use a folder on a larger one."
        )
