"""Show progress bars and compile notices, and defer interrupts while XLA compiles."""

from __future__ import annotations

import contextlib
import functools
import math
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

DELAY_SECONDS = 2.0
"""Seconds before anything is shown."""


class ProgressBar:
    """A progress bar that is set to a position, which may decrease.

    It is created at the first position after `DELAY_SECONDS`, so that quick work neither imports
    tqdm nor leaves a widget in a notebook.
    """

    def __init__(self, total: float, description: str) -> None:
        self._total, self._description = total, description
        self._start_time = time.time()
        self._bar: Any = None

    def set_position(self, position: float, note: str = "") -> None:
        """Move the bar and show a note."""
        if self._bar is None:
            if time.time() - self._start_time < DELAY_SECONDS:
                return
            self._bar = _create_bar(self._total, self._description, self._start_time)
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(position - self._bar.n)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            # In a notebook a bar that is closed before its end stays, in red.
            self._bar.n = self._bar.total
            self._bar.close()


def _create_bar(total: float, description: str, start_time: float) -> Any:
    """Create a widget in a notebook with ipywidgets, a line of text otherwise.

    The line is shown on terminals and in notebooks only.
    """
    from tqdm import TqdmWarning

    with warnings.catch_warnings():
        # A notebook without ipywidgets shows the line of text.
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm
    notebook = is_notebook()
    # No rate and no remaining time: iterations take different times.
    bar = tqdm(
        total=total,
        desc=description,
        bar_format="{desc}: {percentage:3.0f}% |{bar}| {elapsed}{postfix}",
        file=sys.stdout if notebook else sys.stderr,
        disable=False if notebook else None,
        leave=False,
        miniters=0,
        dynamic_ncols=True,
    )
    bar.start_t = start_time
    return bar


def is_notebook() -> bool:
    """Whether the code runs in the kernel of a notebook, rather than in a terminal.

    >>> is_notebook()
    False
    """
    # A kernel has imported IPython; nothing else needs it.
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def convergence_fraction(residual: float, target: float, initial: float) -> float:
    """Return the fraction of digits that a residual has gained from `initial` to `target`.

    >>> [convergence_fraction(residual, 1e-6, 1.0) for residual in (1e-3, 1e-7, 2.0)]
    [0.5, 1.0, 0.0]
    """
    if residual <= target:
        return 1.0
    if not residual < initial < math.inf:
        return 0.0
    # The difference of logarithms, since quotients of extreme numbers are 0 or infinite.
    high, low = math.log(initial), math.log(max(target, 2.0**-1074))
    return (high - math.log(residual)) / (high - low) if high > low else 0.0


@contextlib.contextmanager
def show_progress(total: float, description: str) -> Iterator[ProgressBar]:
    """Show a progress bar once the work takes longer than `DELAY_SECONDS`.

    It is shown on a terminal or in a notebook.
    """
    bar = ProgressBar(total, description)
    try:
        yield bar
    finally:
        bar.close()


@contextlib.contextmanager
def announce_compilation(subject: str) -> Iterator[None]:
    """Print a notice on a terminal once a compilation takes longer than `DELAY_SECONDS`."""

    def print_notice() -> None:
        if sys.stderr.isatty():
            print(f"compiling {subject}: once per machine, then cached", file=sys.stderr)

    timer = threading.Timer(DELAY_SECONDS, print_notice)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def defer_interrupts() -> Iterator[None]:
    """Delay a SIGINT that arrives inside the block until the block has ended.

    Only the main thread receives signals; in other threads this does nothing, and neither does it
    where the process ignores SIGINT or is killed by it.
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
    """Compile with `jax.jit`, deferring interrupts while it compiles.

    XLA compiles in its own thread, which JAX leaves running when an interrupt ends the wait for it.
    If the interpreter then exits, the compiler reads freed devices: a segmentation fault. Only
    tracing, compiling and starting the computation delay an interrupt; waiting for its result does
    not.

    Args:
        function: the function to compile.
        options: arguments of `jax.jit`.

    Returns:
        The compiled function; its `lower` is that of `jax.jit`.

    >>> jit(lambda x: x + 1)(1).item()
    2
    """
    import jax

    compiled = jax.jit(function, **options)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with defer_interrupts():
            result: T = compiled(*args, **kwargs)
        return result

    call.lower = compiled.lower  # type: ignore[attr-defined]
    return call
