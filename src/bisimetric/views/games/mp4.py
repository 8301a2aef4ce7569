"""Videos as files: frames go to ffmpeg, and an mp4 appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from bisimetric._io import require_writable, write_atomically
from bisimetric._progress import show_progress
from bisimetric.errors import InputError, require_integer
from bisimetric.games.environments import import_game_package

CONSTANT_RATE_FACTOR = 27
"""The constant rate factor of x264: larger is smaller and worse; the lines of plots stay crisp."""

PRESET = "faster"
"""How hard x264 tries to make the file small."""

FrameSink = Callable[[NDArray[np.uint8]], None]


def write_mp4(
    path: str | os.PathLike[str],
    pictures: Iterable[NDArray[np.uint8]],
    num_pictures: int,
    *,
    fps: int,
) -> Path:
    """Writes so many pictures (height, width, 3), all of one size, as an mp4, with a bar."""
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(show_progress(num_pictures, f"video {Path(path).name}"))
        show: FrameSink | None = None
        for done, picture in enumerate(pictures, 1):
            if show is None:
                height, width, _ = picture.shape
                show = stack.enter_context(open_mp4(path, (width, height), fps=fps))
            show(picture)
            progress.set_position(done)
    return Path(path)


@contextlib.contextmanager
def open_mp4(
    path: str | os.PathLike[str],
    size: tuple[int, int],
    *,
    fps: int,
    quality: int = CONSTANT_RATE_FACTOR,
) -> Iterator[FrameSink]:
    """A function that takes frames (height, width, 3), in turn, for an mp4 of `size` (width,
    height), both even. The file is written beside its place and renamed at the end; after an error
    or an interrupt there is none.
    """
    require_writable_mp4(path, fps)
    with write_atomically(path) as beside, tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [find_ffmpeg(), *_encoder_options(size, fps, quality), str(beside)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=said,
            # An interrupt from the keyboard is for this process, which then ends that one.
            start_new_session=True,
        )
        pipe = cast(IO[bytes], process.stdin)
        try:
            yield lambda frame: _send_frame(pipe, frame)
            pipe.close()
            if process.wait() != 0:
                raise BrokenPipeError
        except BrokenPipeError:
            raise _encoding_error(path, process, said) from None
        finally:
            process.kill()
            process.wait()
            # What is left in it goes nowhere.
            with contextlib.suppress(OSError):
                pipe.close()


def require_writable_mp4(path: str | os.PathLike[str], fps: int) -> None:
    """Raises, before any work, where an mp4 could not be written at `path`."""
    require_integer("video", "fps", fps, 1)
    if Path(path).suffix.lower() != ".mp4":
        raise InputError(f"cannot save the video: {path} does not end in .mp4; name it so.")
    require_writable(path)
    find_ffmpeg()


def find_ffmpeg() -> str:
    """Where ffmpeg is, or one sentence that says how to install it."""
    package = import_game_package("imageio_ffmpeg")
    try:
        return str(package.get_ffmpeg_exe())
    except RuntimeError:
        raise InputError(
            "video: imageio-ffmpeg has no ffmpeg for this machine; install ffmpeg and set "
            "IMAGEIO_FFMPEG_EXE to it."
        ) from None


def _send_frame(pipe: IO[bytes], frame: NDArray[np.uint8]) -> None:
    pipe.write(np.ascontiguousarray(frame).data)


def _encoder_options(size: tuple[int, int], fps: int, quality: int) -> list[str]:
    width, height = size
    said = ["-y", "-v", "error"]
    taken = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps}"]
    # Halved colours in a common order are what browsers can show. A frame is a whole number of
    # screen pixels times 2, so that nothing of it is lost.
    coded = ["-vcodec", "libx264", "-pix_fmt", "yuv420p", "-crf", f"{quality}", "-preset", PRESET]
    # The index stands in front, so that a browser can start before it has all. No dates and no
    # versions: the same frames make the same file.
    stored = ["-f", "mp4", "-movflags", "+faststart", "-fflags", "+bitexact", "-map_metadata", "-1"]
    return [*said, *taken, "-i", "-", "-an", *coded, *stored]


def _encoding_error(
    path: str | os.PathLike[str], process: subprocess.Popen[bytes], log: IO[bytes]
) -> OSError:
    process.wait()
    log.seek(0)
    # Without the name and the address of the part of ffmpeg that says it.
    words = re.sub(r"^\[.*?\] ", "", log.read().decode(errors="replace")).partition("\n")[0]
    return OSError(f"cannot write {path}: ffmpeg says {words.strip() or 'nothing'!r}.")
