"""Figures as files."""

from __future__ import annotations

import os
from pathlib import Path

from matplotlib.figure import Figure

from bisimetric.errors import InputError
from bisimetric.files import write_atomically

FORMATS = ("png", "svg", "pdf")
DOTS_PER_INCH = 150


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Writes a figure as png, svg or pdf, by the ending of `path`, whole or not at all."""
    target = Path(path)
    ending = target.suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        found = f"ends in {target.suffix!r}" if ending else "has no ending"
        raise InputError(f"cannot save the figure: {target} {found}; use .png, .svg or .pdf.")
    with write_atomically(target) as beside:
        figure.savefig(beside, format=ending, dpi=DOTS_PER_INCH, bbox_inches="tight")
