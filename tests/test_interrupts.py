"""Ctrl-C while JAX compiles or computes: one sentence, exit code 130, and no crash at exit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bisimetric._progress import defer_interrupts


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), defer_interrupts():  # noqa: PT012 - the point of it
        os.kill(os.getpid(), signal.SIGINT)
        reached.append("inside")
        with defer_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("nested")
        reached.append("behind")
    assert reached == ["inside", "nested", "behind"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_is_not_hidden_by_an_error() -> None:
    with pytest.raises(KeyboardInterrupt) as found, defer_interrupts():  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        raise ValueError("inside")
    assert isinstance(found.value.__context__, ValueError)
    with pytest.raises(ValueError, match="alone"), defer_interrupts():
        raise ValueError("alone")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_process_that_ignores_interrupts_continues_to() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with defer_interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_touches_no_handlers() -> None:
    found = []

    def look() -> None:
        with defer_interrupts():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


INTERRUPTED = """
import os, signal, sys, threading
import jax

received = []

def listen(event, duration, **details):
    right = event.endswith("jaxpr_to_mlir_module_duration") and "{program}" in str(details)
    if right and not received:
        received.append(event)
        threading.Timer({delay}, os.kill, (os.getpid(), signal.SIGINT)).start()

jax.monitoring.register_event_duration_secs_listener(listen)
from bisimetric.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""Interrupts itself some seconds after a program was lowered, when the compiler starts."""

LEARN = ("learned", "bisimulation", "mirrored-rooms", "--updates", "100k", "--batch-size", "32")
SHARD = ("sharded", "bisimulation", "mirrored-rooms", "--discount", "0.9999")


def interrupt(
    folder: Path, program: str, delay: float, words: tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    script = INTERRUPTED.format(program=program, delay=delay)
    return subprocess.run(
        [sys.executable, "-c", script, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.3, 1.5, 6.0])
def test_interrupted_training_saves_a_checkpoint(tmp_path: Path, delay: float) -> None:
    keep = ("--hidden", "32", "--checkpoint", "run.safetensors")
    found = interrupt(tmp_path, "_compiled", delay, (*LEARN, *keep))
    assert found.returncode == 130, found.stderr
    (line,) = found.stderr.splitlines()
    assert line.startswith("bisimetric: interrupted")
    assert "--resume" in line
    assert [each.name for each in tmp_path.iterdir()] == ["run.safetensors"]


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.1])
def test_an_interrupted_sharded_compilation_exits_cleanly(tmp_path: Path, delay: float) -> None:
    found = interrupt(tmp_path, "", delay, SHARD)
    assert found.returncode == 130, found.stderr
    (line,) = found.stderr.splitlines()
    assert line.startswith("bisimetric: interrupted")
