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

from bisimetric._io import parse_object
from bisimetric._memory import require_memory
from bisimetric._optional import import_optional
from bisimetric.errors import InputError

if TYPE_CHECKING:
    import zarr

VALUES, METADATA = "values", "about.npz"
CACHED_ROWS = 8
"""Rows that stay in memory after they were read."""
READ_BYTES = 2**26
"""Bytes of rows that are read together where all are wanted."""
MAX_METADATA_BYTES = 2**20
"""Bytes of metadata that are read."""
MAX_PADDING_ROWS = 2**20
"""Rows that a file of a table may have beyond those of the table."""


class ZarrMatrix(np.lib.mixins.NDArrayOperatorsMixin):
    """A symmetric (S, S) table of distances on the disk, indexed as an array is.

    values[s] is a row, values[s, t] an entry, and arrays of ids broadcast as in NumPy: only the
    rows that are asked for are read. Whatever else an array can do (values > 1, values.min(),
    np.asarray(values)) is done with the whole table, where the memory holds it.

    Args:
        rows: the table of one state a class, (C, C), whose rows are read one by one.
        place: (S,), the row and column of each state in it.
        farthest: the pair of states with the largest distance.
    """

    ndim = 2

    def __init__(self, rows: Any, row_index: NDArray[np.integer], argmax: tuple[int, int]) -> None:
        self._rows, self._row_index, self._argmax = rows, row_index, argmax
        self.shape = (len(row_index), len(row_index))
        self.dtype = np.dtype(rows.dtype)
        self._read_cached = functools.lru_cache(CACHED_ROWS)(self._read_rows)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, tuple):
            return self._select_rows(key)
        if len(key) != 2:
            raise IndexError(f"a table has 2 axes, and {len(key)} indices were given")
        first, second = key
        if isinstance(first, slice) or isinstance(second, slice):
            columns = np.arange(len(self))[second]
            return np.asarray(self._select_rows(first))[..., columns]
        s, t = np.broadcast_arrays(self._validate_ids(first), self._validate_ids(second))
        rows, columns = self._row_index[s].ravel(), self._row_index[t].ravel()
        found = np.empty(rows.shape, self.dtype)
        order = np.argsort(rows, kind="stable")
        places, first = np.unique(rows[order], return_index=True)
        for place, each in zip(places, np.split(order, first[1:]), strict=False):
            found[each] = self._read_cached(int(place))[columns[each]]
        return found.reshape(s.shape) if s.ndim else found[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        size = len(self) ** 2 * self.dtype.itemsize
        require_memory(
            f"Distance: the whole table of {len(self):,} states takes",
            size,
            "ask for rows, values[s], or pairs, d(s, t)",
        )
        whole = np.empty(self.shape, self.dtype)
        states = np.argsort(self._row_index, kind="stable")
        count = max(1, READ_BYTES // (self._rows.shape[1] * self.dtype.itemsize))
        for low in range(0, self._rows.shape[0], count):
            rows = self._read_rows(slice(low, low + count))
            first, last = np.searchsorted(self._row_index, (low, low + count), sorter=states)
            for s in states[first:last]:
                whole[s] = rows[self._row_index[s] - low][self._row_index]
        return whole if dtype is None else whole.astype(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        whole = [np.asarray(each) if isinstance(each, ZarrMatrix) else each for each in inputs]
        return getattr(ufunc, method)(*whole, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def max(self, axis: Any = None, **more: Any) -> Any:
        """The largest distance, as it was written down."""
        return self[self._argmax] if axis is None else np.asarray(self).max(axis, **more)

    def argmax(self, axis: Any = None, **more: Any) -> Any:
        """Where the largest distance is in the table laid out flat, as it was written down."""
        if axis is not None:
            return np.asarray(self).argmax(axis, **more)
        return self._argmax[0] * len(self) + self._argmax[1]

    def _select_rows(self, which: Any) -> NDArray[Any]:
        ids = np.arange(len(self))[which] if isinstance(which, slice) else self._validate_ids(which)
        if ids.ndim == 0:
            return np.asarray(self._read_cached(int(self._row_index[ids]))[self._row_index])
        rows = [
            self._read_cached(int(place))[self._row_index] for place in self._row_index[ids].ravel()
        ]
        return np.array(rows, self.dtype).reshape(*ids.shape, len(self))

    def _validate_ids(self, ids: Any) -> NDArray[np.int64]:
        found = np.asarray(ids)
        if found.dtype == np.bool_:
            found = np.flatnonzero(found)
        if found.size and not (-len(self) <= found.min() and found.max() < len(self)):
            raise IndexError(f"states go from 0 to {len(self) - 1}")
        return found.astype(np.int64) % max(len(self), 1)

    def _read_rows(self, which: int | slice) -> NDArray[Any]:
        return read_rows(self._rows, which)


def is_matrix_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a folder was written as a sharded table."""
    return Path(path, METADATA).is_file()


def create_matrix(
    path: Path, *, num_states: int, dtype: np.dtype[Any], chunk_rows: int, shard_rows: int
) -> zarr.Array[Any]:
    """An empty table on the disk: files of `shard` rows, each read in pieces of `chunk` rows."""
    made: zarr.Array[Any] = require_zarr().create_array(
        path,
        shape=(num_states, num_states),
        chunks=(chunk_rows, num_states),
        shards=(shard_rows, num_states),
        dtype=dtype,
        compressors=None,
        fill_value=np.nan,
    )
    return made


def open_matrix(path: Path, mode: str) -> zarr.Array[Any]:
    """A table on the disk, to be read or written row by row."""
    package = require_zarr()
    try:
        _validate_metadata(path)
        found: zarr.Array[Any] = package.open_array(path, mode=mode, zarr_format=3)
    except MemoryError:
        raise
    except Exception as error:
        # Zarr takes metadata apart piece by piece, and each piece fails in its own way.
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{path} is no table of rows ({why}); make it again.") from None
    return found


def read_rows(rows: Any, which: int | slice) -> NDArray[Any]:
    """Some rows of a table on the disk, all of them finite numbers."""
    try:
        found = np.asarray(rows[which])
    except MemoryError:
        raise
    except Exception as error:
        # A damaged file fails in Zarr, in its codecs or in NumPy, each in its own way.
        raise InputError(
            f"{_describe_path(rows)}: rows of the stored table cannot be read ({error}); make it again."
        ) from None
    if not np.isfinite(found).all():
        raise InputError(
            f"{_describe_path(rows)}: rows of the stored table are missing or hold no finite numbers; make "
            "it again."
        )
    return found


def _describe_path(rows: Any) -> str:
    return str(getattr(getattr(rows, "store", None), "root", "Distance"))


def _validate_metadata(path: Path) -> None:
    """Refuses metadata of other arrays than `create` makes, before Zarr acts on them.

    Codecs are programs that metadata name: only those of plain rows are let through.
    """
    with open(path / "zarr.json", "rb") as file:
        about = parse_object(file.read(MAX_METADATA_BYTES))
    shape, kind = about["shape"], about["data_type"]
    if kind not in ("float32", "float64"):
        raise ValueError(f"its numbers are {kind!r}")
    if not (isinstance(shape, list) and len(shape) == 2 and shape[0] == shape[1]):
        raise ValueError(f"its shape is {shape!r}")
    grid, [codec] = about["chunk_grid"], about["codecs"]
    inner = codec["configuration"]
    shard, chunk = grid["configuration"]["chunk_shape"], inner["chunk_shape"]
    for rows in (shape, shard, chunk):
        if not all(type(each) is int and each > 0 for each in rows) or rows[1:] != shape[1:]:
            raise ValueError(f"its rows are {rows!r} of {shape!r}")
    if shard[0] > 2 * shape[0] + MAX_PADDING_ROWS or shard[0] % chunk[0]:
        raise ValueError(f"its files have {shard[0]} rows, read by {chunk[0]}")
    require_memory(
        f"{path}: a piece of its table needs",
        chunk[0] * shape[1] * np.dtype(kind).itemsize,
        "is it from a trusted source?",
    )
    names = [each["name"] for each in (*inner["codecs"], *inner["index_codecs"])]
    if codec["name"] != "sharding_indexed" or names != ["bytes", "bytes", "crc32c"]:
        raise ValueError("its rows are encoded otherwise")
    if about.get("storage_transformers"):
        raise ValueError("its rows are transformed")


def require_zarr() -> Any:
    """Import Zarr, or raise an error that says how to install it."""
    return import_optional("zarr", "Zarr distance matrices", "scale")
