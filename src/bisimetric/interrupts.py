"""Ctrl-C while XLA compiles: the interrupt waits until the compiler has finished."""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, ParamSpec, TypeVar

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
