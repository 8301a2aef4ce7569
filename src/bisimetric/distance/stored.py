"""A table that stays on the disk: the folder of a sharded table, read row by row.

The folder holds `values`, a Zarr array of rows, and `about.npz`, all that a distance knows besides.
States that behave alike share one row and one column; `place` says which.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.memory import require_memory

if TYPE_CHECKING:
    import zarr

VALUES, ABOUT = "values", "about.npz"
KEPT = 8
"""Rows that stay in memory after they were read."""


class StoredTable:
    """A symmetric (S, S) table of distances on the disk, indexed as an array is.

    values[s] is a row, values[s, t] an entry, and arrays of ids broadcast as in NumPy. Nothing
    else is read than the rows that are asked for. `np.asarray(values)` reads it all, where the
    memory holds it.

    Args:
        rows: the table of one state a class, (C, C), whose rows are read one by one.
        place: (S,), the row and column of each state in it.
        farthest: the pair of states with the largest distance.
    """

    ndim = 2

    def __init__(self, rows: Any, place: NDArray[np.integer], farthest: tuple[int, int]) -> None:
        self._rows, self._place, self._farthest = rows, place, farthest
        self.shape = (len(place), len(place))
        self.dtype = np.dtype(rows.dtype)
        self._read = functools.lru_cache(KEPT)(self._read_row)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, tuple):
            return self._whole_rows(key)
        if len(key) != 2:
            raise IndexError(f"a table has 2 axes, and {len(key)} indices were given")
        first, second = key
        if isinstance(first, slice) or isinstance(second, slice):
            columns = np.arange(len(self))[second]
            return np.asarray(self._whole_rows(first))[..., columns]
        s, t = np.broadcast_arrays(self._checked(first), self._checked(second))
        found = np.empty(s.shape, self.dtype)
        places, each = np.unique(self._place[s], return_inverse=True)
        for i, place in enumerate(places):
            here = each.reshape(s.shape) == i
            found[here] = self._read(int(place))[self._place[t[here]]]
        return found if found.ndim else found[()]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        size = len(self) ** 2 * self.dtype.itemsize
        require_memory(
            f"Distance: the whole table of {len(self):,} states takes",
            size,
            "ask for rows, values[s], or pairs, d(s, t)",
        )
        whole = np.empty(self.shape, self.dtype)
        for s, place in enumerate(self._place):
            whole[s] = self._read(int(place))[self._place]
        return whole if dtype is None else whole.astype(dtype)

    def max(self) -> Any:
        """The largest distance, as it was written down."""
        return self[self._farthest]

    def argmax(self, axis: None = None, out: None = None) -> int:
        """The place of the largest distance in the table laid out flat, as it was written down."""
        if axis is not None or out is not None:
            raise InputError("Distance: a stored table knows its largest entry only as a whole.")
        return self._farthest[0] * len(self) + self._farthest[1]

    def _whole_rows(self, which: Any) -> NDArray[Any]:
        ids = np.arange(len(self))[which] if isinstance(which, slice) else self._checked(which)
        if ids.ndim == 0:
            return np.asarray(self._read(int(self._place[ids]))[self._place])
        rows = [self._read(int(place))[self._place] for place in self._place[ids].ravel()]
        return np.array(rows, self.dtype).reshape(*ids.shape, len(self))

    def _checked(self, ids: Any) -> NDArray[np.int64]:
        found = np.asarray(ids)
        if found.dtype == np.bool_:
            found = np.flatnonzero(found)
        if found.size and not (-len(self) <= found.min() and found.max() < len(self)):
            raise IndexError(f"states go from 0 to {len(self) - 1}")
        return found.astype(np.int64) % max(len(self), 1)

    def _read_row(self, place: int) -> NDArray[Any]:
        row = np.asarray(self._rows[place])
        if not np.isfinite(row).all():
            raise InputError(f"Distance: row {place} of the stored table holds no finite numbers.")
        return row


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a folder was written as a sharded table."""
    return Path(path, ABOUT).is_file()


def create(
    path: Path, *, states: int, dtype: np.dtype[Any], chunk: int, shard: int
) -> zarr.Array[Any]:
    """An empty table on the disk: files of `shard` rows, each read in pieces of `chunk` rows."""
    made: zarr.Array[Any] = zarr_package().create_array(
        path,
        shape=(states, states),
        chunks=(chunk, states),
        shards=(shard, states),
        dtype=dtype,
        compressors=None,
        fill_value=np.nan,
    )
    return made


def opened(path: Path, mode: str) -> zarr.Array[Any]:
    """A table on the disk, to be read or written row by row."""
    try:
        found: zarr.Array[Any] = zarr_package().open_array(path, mode=mode)
    except (FileNotFoundError, ValueError, KeyError) as error:
        raise InputError(f"{path} is no table of rows ({error}); make it again.") from None
    return found


def zarr_package() -> Any:
    """Zarr, or one sentence that says how to install it."""
    try:
        import zarr
    except ImportError:
        raise InputError(
            "sharded tables: zarr is not installed; pip install 'bisimetric[scale]'."
        ) from None
    return zarr
