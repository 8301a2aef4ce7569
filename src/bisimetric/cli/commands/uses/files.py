"""The files that the uses read and write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from bisimetric.cli.arguments import Pictures, check_outputs, keep_inputs
from bisimetric.cli.learning import label_of
from bisimetric.errors import InputError
from bisimetric.files import written_beside

if TYPE_CHECKING:
    from numpy.typing import NDArray

Picture = Annotated[Path | None, arg(metavar="PNG", help_behavior_hint="")]


def check_files(
    output: Path | None,
    *pictures: Path | None,
    what: str,
    ending: str,
    inputs: tuple[str | Path, ...],
) -> None:
    """Refuses places that could not be written, before any long work starts.

    `what` is saved in the output, whose name ends in `ending`; the inputs are not written over.
    """
    check_outputs(output, *pictures)
    keep_inputs([output, *pictures], *inputs)
    for picture in pictures:
        Pictures(plot=picture).check()
    if output is not None and output.suffix != ending:
        raise InputError(f"cannot save {what} as {output}; the name must end in {ending}.")


def refuse_networks(*paths: Path, instead: str = "") -> None:
    """Refuses networks where tables are read, and says what else can be done with them."""
    for path in paths:
        if label_of(path) is not None:
            raise InputError(
                f"{path} is a network, not a table; `bisimetric learned ... --table d.npz` makes "
                f"the table of a world{instead}."
            )


def save_array(path: Path | None, numbers: NDArray[Any]) -> None:
    """Writes an array as a .npy file, where a place is given."""
    if path is not None:
        import numpy as np

        with written_beside(path) as beside, open(beside, "wb") as file:
            np.save(file, numbers)
