"""The rows of a sharded table on the disk: each process writes its own, and reads what it needs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax
from numpy.typing import NDArray

from bisimetric._io import name_write_errors
from bisimetric.distance import zarr_matrix
from bisimetric.errors import InputError
from bisimetric.exact.sharded.kernels import REPLICATED_SPEC, ROW_SPEC, first_row
from bisimetric.exact.sharded.layout import Layout, format_bytes
from bisimetric.exact.sharded.process_group import ROW_AXIS, ProcessGroup


def write_rows(
    group: ProcessGroup, layout: Layout, values: jax.Array, path: Path, target: Path | None = None
) -> None:
    """Writes a table into an empty folder, a file at a time; where one fails, all raise its error.

    All processes must see the folder. Errors name `target`, where it will be moved to, if given.
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
                    piece = np.asarray(part.data[start : end - low])
                    with name_write_errors(named, path.parent):
                        rows[low + start : end] = piece

    group.run_collectively(create)
    group.run_collectively(write)


def read_rows(group: ProcessGroup, layout: Layout, path: Path) -> jax.Array:
    """The table in a folder, split as the layout says, however it was split when it was written."""

    def open_checked() -> Any:
        rows = zarr_matrix.open_matrix(path, "r")
        if (rows.shape, rows.dtype) != ((layout.num_states,) * 2, layout.dtype):
            raise InputError(f"{path} holds another table; remove it, and start from 0.")
        return rows

    rows = group.run_collectively(open_checked)

    def read_checked(which: slice) -> NDArray[Any]:
        try:
            return zarr_matrix.read_rows(rows, which)
        except InputError as error:
            why = str(error).rpartition(": ")[2].partition(";")[0]
            raise InputError(f"{path} is not whole: {why}; remove it, and start from 0.") from None

    def read_local(index: tuple[slice, ...] | None) -> NDArray[Any]:
        low = first_row(index)
        part = np.zeros((layout.rows_per_device, layout.num_states), layout.dtype)
        for start in range(0, layout.rows_per_device, layout.shard_rows):
            end = min(layout.num_states, low + start + layout.shard_rows)
            if low + start < end:
                part[start : end - low] = read_checked(slice(low + start, end))
        return part

    shape = (layout.num_devices * layout.rows_per_device, layout.num_states)
    return group.run_collectively(
        lambda: jax.make_array_from_callback(shape, group.row_sharding(), read_local)
    )


def gather_matrix(
    group: ProcessGroup, layout: Layout, values: jax.Array, row_index: NDArray[np.integer]
) -> NDArray[Any]:
    """The distances of all states (S, S), on every process; state s has row and column place[s].

    The rows come a block at a time, which all devices share.
    """
    whole = np.empty((len(row_index), len(row_index)), layout.dtype)
    states = np.argsort(row_index, kind="stable")
    count = max(1, layout.block_rows // layout.num_devices)
    block = _compile_gather(group, count)
    for start in range(0, layout.rows_per_device, count):
        # The last block may reach back into the one before it.
        start = min(start, layout.rows_per_device - count)
        for device, rows in enumerate(np.asarray(block(values, np.int32(start)))):
            low = device * layout.rows_per_device + start
            first, last = np.searchsorted(row_index, (low, low + count), sorter=states)
            for s in states[first:last]:
                whole[s] = rows[row_index[s] - low][row_index]
    return whole


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
    """Refuses, before anything is computed, what a disk cannot hold."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"{caller}: {folder} has {format_bytes(free)} left on its disk, and {format_bytes(needed)} "
            "are needed there; name a folder on a larger one."
        )
