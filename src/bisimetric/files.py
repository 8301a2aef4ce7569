"""Files that appear whole or not at all, and archives that are not whole."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from bisimetric.errors import InputError

T = TypeVar("T")

UNREADABLE = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, KeyError, RuntimeError)
"""What reading a damaged .npz archive may raise, besides errors of the file itself."""


@contextlib.contextmanager
def archive(path: str | os.PathLike[str]) -> Iterator[Any]:
    """An .npz archive of plain arrays, opened to be read; see UNREADABLE for what may go wrong."""
    import numpy as np

    try:
        # Opened and looked into first: np.load leaves a file that is no archive open.
        with open(path, "rb") as file, zipfile.ZipFile(file):
            file.seek(0)
            with np.load(file, allow_pickle=False) as found:
                yield found
    except OSError as error:
        raise type(error)(f"cannot read {path}: {error.strerror or error}.") from None


def write_record(
    path: str | os.PathLike[str], about: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Writes an .npz archive of arrays, and what is said about them; whole or not at all."""
    import numpy as np

    words = np.array(json.dumps(dict(about)))
    with written_beside(path) as beside, open(beside, "wb") as file:
        np.savez(file, allow_pickle=False, about=words, **arrays)


def read_record(
    path: str | os.PathLike[str], wanted: str, make: Callable[..., T], otherwise: str
) -> T:
    """What `make` makes of all that `write_record` wrote, its `format` as wanted.

    `otherwise` says what the file does not hold, and what to do.
    """
    try:
        with archive(path) as opened:
            found = {name: opened[name] for name in opened.files}
        about = json.loads(str(found.pop("about")))
        if about.pop("format") != wanted:
            raise ValueError("its format is another one")
        return make(**about, **found)
    except (*UNREADABLE, TypeError) as error:
        words = otherwise.format(error)
        raise InputError(f"{path} is cut short or holds {words}") from None


@contextlib.contextmanager
def written_beside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path beside `path` to write to; it replaces `path` at the end, or vanishes on any error.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder, "note.txt")
    ...     with written_beside(target) as beside:
    ...         _ = beside.write_text("whole")
    ...     print(target.read_text(), len(list(Path(folder).iterdir())))
    whole 1
    """
    target = Path(path)
    check_writable(target)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    os.close(handle)
    beside = Path(name)
    try:
        yield beside
        # mkstemp makes files private; a result gets the permissions of any new file.
        mask = os.umask(0)
        os.umask(mask)
        beside.chmod(0o666 & ~mask)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raises an OSError in one sentence when a file could not be written at `path`."""
    target = Path(path)
    folder = target.parent
    if not folder.is_dir():
        raise FileNotFoundError(f"cannot write {target}: make the folder {folder} first.")
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {target}: it is a folder; name a file in it.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"cannot write {target}: the folder {folder} is not writable.")


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
