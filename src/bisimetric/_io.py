"""Read archives of plain arrays safely, parse JSON metadata, and write files atomically.

Declared sizes are compared with the file and with the free memory before anything is allocated.
Only plain numbers and text are read; nothing is unpickled.
"""

from __future__ import annotations

import ast
import contextlib
import errno
import gzip
import hashlib
import json
import math
import os
import re
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeVar

from bisimetric._memory import require_memory
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")

ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, KeyError, RuntimeError)
"""Exceptions of reading a damaged archive, besides OSError."""

METADATA_ERRORS = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RecursionError,
)
"""Exceptions of using metadata of a wrong type, shape or size."""

MAX_INFLATION = 1032
"""Upper bound on the compression ratio of DEFLATE."""

MEMBER_OVERHEAD = 1024
"""Bytes allowed for the headers of a member."""

MAX_HEADER_BYTES = 10_000
"""Limit on a .npy header, the same as NumPy's."""

MAX_AXES = 32
"""Limit on the axes of an array."""

PLAIN_DTYPE = re.compile(r"[<>|=]?(\?|b1|i[1248]|u[1248]|f[248]|[SU]\d{1,8})")
"""NumPy's short names of plain numbers and text."""

READ_CHUNK_BYTES = 2**20
"""Bytes per read, so that memory grows only with the data."""


class ByteStream(Protocol):
    """A readable binary stream."""

    def read(self, size: int = -1, /) -> bytes: ...


class NpzArchive:
    """The arrays of an .npz file, each read on access.

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
                # Reading to the end of the member verifies its checksum.
                if file.read(1):
                    raise ValueError("it holds more than one array")
                return array
        except (OSError, EOFError, ValueError) as error:
            raise ValueError(f"{name}: {error}") from None


@contextlib.contextmanager
def open_archive(path: str | os.PathLike[str]) -> Iterator[NpzArchive]:
    """Open an .npz archive of plain arrays; reading it may raise ARCHIVE_ERRORS."""
    with open_zip(path) as opened:
        yield NpzArchive(path, opened)


@contextlib.contextmanager
def open_zip(path: str | os.PathLike[str]) -> Iterator[zipfile.ZipFile]:
    """Open a zip file; an OSError names the path in one sentence."""
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as opened:
            yield opened
    except OverflowError:
        raise zipfile.BadZipFile("its directory is damaged") from None
    except OSError as error:
        # A damaged directory points before the start of the file.
        if error.errno == errno.EINVAL:
            raise zipfile.BadZipFile("its directory is damaged") from None
        raise type(error)(f"cannot read {path}: {error.strerror or error}.") from None


def open_member(
    path: str | os.PathLike[str], opened: zipfile.ZipFile, info: zipfile.ZipInfo
) -> IO[bytes]:
    """Open a member of a zip file whose declared size is possible and fits into memory.

    Reading it returns at most the declared bytes, `info.file_size`.
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
    """Read the array of a gzip-compressed .npy file, or its first rows."""
    size = MAX_INFLATION * os.path.getsize(path) + MEMBER_OVERHEAD
    with gzip.open(path, "rb") as file:
        return read_array(os.fspath(path), file, size, num_rows)


