"""Signs of life during long work: a bar after two seconds, on a terminal only."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections.abc import Iterator

from tqdm import tqdm

DELAY_SECONDS = 2.0
"""Seconds of silence before anything is shown."""


class ProgressBar:
    """A progress bar that is set to a position, and may fall back."""

    def __init__(self, total: float, description: str) -> None:
        # No rate and no time left: the work behind these bars does not go on evenly.
        self._bar = tqdm(
            total=total,
            desc=description,
            bar_format="{desc}: {percentage:3.0f}% |{bar}| {elapsed}{postfix}",
            delay=DELAY_SECONDS,
            disable=None,
            leave=False,
            miniters=0,
            dynamic_ncols=True,
        )

    def set_position(self, position: float, note: str = "") -> None:
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(position - self._bar.n)

    def close(self) -> None:
        self._bar.close()


def convergence_fraction(residual: float, target: float, initial: float) -> float:
    """How far a residual has come on its way from `largest` to `small`, in digits: from 0 to 1.

    >>> digits(1e-3, 1e-6, 1.0), digits(1e-7, 1e-6, 1.0), digits(2.0, 1e-6, 1.0)
    (0.5, 1.0, 0.0)
    """
    if residual <= target:
        return 1.0
    if not residual < initial < math.inf:
        return 0.0
    # Logarithms one by one, since quotients of extreme numbers are 0 or infinite.
    most, least = math.log(initial), math.log(max(target, 2.0**-1074))
    return (most - math.log(residual)) / (most - least) if most > least else 0.0


@contextlib.contextmanager
def show_progress(total: float, description: str) -> Iterator[ProgressBar]:
    """A bar that appears when the work takes longer than `PATIENCE`, and leaves no trace."""
    shown = ProgressBar(total, description)
    try:
        yield shown
    finally:
        shown.close()


@contextlib.contextmanager
def announce_compilation(subject: str) -> Iterator[None]:
    """Says that kernels are being compiled when that takes longer than `PATIENCE`."""

    def print_notice() -> None:
        if sys.stderr.isatty():
            print(f"compiling {subject}: once on a machine, then cached", file=sys.stderr)

    timer = threading.Timer(DELAY_SECONDS, print_notice)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
