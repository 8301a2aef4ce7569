"""The files that the uses read and write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from bisimetric.cli.arguments import FigureOptions, reject_overwriting, validate_outputs
from bisimetric.cli.learning import read_label
from bisimetric.errors import InputError
from bisimetric.files import write_atomically

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
