"""Archives of plain arrays, read within the memory that there is.

What a member declares is compared with what the archive can hold, and with the free memory, before
anything is allocated; only plain numbers and text are read, and nothing is unpickled.
"""

from __future__ import annotations

import ast
import contextlib
import errno
import gzip
import math
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, Protocol

from bisimetric.memory import require_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, KeyError, RuntimeError)
"""What reading a damaged archive may raise, besides errors of the file itself."""

MAX_INFLATION = 1032
"""How many bytes one byte of a deflated stream can at most stand for."""

MEMBER_OVERHEAD = 1024
"""Bytes that the headers of a member may take."""

MAX_HEADER_BYTES = 10_000
"""Bytes of a .npy header, which NumPy itself limits so."""

MAX_AXES = 32
"""Axes that an array may have."""

PLAIN_DTYPE = re.compile(r"[<>|=]?(\?|b1|i[1248]|u[1248]|f[248]|[SU]\d{1,8})")
"""The types of plain numbers and text, by NumPy's short names."""

READ_CHUNK_BYTES = 2**20
"""Bytes read at a time."""


class ByteStream(Protocol):
    """Anything that bytes are read from."""

    def read(self, size: int = -1, /) -> bytes: ...


class NpzArchive:
    """The arrays of an .npz file, each read when it is asked for; a mapping of sorts.

    Attributes:
        files: the names of the members, without .npy.
    """

    def __init__(self, path: str | os.PathLike[str], opened: zipfile.ZipFile) -> None:
        self._path, self._opened = path, opened
        self._members = {info.filename.removesuffix(".npy"): info for info in opened.infolist()}
        self.files = list(self._members)

    def __getitem__(self, name: str) -> NDArray[Any]:
        info = self._members[name]
        try:
            with open_member(self._path, self._opened, info) as file:
                array = read_array(f"{self._path}: {name}", file, info.file_size)
                # The checksum is compared where a member ends.
                if file.read(1):
                    raise ValueError("it holds more than one array")
                return array
        except (OSError, EOFError, ValueError) as error:
            raise ValueError(f"{name}: {error}") from None


@contextlib.contextmanager
def open_archive(path: str | os.PathLike[str]) -> Iterator[NpzArchive]:
    """An .npz archive of plain arrays, opened to be read; see UNREADABLE for what may go wrong."""
    with open_zip(path) as opened:
        yield NpzArchive(path, opened)


@contextlib.contextmanager
def open_zip(path: str | os.PathLike[str]) -> Iterator[zipfile.ZipFile]:
    """A zip to be read; an OSError in one sentence where there is no file that can be."""
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as opened:
            yield opened
    except OverflowError:
        raise zipfile.BadZipFile("its directory is damaged") from None
    except OSError as error:
        # A damaged directory leads to places before the start of the file.
        if error.errno == errno.EINVAL:
            raise zipfile.BadZipFile("its directory is damaged") from None
        raise type(error)(f"cannot read {path}: {error.strerror or error}.") from None


def open_member(
    path: str | os.PathLike[str], opened: zipfile.ZipFile, info: zipfile.ZipInfo
) -> IO[bytes]:
    """A member of a zip to be read, if what it declares is possible and fits into memory.

    Reading it gives at most the bytes that it declares, `info.file_size`.
    """
    possible = {
        zipfile.ZIP_STORED: info.compress_size,
        zipfile.ZIP_DEFLATED: MAX_INFLATION * info.compress_size + MEMBER_OVERHEAD,
    }
    if info.compress_type not in possible:
        raise ValueError(f"{info.filename} is compressed in a way that is not read here")
    if info.file_size > possible[info.compress_type] or info.compress_size > os.path.getsize(path):
        raise ValueError(f"{info.filename} declares more bytes than it can hold")
    require_memory(
        f"{path}: its member {info.filename} needs", info.file_size, "is it from a trusted source?"
    )
    return opened.open(info)


def read_gzip_array(path: str | os.PathLike[str], num_rows: int | None = None) -> NDArray[Any]:
    """The array in a gzip-compressed .npy file, or its first rows."""
    size = MAX_INFLATION * os.path.getsize(path) + MEMBER_OVERHEAD
    with gzip.open(path, "rb") as file:
        return read_array(os.fspath(path), file, size, num_rows)


