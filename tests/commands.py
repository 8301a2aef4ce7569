"""Running command lines, in this process or in one of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

FIGURE_FLAGS = (
    "--plot-map",
    "m.png",
    "--plot-heatmap",
    "h.svg",
    "--plot-all-maps",
    "a.pdf",
    "--from",
    "4,3",
)
"""All figures of a distance on a grid, each in another format."""


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


def started(*words: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bisimetric", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def refused(result: Result, *complaints: str) -> None:
    """One line on stderr that says all this, exit code 2, nothing on stdout."""
    assert (result.code, result.out) == (2, "")
    assert re.fullmatch(r"bisimetric: .+\n", result.err)
    for complaint in complaints:
        assert complaint in result.err
