"""Several processes on this machine that run one program together."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from bisimetric.errors import InputError, require_integer
from bisimetric.exact.sharded.cluster import COORDINATOR_ADDRESS, NUM_PROCESSES, PROCESS_INDEX

POLL_SECONDS = 0.1
"""Seconds between two looks at the processes."""
GRACE_SECONDS = 8.0
"""Seconds in which the others may end by themselves once one has failed."""


def launch(command: Sequence[str], num_processes: int) -> int:
    """Runs a command in so many processes, which find each other, and returns its exit code.

    What the first one prints is seen. When one fails the others are stopped; an interrupt is
    passed on to all.
    """
    count = require_integer("spread", "-n", num_processes, 1)
    if not command:
        raise InputError(
            "spread: no command was given; write it behind --, as in -- python run.py."
        )
    words = _resolve_command(list(command))
    with tempfile.TemporaryDirectory() as folder, _raise_on_terminate():
        logs = [Path(folder, f"{index}.txt") for index in range(count)]
        running = _start_processes(words, count, logs)
        try:
            return _wait_for_exit(running, logs)
        except KeyboardInterrupt:
            for each in running:
                _send_signal(each, signal.SIGINT)
            _wait_gracefully(running)
            # The first process has said what was interrupted, and how it goes on.
            return 130
        finally:
            _stop_processes(running)


def _resolve_command(command: list[str]) -> list[str]:
    """`bisimetric` and `python` are those that run here."""
    if command[0] == "bisimetric":
        return [sys.executable, "-m", "bisimetric", *command[1:]]
    return [sys.executable, *command[1:]] if command[0] == "python" else command


def _start_processes(
    command: list[str], num_processes: int, logs: list[Path]
) -> list[subprocess.Popen[bytes]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    running: list[subprocess.Popen[bytes]] = []
    for index in range(num_processes):
        told = {
            COORDINATOR_ADDRESS: address,
            # Nobody else on the network is to join.
            "JAX_COORDINATOR_BIND_ADDRESS": address,
            NUM_PROCESSES: str(num_processes),
            PROCESS_INDEX: str(index),
        }
        with open(logs[index], "wb") as log:
            quiet: IO[bytes] | None = log if index else None
            try:
                running.append(
                    # In groups of their own: Ctrl-C reaches them once, through this process.
                    subprocess.Popen(
                        command,
                        env={**os.environ, **told},
                        stdout=quiet,
                        stderr=quiet,
                        stdin=subprocess.DEVNULL,
                        process_group=0,
                    )
                )
            except OSError as error:
                _stop_processes(running)
                raise InputError(
                    f"spread: cannot start {command[0]!r} ({error.strerror}); give a program."
                ) from None
    return running


def _wait_for_exit(running: list[subprocess.Popen[bytes]], logs: list[Path]) -> int:
    """Waits for all, or for the first that fails; the exit code of the whole."""
    while True:
        codes = [each.poll() for each in running]
        failed = [index for index, code in enumerate(codes) if code not in (None, 0)]
        if failed:
            break
        if all(code == 0 for code in codes):
            return 0
        time.sleep(POLL_SECONDS)
    # The one that was killed, if those that lost it have already failed too.
    first = min(failed, key=lambda index: (codes[index] or 0) > 0)
    code = codes[first] or 0
    _wait_gracefully(running)
    killed = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed with {code}"
    said = _last_line(logs[first])
    # The first process has spoken for itself, and says the same where all fail alike.
    if code < 0 or (first and running[0].returncode in (0, None)):
        more = f": {said}" if said else ""
        print(
            f"bisimetric: spread: process {first} of {len(running)} {killed}, and the others were "
            f"stopped{more}",
            file=sys.stderr,
        )
    return 128 - code if code < 0 else code


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _wait_gracefully(running: list[subprocess.Popen[bytes]]) -> None:
    end = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < end and any(each.poll() is None for each in running):
        time.sleep(POLL_SECONDS)


def _stop_processes(running: list[subprocess.Popen[bytes]]) -> None:
    for end in (signal.SIGTERM, signal.SIGKILL):
        for each in running:
            _send_signal(each, end)
        for each in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.wait(2.0)


def _send_signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(number)


@contextlib.contextmanager
def _raise_on_terminate() -> Iterator[None]:
    """A polite end of this process is one of all of them."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
