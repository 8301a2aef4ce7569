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

from bisimetric.distance import stored
from bisimetric.errors import InputError
from bisimetric.exact.sharded.group import ROWS, Group
from bisimetric.exact.sharded.layout import Layout, gigabytes
from bisimetric.exact.sharded.programs import EVERYWHERE, SPLIT, first_of
from bisimetric.files import name_write_errors


def write_rows(
    group: Group, layout: Layout, table: jax.Array, path: Path, target: Path | None = None
) -> None:
    """Writes a table into an empty folder, a file at a time; where one fails, all raise its error.

    All processes must see the folder. Errors name `target`, where it will be moved to, if given.
    """
    named = path if target is None else target

    def create() -> None:
        if group.index == 0:
            with name_write_errors(named, path.parent):
                stored.create(
                    path,
                    states=layout.states,
                    dtype=layout.dtype,
                    chunk=layout.chunk,
                    shard=layout.shard,
                )

    def write() -> None:
        rows = stored.opened(path, "r+")
        for part in table.addressable_shards:
            low = first_of(part.index)
            for start in range(0, layout.height, layout.shard):
                end = min(layout.states, low + start + layout.shard)
                if low + start < end:
                    piece = np.asarray(part.data[start : end - low])
                    with name_write_errors(named, path.parent):
                        rows[low + start : end] = piece

    group.together(create)
    group.together(write)


def read_rows(group: Group, layout: Layout, path: Path) -> jax.Array:
    """The table in a folder, split as the layout says, however it was split when it was written."""

    def opened() -> Any:
        rows = stored.opened(path, "r")
        if (rows.shape, rows.dtype) != ((layout.states,) * 2, layout.dtype):
            raise InputError(f"{path} holds another table; remove it, and start from 0.")
        return rows

    rows = group.together(opened)

    def checked(which: slice) -> NDArray[Any]:
        try:
            return stored.read_rows(rows, which)
        except InputError as error:
            why = str(error).rpartition(": ")[2].partition(";")[0]
            raise InputError(f"{path} is not whole: {why}; remove it, and start from 0.") from None

    def own(index: tuple[slice, ...] | None) -> NDArray[Any]:
        low = first_of(index)
        part = np.zeros((layout.height, layout.states), layout.dtype)
        for start in range(0, layout.height, layout.shard):
            end = min(layout.states, low + start + layout.shard)
            if low + start < end:
                part[start : end - low] = checked(slice(low + start, end))
        return part

    shape = (layout.devices * layout.height, layout.states)
    return group.together(lambda: jax.make_array_from_callback(shape, group.split(), own))


def gathered(
    group: Group, layout: Layout, table: jax.Array, place: NDArray[np.integer]
) -> NDArray[Any]:
    """The distances of all states (S, S), on every process; state s has row and column place[s].

    The rows come a block at a time, which all devices share.
    """
    whole = np.empty((len(place), len(place)), layout.dtype)
    states = np.argsort(place, kind="stable")
    count = max(1, layout.travel // layout.devices)
    block = _blocks(group, count)
    for start in range(0, layout.height, count):
        # The last block may reach back into the one before it.
        start = min(start, layout.height - count)
        for device, rows in enumerate(np.asarray(block(table, np.int32(start)))):
            low = device * layout.height + start
            first, last = np.searchsorted(place, (low, low + count), sorter=states)
            for s in states[first:last]:
                whole[s] = rows[place[s] - low][place]
    return whole


def _blocks(group: Group, count: int) -> Callable[..., Any]:
    def block(table: Any, start: Any) -> Any:
        rows = lax.dynamic_slice_in_dim(table, start, count)
        return lax.all_gather(rows, ROWS)

    mapped = jax.shard_map(
        block,
        mesh=group.mesh,
        in_specs=(SPLIT, EVERYWHERE),
        out_specs=EVERYWHERE,
        check_vma=False,
    )
    return group.jit(mapped)


def require_disk(where: str, folder: Path, needed: float) -> None:
    """Refuses, before anything is computed, what a disk cannot hold."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"{where}: {folder} has {gigabytes(free)} left on its disk, and {gigabytes(needed)} "
            "are needed there; name a folder on a larger one."
        )
