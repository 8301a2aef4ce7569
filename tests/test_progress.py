"""Signs of life: late, on a terminal only, and gone at the end."""

from __future__ import annotations

import io
import sys
import time

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
