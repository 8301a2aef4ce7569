"""Archives of plain arrays, read within the memory that there is.

What a member declares is compared with what the archive can hold, and with the free memory, before
anything is allocated; only plain numbers and text are read, and nothing is unpickled.

Files that appear whole or not at all, and JSON and records that may be damaged.
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


__all__ = [
    "ARCHIVE_ERRORS",
    "METADATA_ERRORS",
    "compute_checksum",
    "name_input_errors",
    "name_write_errors",
    "open_archive",
    "parse_object",
    "read_record",
    "require_writable",
    "resolve_target",
    "write_atomically",
    "write_record",
]

T = TypeVar("T")

METADATA_ERRORS = (
    KeyError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
)
"""What using metadata of the wrong type, shape or size may raise."""


def parse_object(text: str | bytes) -> dict[str, Any]:
    """The dictionary that a JSON text holds; a ValueError where it holds anything else.

    >>> parse_object('{"steps": 3}')
    {'steps': 3}
    """
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
    """Writes an .npz archive of arrays, and what is said about them; whole or not at all."""
    import numpy as np

    words = np.array(json.dumps(dict(metadata)))
    with write_atomically(path) as beside, open(beside, "wb") as file:
        np.savez(file, allow_pickle=False, about=words, **arrays)


def read_record(
    path: str | os.PathLike[str], file_format: str, build: Callable[..., T], description: str
) -> T:
    """What `make` makes of all that `write_record` wrote, its `format` as wanted.

    `otherwise` says what the file does not hold, and what to do.
    """
    try:
        with open_archive(path) as opened:
            found = {name: opened[name] for name in opened.files}
        about = parse_object(str(found.pop("about")))
        if about.pop("format") != file_format:
            raise ValueError("its format is another one")
        return build(**about, **found)
    except (*ARCHIVE_ERRORS, *METADATA_ERRORS) as error:
        words = description.format(error)
        raise InputError(f"{path} is cut short or holds {words}") from None


@contextlib.contextmanager
def name_input_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Lets every InputError that is raised while a file is read name that file."""
    try:
        yield
    except InputError as error:
        said = str(error)
        if os.fspath(path) in said:
            raise
        raise InputError(f"{path}: {said.removeprefix('MDP: ')}") from None


@contextlib.contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path beside `path` to write to; it replaces `path` at the end, or vanishes on any error.

    A symbolic link stays: the file that it leads to is replaced, or made where there is none.
    Anything but a regular file is refused, and what the system refuses names `path`.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder, "note.txt")
    ...     with written_beside(target) as beside:
    ...         _ = beside.write_text("whole")
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
            # mkstemp makes files private; a result gets the permissions of any new file.
            mask = os.umask(0)
            os.umask(mask)
            part.chmod(0o666 & ~mask)
        # Something else may have taken its place since.
        with name_write_errors(path, target.parent):
            part.replace(resolve_target(path))
    except BaseException:
        if part is not None:
            part.unlink(missing_ok=True)
        raise


def resolve_target(path: str | os.PathLike[str]) -> Path:
    """The file that writing to `path` replaces: where its symbolic links lead.

    Raises:
        OSError: in one sentence, where no regular file can be written there.
    """
    given = Path(path)
    try:
        target = Path(os.path.realpath(given)) if given.is_symlink() else given
        kind: int | None = given.stat().st_mode
    except FileNotFoundError:
        kind = None
    except (OSError, ValueError) as error:  # A loop of links, a name too long, a null byte.
        reason = getattr(error, "strerror", None) or error
        raise _build_os_error(error, f"cannot write {given}: {reason}.") from None
    folder = target.parent
    if kind is not None and stat.S_ISDIR(kind):
        raise IsADirectoryError(f"cannot write {given}: it is a folder; name a file in it.")
    if kind is not None and not stat.S_ISREG(kind):
        raise OSError(
            f"cannot write {given}: it is {_describe_file_type(kind)}, and only regular files are replaced; "
            "name a file."
        )
    if not folder.is_dir():
        raise FileNotFoundError(f"cannot write {given}: make the folder {folder} first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"cannot write {given}: the folder {folder} is not writable.")
    return target


def require_writable(path: str | os.PathLike[str]) -> None:
    """Raises an OSError in one sentence when a file could not be written at `path`."""
    resolve_target(path)


def compute_checksum(text: str, arrays: Mapping[str, Any]) -> str:
    """SHA-256 of a text and of named arrays: their types, shapes and bytes.

    >>> import numpy as np
    >>> compute_checksum("", {"a": np.zeros(2)}) == compute_checksum("", {"a": np.zeros((2, 1))})
    False
    """
    import numpy as np

    hashed = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        hashed.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        hashed.update(np.ascontiguousarray(arrays[name]).tobytes())
    return hashed.hexdigest()


@contextlib.contextmanager
def name_write_errors(path: str | os.PathLike[str], folder: Path) -> Iterator[None]:
    """Raises what the system refuses while `path` is written as one sentence that names it.

    Errors that name a file outside of `folder`, where the writing happens, stay as they are.
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
    """The error of the system behind an exception: its number, its reason, and the file it names.

    An archive that cannot be written fails again, otherwise, while it is closed; libraries
    written in Rust give the number in their text.
    """
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, OSError):
            return each.errno, each.strerror or str(each), each.filename
        number = re.search(r"\(os error (\d+)\)", str(each))
        if number is not None:
            return int(number[1]), os.strerror(int(number[1])), None
        hidden = each.__suppress_context__ or each.__cause__ is not None
        each = each.__cause__ if hidden else each.__context__
    return None


def _build_os_error(error: BaseException, message: str) -> OSError:
    """An OSError of the same kind and number, whose text is one sentence."""
    failure = (type(error) if isinstance(error, OSError) else OSError)(message)
    failure.errno = getattr(error, "errno", None)
    return failure


def _describe_file_type(mode: int) -> str:
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return "a device"
    return "a pipe" if stat.S_ISFIFO(mode) else "no regular file"