def read_npy(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array in a .npy file; a ValueError says what is wrong with it."""
    with open(path, "rb") as file:
        return read_array(os.fspath(path), file, os.path.getsize(path))


def read_array(
    source: str, file: ByteStream, max_bytes: float, num_rows: int | None = None
) -> NDArray[Any]:
    """The array of plain numbers or text in a .npy stream, which holds at most `size` bytes.

    `rows` reads only so many from the start. A ValueError says what is wrong with it.
    """
    import numpy as np

    shape, by_columns, dtype = _read_header(file)
    if num_rows is not None and shape:
        if by_columns:
            raise ValueError("it is stored column by column, and must be row by row")
        shape = (min(num_rows, shape[0]), *shape[1:])
    count = math.prod(shape)
    # An element of text may have no bytes, and still takes memory once it is listed.
    if max(count, count * dtype.itemsize) > max_bytes:
        raise ValueError(f"it declares the shape {shape}, which is more than it holds")
    raw = _read_exactly(source, file, count * dtype.itemsize)
    if not raw:
        return np.zeros(shape, dtype)
    flat = np.frombuffer(raw, dtype)
    _validate_values(flat)
    return flat.reshape(shape, order="F" if by_columns else "C")


def _read_header(file: ByteStream) -> tuple[tuple[int, ...], bool, Any]:
    """Shape, order and type that a .npy stream declares: of plain numbers or text."""
    import numpy as np

    start = file.read(8)
    if start[:6] != b"\x93NUMPY" or start[6:] not in (b"\x01\x00", b"\x02\x00"):
        raise ValueError("it is no array of NumPy")
    count = int.from_bytes(file.read(2 * start[6]), "little")
    if count > MAX_HEADER_BYTES:
        raise ValueError(f"its header is {count:,} bytes long")
    try:
        declared = ast.literal_eval(file.read(count).decode("latin1").strip())
        shape, by_columns, kind = (declared[name] for name in ("shape", "fortran_order", "descr"))
        sizes = isinstance(shape, tuple) and all(type(each) is int for each in shape)
    except (ValueError, TypeError, SyntaxError, KeyError, RecursionError, MemoryError):
        raise ValueError("its header is damaged") from None
    if not sizes or min(shape, default=0) < 0 or len(shape) > MAX_AXES:
        raise ValueError(f"it declares the shape {str(shape)[:80]}")
    if not isinstance(kind, str) or PLAIN_DTYPE.fullmatch(kind) is None:
        raise ValueError(f"it holds {str(kind)[:80]!r}, and must hold plain numbers or text")
    return shape, by_columns is True, np.dtype(kind)


def _read_exactly(source: str, file: ByteStream, num_bytes: int) -> bytearray:
    """So many bytes of a stream; more memory is taken only as they come."""
    require_memory(f"{source} needs", num_bytes, "is it from a trusted source?")
    raw = bytearray()
    while len(raw) < num_bytes:
        chunk = file.read(min(READ_CHUNK_BYTES, num_bytes - len(raw)))
        if not chunk:
            raise ValueError("it ends early")
        raw += chunk
    return raw


def _validate_values(values: NDArray[Any]) -> None:
    """Refuses truth values other than 0 and 1, and text that is not Unicode."""
    import numpy as np

    if values.dtype.kind == "b" and (values.view(np.uint8) > 1).any():
        raise ValueError("it holds truth values other than 0 and 1")
    if values.dtype.kind == "U":
        codes = values.view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
        if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
            raise ValueError("it holds text that is not Unicode")


def validate_csr(
    data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], num_columns: int
) -> None:
    """A ValueError where the arrays of a sparse matrix (CSR) lead outside of it.

    SciPy's own check leaves out a matrix whose last row pointer is not above 0.
    """
    pointers = indptr.astype("int64")
    if len(data) != len(indices) or not len(pointers) or pointers[0] != 0:
        raise ValueError("its sparse matrix has arrays of different lengths")
    if (pointers[1:] < pointers[:-1]).any() or pointers[-1] != len(data):
        raise ValueError("the row pointers of its sparse matrix do not rise to its length")
    if len(indices) and not (indices.min() >= 0 and indices.max() < num_columns):
        raise ValueError("the columns of its sparse matrix lie outside of it")
