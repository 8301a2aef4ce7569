"""Signs of life during long work: a bar after two seconds, on a terminal only.

Ctrl-C while XLA compiles: the interrupt waits until the compiler has finished.
"""

from __future__ import annotations

import contextlib
import functools
import math
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, ParamSpec, TypeVar

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


P = ParamSpec("P")
T = TypeVar("T")


@contextlib.contextmanager
def defer_interrupts() -> Iterator[None]:
    """Delay a SIGINT that arrives inside the block until the block has ended.

    Only the main thread receives signals; elsewhere this does nothing. A SIGINT that the process
    ignores, or that kills it at once, is left alone.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    received: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: received.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if received:
            handler(*received[-1])


def jit(function: Callable[P, T], **options: Any) -> Callable[P, T]:
    """`jax.jit`, whose compilation an interrupt does not abandon.

    XLA compiles in a thread of its own, and JAX leaves it running when an interrupt ends the wait
    for it. If the interpreter then exits, the compiler reads devices that have been freed, which
    is a segmentation fault. Only tracing, compiling and starting the computation delay an
    interrupt; waiting for its result does not. `lower` is that of `jax.jit`.

    Args:
        function: what to compile.
        options: those of `jax.jit`.

    >>> jit(lambda x: x + 1)(1).item()
    2
    """
    import jax

    compiled = jax.jit(function, **options)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with defer_interrupts():
            found: T = compiled(*args, **kwargs)
        return found

    call.lower = compiled.lower  # type: ignore[attr-defined]
    return call
