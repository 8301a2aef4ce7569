"""Ctrl-C during a long run: what is kept, and how to go on."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path


class ResumableInterrupt(KeyboardInterrupt):
    """An interrupt of a run that is kept in a file."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(checkpoint)
        self.checkpoint = checkpoint


@contextlib.contextmanager
def report_checkpoint(checkpoint: Path | None) -> Iterator[None]:
    """Makes an interrupt tell of the checkpoint, if the run inside has written it."""
    before = _identify_file(checkpoint)
    try:
        yield
    except KeyboardInterrupt:
        if checkpoint is None:
            raise KeyboardInterrupt("--checkpoint RUN.npz would keep such a run") from None
        if _identify_file(checkpoint) == before:
            raise
        raise ResumableInterrupt(checkpoint) from None


def describe_interrupt(interrupt: KeyboardInterrupt, program: str, arguments: Sequence[str]) -> str:
    """What to say after an interrupt of the command line `words`.

    >>> stop = Resumable(Path("run.npz"))
    >>> interrupted(stop, "bisimetric", ["sampled", "on-policy", "my world", "--resume", "old.npz"])
    "interrupted; the run is kept: go on with `bisimetric sampled on-policy 'my world' --resume
    run.npz`."
    """
    if isinstance(interrupt, ResumableInterrupt):
        old = [word == "--resume" for word in arguments]
        kept = [
            word
            for word, flag, value in zip(arguments, old, [False, *old], strict=False)
            if not (flag or value or word.startswith("--resume="))
        ]
        command = shlex.join([program, *kept, "--resume", str(interrupt.checkpoint)])
        return f"interrupted; the run is kept: go on with `{command}`."
    return (
        "; ".join(["interrupted", "no file was left half-written", *map(str, interrupt.args)]) + "."
    )


def _identify_file(path: Path | None) -> tuple[int, int] | None:
    """Tells one file from another that replaces it; None where there is none."""
    if path is None or not path.is_file():
        return None
    found = path.stat()
    return found.st_ino, found.st_mtime_ns
