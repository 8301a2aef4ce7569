"""Set up test runs: threads, compilation caches, slow doctests, and the command line."""

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
# One thread per worker, so that parallel workers do not compete for cores.
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Compiled JAX programs are shared by workers, subprocesses and later runs.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
# Subprocesses import the test helpers too.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")])
)

SLOW_DOCTESTS = (
    "bisimetric.learned._fit",
    "bisimetric.learned.api",
    "bisimetric.learned.castro2020",
    "bisimetric.learned.pivot_index",
)
"""Modules whose doctests train networks."""

# A process that a shell started in the background ignores interrupts, and so do its children: the
# tests of interrupts would hang.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.name.startswith(SLOW_DOCTESTS):
            item.add_marker(pytest.mark.slow)


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
