"""Each tutorial runs as a notebook, prints text and shows figures."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
ROOT = Path(__file__).parents[1]
tutorials = pytest.importorskip("tutorials", exc_type=ImportError)
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))


def test_every_tutorial_has_a_row_in_the_overview() -> None:
    overview = (ROOT / "docs" / "tutorials" / "index.md").read_text(encoding="utf-8")
    assert TUTORIALS
    assert [each.stem for each in TUTORIALS if f"({each.stem}.md)" not in overview] == []


@pytest.mark.parametrize("script", TUTORIALS, ids=lambda script: script.stem)
def test_begins_with_a_title(script: Path) -> None:
    assert script.read_text(encoding="utf-8").startswith("# %% [markdown]\n# # ")


@pytest.mark.slow
@pytest.mark.parametrize("script", TUTORIALS, ids=lambda script: script.stem)
def test_runs_and_shows_text_and_figures(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Figures are shown by the backend of the notebook, not by one that the tests have chosen.
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = tutorials.execute(script, tmp_path / "docs" / "tutorials")
    outputs = [each for cell in notebook.cells for each in cell.get("outputs", [])]
    printed = [each.text for each in outputs if each.output_type == "stream"]
    errors = [each for each in outputs if each.output_type == "error"]
    figures = [each for each in outputs if "image/png" in each.get("data", {})]
    assert not errors
    assert len("".join(printed)) > 500
    assert len(figures) >= 2
    stderr = [each.text for each in outputs if each.get("name") == "stderr"]
    assert stderr == []
    assert not any("\r" in text for text in printed)


def test_progress_bars_are_removed() -> None:
    cell = nbformat.v4.new_code_cell()
    text = "\rsteps:  50% |##\r              \rdone\n  indented\n"
    cell.outputs = [nbformat.v4.new_output("stream", text=text)]
    tutorials.remove_progress_bars(nbformat.v4.new_notebook(cells=[cell]))
    assert cell.outputs[0].text == "done\n  indented\n"
