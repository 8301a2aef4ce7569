"""One thread per worker, so that parallel test runs do not compete for cores."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from tests.commands import Result, Run
from tests.property_testing import scaled

settings.register_profile("scaled", max_examples=scaled(100))
settings.load_profile("scaled")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Subprocesses import the test helpers too.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")])
)


# A process that a shell started in the background ignores interrupts, and so do its children: the
# tests of interrupts would hang.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process, in an empty folder."""
    from bisimetric.cli import main

    monkeypatch.chdir(tmp_path)

    def command(*words: str) -> Result:
        capsys.readouterr()
        try:
            code = main(words)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return command
