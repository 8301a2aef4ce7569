"""What commands do with results: save, report, draw; and the message after an interrupt."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bisimetric._io import write_atomically
from bisimetric.cli.options import FigureOptions, WorldOptions, program_name
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.cli.report import Fact
    from bisimetric.distance import Distance
    from bisimetric.exact._query import QueryResult
    from bisimetric.learned import LearnedDistance
    from bisimetric.mdp import MDP

LEARNED_FORMATS = ("bisimetric learned distance", "bisimetric learning run")
"""How the format names in files written by `learned` begin."""

MAX_HEADER_BYTES = 100_000_000
"""The largest header that a .safetensors file may have."""


def write_result(
    distance: Distance,
    source: WorldOptions,
    output: Path | None,
    figures: FigureOptions,
    *,
    describe: Callable[[Distance], Iterable[Fact | str]] | None = None,
    suggestions: Iterable[Fact] = (),
    **details: str,
) -> None:
    """Save a distance matrix, report it, draw its figures and suggest further commands.

    Args:
        distance: the result.
        source: the options that named the MDP or the data.
        output: where the matrix is saved; None for nowhere.
        figures: the figures to draw.
        describe: yields the lines of the report; default: `report.describe_distance`.
        suggestions: lines that come last.
        details: metadata to be saved with the matrix.
    """
    from bisimetric.cli import report

    distance = add_metadata(distance, source, **details)
    if output is not None:
        distance.save(output)
    lines = (describe or report.describe_distance)(distance)
    report.emit(lines, report.describe_saved([output]))
    figures.draw(distance)
    commands = report.suggest_commands(distance, output, program_name())
    report.emit(report.describe_saved(figures.paths), commands, suggestions)


def add_metadata(distance: Distance, source: WorldOptions, **details: str) -> Distance:
    """Return the distance with the name of its source in its metadata."""
    metadata = {**distance.metadata, "world": source.world, **details}
    return dataclasses.replace(distance, metadata=metadata)


def print_query(mdp: MDP, query: QueryResult, source: WorldOptions, **details: str) -> None:
    """Report the distances of some pairs of states."""
    from bisimetric.cli import report

    report.emit(report.describe_query(mdp, query, source.world, details))


def write_relation(
    mdp: MDP, labels: NDArray[Any], source: WorldOptions, output: Path | None, **details: str
) -> None:
    """Save and report the classes of a relation."""
    from bisimetric.cli import report

    save_array(output, labels)
    classes = report.describe_classes(mdp, labels, source.world, details)
    report.emit(classes, report.describe_saved([output]))


def save_array(path: Path | None, values: NDArray[Any]) -> None:
    """Write an array to a .npy file, unless the path is None."""
    if path is not None:
        import numpy as np

        with write_atomically(path) as temporary, open(temporary, "wb") as file:
            np.save(file, values)


def read_label(path: Path) -> dict[str, Any] | None:
    """Return the metadata of a file written by `learned`; None for any other file.

    Only the header is read.
    """
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size)) if size <= MAX_HEADER_BYTES else {}
        metadata = json.loads(header["__metadata__"]["about"])
        return metadata if str(metadata["format"]).startswith(LEARNED_FORMATS) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def read_any_distance(path: Path) -> Distance | LearnedDistance:
    """Load a distance matrix, or a distance that a network learned."""
    if read_label(path) is not None:
        from bisimetric.learned import LearnedDistance

        return LearnedDistance.load(path)
    from bisimetric.distance import Distance

    return Distance.load(path)


def reject_networks(*paths: Path, alternative: str = "") -> None:
    """Reject networks where distance matrices are read; `alternative` is what else to do."""
    for path in paths:
        if read_label(path) is not None:
            raise InputError(
                f"{path} is a network, not a distance matrix; `bisimetric learned ... --matrix "
                f"d.npz` saves the matrix of a world{alternative}."
            )


class ResumableInterrupt(KeyboardInterrupt):
    """An interrupt of a run that has written a checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(checkpoint)
        self.checkpoint = checkpoint


@contextlib.contextmanager
def report_checkpoint(
    checkpoint: Path | None, example: str = "RUN.npz", written: Path | None = None
) -> Iterator[None]:
    """Let an interrupt name the checkpoint, if the run inside has written it.

    Args:
        checkpoint: the file or folder; None where the run writes none.
        example: what to suggest as a checkpoint in that case.
        written: the file that each checkpoint replaces; default: the checkpoint itself.
    """
    written = written or checkpoint
    before = _identify_file(written)
    try:
        yield
    except KeyboardInterrupt:
        if checkpoint is None:
            raise KeyboardInterrupt(f"--checkpoint {example} would save such a run") from None
        if _identify_file(written) == before:
            raise
        raise ResumableInterrupt(checkpoint) from None


def describe_interrupt(interrupt: KeyboardInterrupt, program: str, arguments: Sequence[str]) -> str:
    """Return the message after an interrupt of the command line `arguments`.

    >>> stop = ResumableInterrupt(Path("run.npz"))
    >>> describe_interrupt(stop, "bisimetric", ["sampled", "lax", "a b", "--resume", "old.npz"])
    "interrupted; resume with `bisimetric sampled lax 'a b' --resume run.npz`."
    """
    if isinstance(interrupt, ResumableInterrupt):
        is_flag = [word == "--resume" for word in arguments]
        others = [
            word
            for word, flag, value in zip(arguments, is_flag, [False, *is_flag], strict=False)
            if not (flag or value or word.startswith("--resume="))
        ]
        command = shlex.join([program, *others, "--resume", str(interrupt.checkpoint)])
        return f"interrupted; resume with `{command}`."
    return "; ".join(["interrupted", "no file is incomplete", *map(str, interrupt.args)]) + "."


def _identify_file(path: Path | None) -> tuple[int, int] | None:
    """Return what distinguishes a file from one that replaces it; None where there is none."""
    if path is None or not path.is_file():
        return None
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


@contextlib.contextmanager
def translate_source(world: str, **commands: Sequence[str]) -> Iterator[None]:
    """Let errors about the argument `source` name the world, and a command as their remedy.

    Args:
        world: the name that was typed.
        commands: by the package that the remedy in Python names, the command that does the same.

    >>> try:
    ...     with translate_source("my world", exact=["bisimetric", "exact", "lax", "my world"]):
    ...         raise InputError("is stochastic", argument="source", remedy="use exact.lax")
    ... except InputError as error:
    ...     print(error)
    my world is stochastic; use `bisimetric exact lax 'my world'`.
    """
    try:
        yield
    except InputError as error:
        remedy = error.remedy or ""
        named = [name for name in commands if f"use {name}." in remedy]
        if named:
            before = remedy.partition(f"use {named[0]}.")[0]
            remedy = f"{before}use `{shlex.join(commands[named[0]])}`"
        if error.argument == "source":
            raise InputError(error.describe(None, world, remedy)) from None
        if named:
            raise InputError(
                error.problem, caller=error.caller, argument=error.argument, remedy=remedy
            ) from None
        raise
