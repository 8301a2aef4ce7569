"""A distance matrix on disk: the folder of a sharded distance, read row by row.

The folder holds `values`, a Zarr array, and `about.npz`, everything else of the distance. Bisimilar
states share one row and one column; `row_index` says which.
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
"""Rows that stay in memory after they are read."""
READ_BYTES = 2**26
"""Bytes per read where the whole matrix is loaded."""
MAX_METADATA_BYTES = 2**20
"""Bytes of Zarr metadata that are read, at most."""
MAX_PADDING_ROWS = 2**20
"""Rows by which a shard file may exceed the matrix."""


class ZarrMatrix(np.lib.mixins.NDArrayOperatorsMixin):
    """A symmetric (S, S) distance matrix on disk with the interface of an array.

    values[s] is a row, values[s, t] an entry, and arrays of ids broadcast as in NumPy: only the
    rows that are used are read. Every other operation of an array (values > 1, values.min(),
    np.asarray(values)) loads the whole matrix if it fits into memory.

    Args:
        rows: the (C, C) Zarr array with one row per class of bisimilar states.
        row_index: (S,), the row and column of each state in it.
        argmax: the pair of states at the largest distance.
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
            raise IndexError(f"a distance matrix has 2 axes, and {len(key)} indices were given")
        first, second = key
        if isinstance(first, slice) or isinstance(second, slice):
            columns = np.arange(len(self))[second]
            return np.asarray(self._select_rows(first))[..., columns]
        s, t = np.broadcast_arrays(self._validate_ids(first), self._validate_ids(second))
        rows, columns = self._row_index[s].ravel(), self._row_index[t].ravel()
        found = np.empty(rows.shape, self.dtype)
        order = np.argsort(rows, kind="stable")
        distinct, starts = np.unique(rows[order], return_index=True)
        for row, members in zip(distinct, np.split(order, starts[1:]), strict=False):
            found[members] = self._read_cached(int(row))[columns[members]]
        return found.reshape(s.shape) if s.ndim else found[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("a distance matrix on disk cannot be an array without a copy")
        size = len(self) ** 2 * self.dtype.itemsize
        require_memory(
            f"Distance: the whole matrix of {len(self):,} states needs",
            size,
            "use rows, values[s], or pairs, d(s, t)",
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
        """Return the largest distance, which is stored."""
        return self[self._argmax] if axis is None else np.asarray(self).max(axis, **more)

    def argmax(self, axis: Any = None, **more: Any) -> Any:
        """Return the flat index of the largest distance, which is stored."""
        if axis is not None:
            return np.asarray(self).argmax(axis, **more)
        return self._argmax[0] * len(self) + self._argmax[1]

    def _select_rows(self, which: Any) -> NDArray[Any]:
        ids = np.arange(len(self))[which] if isinstance(which, slice) else self._validate_ids(which)
        if ids.ndim == 0:
            return np.asarray(self._read_cached(int(self._row_index[ids]))[self._row_index])
        rows = [
            self._read_cached(int(row))[self._row_index] for row in self._row_index[ids].ravel()
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
    """Whether a folder holds a sharded distance."""
    return Path(path, METADATA).is_file()


def create_matrix(
    path: Path, *, num_states: int, dtype: np.dtype[Any], chunk_rows: int, shard_rows: int
) -> zarr.Array[Any]:
    """Create an empty matrix on disk, in files of `shard_rows` rows read by `chunk_rows`."""
    matrix: zarr.Array[Any] = require_zarr().create_array(
        path,
        shape=(num_states, num_states),
        chunks=(chunk_rows, num_states),
        shards=(shard_rows, num_states),
        dtype=dtype,
        compressors=None,
        fill_value=np.nan,
    )
    return matrix


def open_matrix(path: Path, mode: str) -> zarr.Array[Any]:
    """Open a matrix on disk, to read or write it row by row."""
    package = require_zarr()
    try:
        _validate_metadata(path)
        found: zarr.Array[Any] = package.open_array(path, mode=mode, zarr_format=3)
    except MemoryError:
        raise
    except Exception as error:
        # Damaged metadata makes Zarr raise many types of errors.
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{path} is not a distance matrix ({reason}); compute it again.") from None
    return found


def read_rows(rows: Any, which: int | slice) -> NDArray[Any]:
    """Read rows of a matrix on disk; raise InputError unless all numbers are finite."""
    try:
        found = np.asarray(rows[which])
    except MemoryError:
        raise
    except Exception as error:
        # A damaged file makes Zarr, its codecs and NumPy raise many types of errors.
        raise InputError(
            f"{_describe_path(rows)}: rows of the matrix cannot be read ({error}); compute it "
            "again."
        ) from None
    if not np.isfinite(found).all():
        raise InputError(
            f"{_describe_path(rows)}: rows of the matrix are missing or not finite; compute it "
            "again."
        )
    return found


def _describe_path(rows: Any) -> str:
    return str(getattr(getattr(rows, "store", None), "root", "Distance"))


def _validate_metadata(path: Path) -> None:
    """Raise unless the metadata is that of `create_matrix`, before Zarr acts on it.

    Metadata names codecs, which are programs: only those of uncompressed rows are accepted.
    """
    with open(path / "zarr.json", "rb") as file:
        about = parse_object(file.read(MAX_METADATA_BYTES))
    shape, kind = about["shape"], about["data_type"]
    if kind not in ("float32", "float64"):
        raise ValueError(f"its data type is {kind!r}")
    if not (isinstance(shape, list) and len(shape) == 2 and shape[0] == shape[1]):
        raise ValueError(f"its shape is {shape!r}")
    grid, [codec] = about["chunk_grid"], about["codecs"]
    inner = codec["configuration"]
    shard, chunk = grid["configuration"]["chunk_shape"], inner["chunk_shape"]
    for rows in (shape, shard, chunk):
        if not all(type(each) is int and each > 0 for each in rows) or rows[1:] != shape[1:]:
            raise ValueError(f"its rows are {rows!r} of {shape!r}")
    if shard[0] > 2 * shape[0] + MAX_PADDING_ROWS or shard[0] % chunk[0]:
        raise ValueError(f"its files have {shard[0]} rows in chunks of {chunk[0]}")
    require_memory(
        f"{path}: a chunk of its matrix needs",
        chunk[0] * shape[1] * np.dtype(kind).itemsize,
        "is it from a trusted source?",
    )
    names = [each["name"] for each in (*inner["codecs"], *inner["index_codecs"])]
    if codec["name"] != "sharding_indexed" or names != ["bytes", "bytes", "crc32c"]:
        raise ValueError("its codecs are not those of a distance matrix")
    if about.get("storage_transformers"):
        raise ValueError("it has storage transformers")


def require_zarr() -> Any:
    """Import Zarr, or raise an error that says how to install it."""
    return import_optional("zarr", "Zarr distance matrices", "scale")
