"""Machine description and generated tables of the benchmark pages."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

import numba
import numpy as np
import psutil

REPORTS = Path(__file__).parents[1] / "docs" / "reports"
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"


def describe_machine() -> str:
    """Return cores, memory and versions, as one line."""
    memory = psutil.virtual_memory().total / 2**30
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return (
        f"Machine: {os.cpu_count()} cores ({model}), {memory:.0f} GiB, {platform.system()}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}."
    )


def format_seconds(seconds: float) -> str:
    """Return a time with two digits: 0.22 ms, 34 ms, 1.8 s, 103 s."""
    value, unit = (seconds * 1e3, "ms") if seconds < 0.1 else (seconds, "s")
    return f"{value:,.0f} {unit}" if value >= 10 else f"{value:.2g} {unit}"


def format_row(cells: Sequence[str]) -> str:
    """Return one line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def read_results(page: Path) -> list[str]:
    """Return the generated lines of a page."""
    return page.read_text().partition(BEGIN)[2].partition(END)[0].splitlines()


def write_results(page: Path, lines: Sequence[str]) -> None:
    """Replace the generated lines of a page."""
    head, begin, rest = page.read_text().partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not end:
        raise RuntimeError(f"{page}: has no lines {BEGIN.strip()} and {END.strip()}")
    page.write_text(head + begin + "\n".join(lines) + "\n" + end + tail)
