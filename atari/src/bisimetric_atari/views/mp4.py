"""Write MP4 videos: frames are piped to ffmpeg, and the file is replaced atomically.

`imageio_ffmpeg` provides the ffmpeg executable. Its own `write_frames` is not used: it ignores
ffmpeg's exit status, so that a full disk would leave a truncated video unnoticed, and it forks
with a `preexec_fn`, which is unsafe beside the threads of JAX.
"""

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
from bisimetric_atari.games.environments import import_game_package

CONSTANT_RATE_FACTOR = 27
"""Of x264: a larger factor means a smaller file of lower quality; at 27 plots stay sharp."""

PRESET = "faster"
"""The compression effort of x264."""

FrameSink = Callable[[NDArray[np.uint8]], None]


def write_mp4(
    path: str | os.PathLike[str],
    pictures: Iterable[NDArray[np.uint8]],
    num_pictures: int,
    *,
    fps: int,
) -> Path:
    """Write pictures (height, width, 3), all of one size, as an MP4, with a progress bar."""
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
    """Yield a function that takes frames (height, width, 3) for an MP4 of `size` (width, height).

    Width and height are even. The file is renamed into place at the end; after an error or an
    interrupt it is removed.
    """
    require_writable_mp4(path, fps)
    with write_atomically(path) as temporary, tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [find_ffmpeg(), *_encoder_options(size, fps, quality), str(temporary)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            # Ctrl-C interrupts this process, which then kills ffmpeg.
            start_new_session=True,
        )
        pipe = cast(IO[bytes], process.stdin)
        try:
            yield lambda frame: _send_frame(pipe, frame)
            pipe.close()
            if process.wait() != 0:
                raise BrokenPipeError
        except BrokenPipeError:
            raise _encoding_error(path, process, log) from None
        finally:
            process.kill()
            process.wait()
            # Ignore frames that were not sent.
            with contextlib.suppress(OSError):
                pipe.close()


def require_writable_mp4(path: str | os.PathLike[str], fps: int) -> None:
    """Raise, before any work, if an MP4 could not be written at `path`."""
    require_integer("video", "fps", fps, 1)
    if Path(path).suffix.lower() != ".mp4":
        raise InputError(f"cannot save the video: {path} does not end in .mp4; use that extension.")
    require_writable(path)
    find_ffmpeg()


def find_ffmpeg() -> str:
    """Return the path of ffmpeg, or raise an error that says how to install it."""
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
    general = ["-y", "-v", "error"]
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps}"]
    # Browsers need yuv420p, which halves the resolution of colours. Screen pixels are drawn 2x2,
    # so that nothing is lost.
    codec = [
        "-vcodec",
        "libx264",
        "-pix_fmt",
        "yuv420p",
        "-crf",
        f"{quality}",
        "-preset",
        PRESET,
    ]
    # The index comes first, so that playback can start early. Without dates and versions, equal
    # frames give equal files.
    output = [
        "-f",
        "mp4",
        "-movflags",
        "+faststart",
        "-fflags",
        "+bitexact",
        "-map_metadata",
        "-1",
    ]
    return [*general, *source, "-i", "-", "-an", *codec, *output]


def _encoding_error(
    path: str | os.PathLike[str], process: subprocess.Popen[bytes], log: IO[bytes]
) -> OSError:
    process.wait()
    log.seek(0)
    # Drop the name and address of the ffmpeg component.
    message = re.sub(r"^\[.*?\] ", "", log.read().decode(errors="replace")).partition("\n")[0]
    return OSError(f"cannot write {path}: ffmpeg says {message.strip() or 'nothing'!r}.")
