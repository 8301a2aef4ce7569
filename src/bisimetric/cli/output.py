"""How commands end: what was found is saved, said and drawn, in this order.

The files that the uses read and write.

Ctrl-C during a long run: what is kept, and how to go on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from bisimetric._io import write_atomically
from bisimetric.cli.learned_options import read_label
from bisimetric.cli.options import (
    FigureOptions,
    WorldOptions,
    program_name,
    reject_overwriting,
    validate_outputs,
)
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.distance import Distance
    from bisimetric.exact._query import QueryResult
    from bisimetric.mdp import MDP


def write_result(
    distance: Distance,
    source: WorldOptions,
    output: Path | None,
    figures: FigureOptions,
    *,
    describe: Callable[[Distance], Iterable[str]] | None = None,
    suggestions: Iterable[str] = (),
    **details: str,
) -> None:
    """The end of a command that makes a table.

    `lines` tells of the table, by default as `report.table_lines` does; `after` is said last;
    `about` is kept with the table.
    """
    from bisimetric.cli import report

    distance = add_metadata(distance, source, **details)
    if output is not None:
        distance.save(output)
    report.print_lines(
        (describe or report.describe_distance)(distance), report.describe_saved([output])
    )
    figures.draw(distance)
    following = report.suggest_commands(distance, output, program_name())
    report.print_lines(report.describe_saved(figures.paths), following, suggestions)


def add_metadata(distance: Distance, source: WorldOptions, **details: str) -> Distance:
    """A table that knows what it is of."""
    return dataclasses.replace(
        distance, metadata={**distance.metadata, "world": source.world, **details}
    )


def print_query(mdp: MDP, query: QueryResult, source: WorldOptions, **details: str) -> None:
    """The end of a command that answers for some pairs only."""
    from bisimetric.cli import report

    report.print_lines(report.describe_query(mdp, query, source.world, **details))


def write_relation(
    mdp: MDP, labels: NDArray[Any], source: WorldOptions, output: Path | None, **details: str
) -> None:
    """The end of a command that finds classes."""
    import numpy as np

    from bisimetric.cli import report

    if output is not None:
        with write_atomically(output) as beside, open(beside, "wb") as file:
            np.save(file, labels)
    report.print_lines(
        report.describe_classes(mdp, labels, source.world, **details),
        report.describe_saved([output]),
    )


FigurePathArg = Annotated[Path | None, arg(metavar="PNG", help_behavior_hint="")]


def validate_files(
    output: Path | None,
    *figures: Path | None,
    content: str,
    suffix: str,
    inputs: tuple[str | Path, ...],
) -> None:
    """Refuses places that could not be written, before any long work starts.

    `what` is saved in the output, whose name ends in `ending`; the inputs are not written over.
    """
    validate_outputs(output, *figures)
    reject_overwriting([output, *figures], *inputs)
    for picture in figures:
        FigureOptions(plot_map=picture).validate()
    if output is not None and output.suffix != suffix:
        raise InputError(f"cannot save {content} as {output}; the name must end in {suffix}.")


def reject_networks(*paths: Path, alternative: str = "") -> None:
    """Refuses networks where tables are read, and says what else can be done with them."""
    for path in paths:
        if read_label(path) is not None:
            raise InputError(
                f"{path} is a network, not a table; `bisimetric learned ... --table d.npz` makes "
                f"the table of a world{alternative}."
            )


def save_array(path: Path | None, values: NDArray[Any]) -> None:
    """Writes an array as a .npy file, where a place is given."""
    if path is not None:
        import numpy as np

        with write_atomically(path) as beside, open(beside, "wb") as file:
            np.save(file, values)


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
