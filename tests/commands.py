"""Run command lines, in this process or another one."""

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


def start_command(*words: str, folder: Path) -> subprocess.Popen[str]:
    """Start a command in another process."""
    return subprocess.Popen(
        [sys.executable, "-m", "bisimetric", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def assert_input_error(result: Result, *complaints: str) -> None:
    """Assert exit code 2, nothing on stdout, and one line on stderr with all complaints."""
    assert (result.code, result.out) == (2, "")
    assert re.fullmatch(r"bisimetric: .+\n", result.err)
    for complaint in complaints:
        assert complaint in result.err
