"""Progress: shown late, on terminals and in notebooks only, and removed at the end."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from bisimetric import _progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def capture_progress(delay: float, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(_progress, "DELAY_SECONDS", delay)
    monkeypatch.setattr(sys, "stderr", screen)
    with _progress.show_progress(10, "work") as bar:
        for position in (2, 5, 4):
            time.sleep(0.15)
            bar.set_position(position, f"step {position}")
    return screen.getvalue()


def test_the_bar_shows_position_and_note(monkeypatch: pytest.MonkeyPatch) -> None:
    text = capture_progress(0.0, Terminal(), monkeypatch)
    assert "work:  50% |" in text
    assert "step 5" in text
    assert "work:  40% |" in text
    assert text.endswith("\r")


def test_quick_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert capture_progress(60.0, Terminal(), monkeypatch) == ""


def test_nothing_is_shown_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert capture_progress(0.0, io.StringIO(), monkeypatch) == ""


def test_a_notebook_shows_the_bar_in_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    output = io.StringIO()
    monkeypatch.setattr(sys, "stdout", output)
    assert capture_progress(0.0, io.StringIO(), monkeypatch) == ""
    assert "work:  50% |" in output.getvalue()


@pytest.mark.parametrize("shell", [None, SimpleNamespace()])
def test_ipython_in_a_terminal_is_no_notebook(
    shell: SimpleNamespace | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert not _progress.is_notebook()


NOTEBOOK_WITHOUT_WIDGETS = """
import sys, time
from types import ModuleType, SimpleNamespace
shell = SimpleNamespace(kernel=object(), config={"IPKernelApp": {}})
ipython = ModuleType("IPython")
ipython.get_ipython = lambda: shell
ipython.display = ModuleType("IPython.display")
ipython.display.HTML = ipython.display.display = None
sys.modules.update({"IPython": ipython, "IPython.display": ipython.display})
sys.modules.update({"ipykernel.zmqshell": ModuleType("zmqshell"), "ipywidgets": None})
from bisimetric import _progress
with _progress.show_progress(4, "quick") as bar:
    bar.set_position(2)
assert not any(name.startswith(("tqdm", "asyncio")) for name in sys.modules)
_progress.DELAY_SECONDS = 0.0
with _progress.show_progress(4, "work") as bar:
    time.sleep(0.15)
    bar.set_position(2)
    time.sleep(0.15)
    bar.set_position(2)
from tqdm import autonotebook, std
assert autonotebook.tqdm is std.tqdm
"""


def test_a_notebook_without_ipywidgets_shows_text_and_no_warning() -> None:
    command = [sys.executable, "-W", "error", "-c", NOTEBOOK_WITHOUT_WIDGETS]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "quick" not in done.stdout
    assert "work:  50% |" in done.stdout


@pytest.mark.parametrize(("delay", "announced"), [(0.0, True), (60.0, False)])
def test_long_compilation_is_announced(
    delay: float, announced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(_progress, "DELAY_SECONDS", delay)
    monkeypatch.setattr(sys, "stderr", screen)
    with _progress.announce_compilation("the kernels"):
        time.sleep(0.1)
    assert ("compiling the kernels" in screen.getvalue()) == announced
