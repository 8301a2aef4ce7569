"""Files that appear whole or not at all, and JSON and records that may be damaged."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from bisimetric.archives import ARCHIVE_ERRORS, open_archive
from bisimetric.errors import InputError

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