def read_npy(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read the array of a .npy file; a ValueError says what is wrong with it."""
    with open(path, "rb") as file:
        return read_array(os.fspath(path), file, os.path.getsize(path))


def read_array(
    source: str, file: ByteStream, max_bytes: float, num_rows: int | None = None
) -> NDArray[Any]:
    """Read the array of plain numbers or text in a .npy stream.

    Args:
        source: names the stream in messages.
        file: the stream.
        max_bytes: upper bound on the bytes that it holds.
        num_rows: reads only the first rows; None reads all.

    Raises:
        ValueError: the stream is damaged or holds other types.
    """
    import numpy as np

    shape, by_columns, dtype = _read_header(file)
    if num_rows is not None and shape:
        if by_columns:
            raise ValueError("it is stored column by column, and must be row by row")
        shape = (min(num_rows, shape[0]), *shape[1:])
    count = math.prod(shape)
    # Strings of length 0 take memory as Python objects.
    if max(count, count * dtype.itemsize) > max_bytes:
        raise ValueError(f"it declares the shape {shape}, which is more than it holds")
    raw = _read_exactly(source, file, count * dtype.itemsize)
    if not raw:
        return np.zeros(shape, dtype)
    flat = np.frombuffer(raw, dtype)
    _validate_values(flat)
    return flat.reshape(shape, order="F" if by_columns else "C")


def _read_header(file: ByteStream) -> tuple[tuple[int, ...], bool, Any]:
    """Read the shape, order and type that a .npy stream declares."""
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
    """Read a number of bytes; memory grows with the data that arrive."""
    require_memory(f"{source} needs", num_bytes, "is it from a trusted source?")
    raw = bytearray()
    while len(raw) < num_bytes:
        chunk = file.read(min(READ_CHUNK_BYTES, num_bytes - len(raw)))
        if not chunk:
            raise ValueError("it ends early")
        raw += chunk
    return raw


def _validate_values(values: NDArray[Any]) -> None:
    """Raise ValueError for booleans other than 0 and 1, and for text that is not Unicode."""
    import numpy as np

    if values.dtype.kind == "b" and (values.view(np.uint8) > 1).any():
        raise ValueError("it holds booleans other than 0 and 1")
    if values.dtype.kind == "U":
        codes = values.view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
        if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
            raise ValueError("it holds text that is not Unicode")


def validate_csr(
    data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], num_columns: int
) -> None:
    """Raise ValueError if the arrays of a CSR matrix index outside of it.

    SciPy's own check skips matrices whose last row pointer is not above 0.
    """
    pointers = indptr.astype("int64")
    if len(data) != len(indices) or not len(pointers) or pointers[0] != 0:
        raise ValueError("its sparse matrix has arrays of different lengths")
    if (pointers[1:] < pointers[:-1]).any() or pointers[-1] != len(data):
        raise ValueError("the row pointers of its sparse matrix do not increase to its length")
    if len(indices) and not (indices.min() >= 0 and indices.max() < num_columns):
        raise ValueError("the columns of its sparse matrix lie outside of it")


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object; raise ValueError for anything else."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("its metadata are nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("its metadata are no JSON object")
    return found


def write_record(
    path: str | os.PathLike[str], metadata: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Write an .npz archive of arrays and JSON metadata, atomically."""
    import numpy as np

    header = np.array(json.dumps(dict(metadata)))
    with write_atomically(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, allow_pickle=False, about=header, **arrays)


def read_record(
    path: str | os.PathLike[str], file_format: str, build: Callable[..., T], description: str
) -> T:
    """Read a file that `write_record` wrote and pass its contents to `build`.

    Args:
        path: of the file.
        file_format: the value of "format" in its metadata.
        build: called with the other metadata and the arrays, by name.
        description: what the file should hold and what to do, with `{}` for the cause.

    Raises:
        InputError: the file is damaged or of another format.
    """
    try:
        with open_archive(path) as opened:
            arrays = {name: opened[name] for name in opened.files}
        metadata = parse_object(str(arrays.pop("about")))
        if metadata.pop("format") != file_format:
            raise ValueError("its format is another one")
        return build(**metadata, **arrays)
    except (*ARCHIVE_ERRORS, *METADATA_ERRORS) as error:
        raise InputError(f"{path} is cut short or holds {description.format(error)}") from None


@contextlib.contextmanager
def name_input_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let every InputError that is raised while a file is read name that file."""
    try:
        yield
    except InputError as error:
        message = str(error)
        if os.fspath(path) in message:
            raise
        if error.caller == "MDP":
            raise InputError(
                error.problem, caller=str(path), argument=error.argument, remedy=error.remedy
            ) from None
        raise InputError(f"{path}: {message.removeprefix('MDP: ')}") from None


@contextlib.contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which replaces it at the end or is deleted on error.

    A symbolic link stays: its target is replaced or created. Raises OSError, naming `path`, if it
    is no regular file or cannot be written.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder, "note.txt")
    ...     with write_atomically(target) as temporary:
    ...         _ = temporary.write_text("whole")
    ...     print(target.read_text(), len(list(Path(folder).iterdir())))
    whole 1
    """
    target = resolve_target(path)
    part: Path | None = None
    try:
        with name_write_errors(path, target.parent):
            handle, name = tempfile.mkstemp(
                dir=target.parent, prefix=f".{target.name[:200]}.", suffix=".part"
            )
            os.close(handle)
            part = Path(name)
            yield part
            # mkstemp creates private files; the result gets the permissions of any new file.
            mask = os.umask(0)
            os.umask(mask)
            part.chmod(0o666 & ~mask)
        # The target may have changed since.
        with name_write_errors(path, target.parent):
            part.replace(resolve_target(path))
    except BaseException:
        if part is not None:
            part.unlink(missing_ok=True)
        raise


def resolve_target(path: str | os.PathLike[str]) -> Path:
    """Return the file that writing to `path` replaces, with symbolic links resolved.

    Raises:
        OSError: no regular file can be written there.
    """
    original = Path(path)
    try:
        target = Path(os.path.realpath(original)) if original.is_symlink() else original
        kind: int | None = original.stat().st_mode
    except FileNotFoundError:
        kind = None
    except (OSError, ValueError) as error:  # a loop of links, a name too long, a null byte
        reason = getattr(error, "strerror", None) or error
        raise _build_os_error(error, f"cannot write {original}: {reason}.") from None
    folder = target.parent
    if kind is not None and stat.S_ISDIR(kind):
        raise IsADirectoryError(f"cannot write {original}: it is a folder; name a file in it.")
    if kind is not None and not stat.S_ISREG(kind):
        raise OSError(
            f"cannot write {original}: it is {_describe_file_type(kind)}, and only regular files "
            "are replaced; name a file."
        )
    if not folder.is_dir():
        raise FileNotFoundError(f"cannot write {original}: make the folder {folder} first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"cannot write {original}: the folder {folder} is not writable.")
    return target


def require_writable(path: str | os.PathLike[str]) -> None:
    """Raise an OSError in one sentence if a file cannot be written at `path`."""
    resolve_target(path)


def compute_checksum(text: str, arrays: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a text and of named arrays: their types, shapes and bytes.

    >>> import numpy as np
    >>> compute_checksum("", {"a": np.zeros(2)}) == compute_checksum("", {"a": np.zeros((2, 1))})
    False
    """
    import numpy as np

    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


@contextlib.contextmanager
def name_write_errors(path: str | os.PathLike[str], folder: Path) -> Iterator[None]:
    """Re-raise system errors while `path` is written as one sentence that names it.

    Errors that name a file outside of `folder`, where the file is written, pass unchanged.
    """
    try:
        yield
    except Exception as error:
        found = _find_system_error(error)
        if found is None:
            raise
        number, reason, name = found
        elsewhere = (
            name is not None and folder.absolute() not in Path(os.fsdecode(name)).absolute().parents
        )
        if elsewhere or (number is None and isinstance(error, OSError)):
            raise
        raise _build_os_error(OSError(number, reason), f"cannot write {path}: {reason}.") from None


def _find_system_error(error: BaseException) -> tuple[int | None, str, Any] | None:
    """Return the number, reason and file of the system error behind an exception.

    An archive that cannot be written raises a second error when it is closed; libraries written in
    Rust give the number in their message.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return cause.errno, cause.strerror or str(cause), cause.filename
        number = re.search(r"\(os error (\d+)\)", str(cause))
        if number is not None:
            return int(number[1]), os.strerror(int(number[1])), None
        hidden = cause.__suppress_context__ or cause.__cause__ is not None
        cause = cause.__cause__ if hidden else cause.__context__
    return None


def _build_os_error(error: BaseException, message: str) -> OSError:
    """Return an OSError of the same type and number with another message."""
    os_error = (type(error) if isinstance(error, OSError) else OSError)(message)
    os_error.errno = getattr(error, "errno", None)
    return os_error


def _describe_file_type(mode: int) -> str:
    """Describe a file that is not regular."""
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return "a device"
    return "a pipe" if stat.S_ISFIFO(mode) else "no regular file"
