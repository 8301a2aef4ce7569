"""Launch several processes of one program on this host."""

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
"""Seconds between two checks of the processes."""
GRACE_SECONDS = 8.0
"""Seconds that the others have to exit by themselves once one has failed."""


def launch(command: Sequence[str], num_processes: int) -> int:
    """Run a command in several connected processes, and return its exit code.

    The output of the first process is shown. When one fails the others are stopped; an interrupt is
    forwarded to all.
    """
    count = require_integer("launch", "-n", num_processes, 1)
    if not command:
        raise InputError("launch: there is no command; write it after --, as in -- python run.py.")
    resolved = _resolve_command(list(command))
    with tempfile.TemporaryDirectory() as folder, _raise_on_terminate():
        logs = [Path(folder, f"{rank}.txt") for rank in range(count)]
        running = _start_processes(resolved, count, logs)
        try:
            return _wait_for_exit(running, logs)
        except KeyboardInterrupt:
            for process in running:
                _send_signal(process, signal.SIGINT)
            _wait_gracefully(running)
            # The first process has reported the interrupt and how to resume.
            return 130
        finally:
            _stop_processes(running)


def _resolve_command(command: list[str]) -> list[str]:
    """Replace `bisimetric` and `python` by those of this process."""
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
    for rank in range(num_processes):
        variables = {
            COORDINATOR_ADDRESS: address,
            # Only processes of this host may join.
            "JAX_COORDINATOR_BIND_ADDRESS": address,
            NUM_PROCESSES: str(num_processes),
            PROCESS_INDEX: str(rank),
        }
        with open(logs[rank], "wb") as log:
            output: IO[bytes] | None = log if rank else None
            try:
                running.append(
                    # In separate process groups: Ctrl-C reaches them once, through this process.
                    subprocess.Popen(
                        command,
                        env={**os.environ, **variables},
                        stdout=output,
                        stderr=output,
                        stdin=subprocess.DEVNULL,
                        process_group=0,
                    )
                )
            except OSError as error:
                _stop_processes(running)
                raise InputError(
                    f"launch: cannot start {command[0]!r} ({error.strerror}); use a program."
                ) from None
    return running


def _wait_for_exit(running: list[subprocess.Popen[bytes]], logs: list[Path]) -> int:
    """Wait for all processes, or for the first that fails; return the exit code of the command."""
    while True:
        codes = [process.poll() for process in running]
        failed = [rank for rank, code in enumerate(codes) if code not in (None, 0)]
        if failed:
            break
        if all(code == 0 for code in codes):
            return 0
        time.sleep(POLL_SECONDS)
    # Report the killed one, if those that lost it have already failed too.
    first = min(failed, key=lambda rank: (codes[rank] or 0) > 0)
    code = codes[first] or 0
    _wait_gracefully(running)
    outcome = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed with {code}"
    message = _read_last_line(logs[first])
    # The first process prints its own error, which is the same if all fail alike.
    if code < 0 or (first and running[0].returncode in (0, None)):
        more = f": {message}" if message else ""
        print(
            f"bisimetric: launch: process {first} of {len(running)} {outcome}, and the others were "
            f"stopped{more}",
            file=sys.stderr,
        )
    return 128 - code if code < 0 else code


def _read_last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _wait_gracefully(running: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline and any(process.poll() is None for process in running):
        time.sleep(POLL_SECONDS)


def _stop_processes(running: list[subprocess.Popen[bytes]]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in running:
            _send_signal(process, number)
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2.0)


def _send_signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(number)


@contextlib.contextmanager
def _raise_on_terminate() -> Iterator[None]:
    """Treat SIGTERM as an interrupt, so that all processes are stopped."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
