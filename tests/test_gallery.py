"""Each script of the gallery has a title and a text, and saves one figure with its own name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest

gallery = pytest.importorskip("gallery")
SCRIPTS = sorted((Path(__file__).parents[1] / "docs" / "gallery").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_is_short_and_has_a_title_and_a_text(script: Path) -> None:
    title, text, code = gallery.split_script(script.read_text(encoding="utf-8"))
    assert 10 < len(title) < 70
    assert len(text) > 50
    assert len(code.splitlines()) <= 35


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_saves_one_figure(script: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "MPLBACKEND": "agg", "PYTHONWARNINGS": "error::UserWarning"}
    command = [sys.executable, str(script)]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert [path.name for path in tmp_path.iterdir()] == [f"{script.stem}.png"]
    pixels = matplotlib.image.imread(tmp_path / f"{script.stem}.png")
    assert min(pixels.shape[:2]) > 250
    assert pixels.std() > 0.02
