"""`bisimetric view` and `bisimetric playground`."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import numpy as np
import pytest

from bisimetric import Distance, exact, worlds
from tests.commands import Run, assert_input_error


@pytest.fixture
def saved(tmp_path: Path) -> Distance:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    d = exact.bisimulation(mdp)
    d.save(tmp_path / "d.npz")
    exact.lax(mdp).save(tmp_path / "lax.npz")
    exact.bisimulation(worlds.load("pessimism")).save(tmp_path / "other.npz")
    return d


def test_a_page_is_saved_and_said(run: Run, saved: Distance) -> None:
    done = run("view", "d.npz", "--against", "lax.npz", "-o", "page.html")
    assert done.code == 0, done.err
    assert done.out.startswith("states     31 states\nsize       0.")
    assert done.out.endswith("saved      page.html\n")
    text = Path("page.html").read_text(encoding="utf-8")
    assert '"label":"lax"' in text
    assert "<title>d · bisimetric</title>" in text


def test_a_page_is_called_as_its_world_is(run: Run) -> None:
    run("exact", "bisimulation", "pessimism", "-o", "d.npz")
    assert run("view", "d.npz", "-o", "page.html").code == 0
    assert "<title>pessimism · " in Path("page.html").read_text(encoding="utf-8")


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a command opens; temporary files are written to `tmp_path`."""
    found: list[str] = []

    def browse(address: str) -> bool:
        found.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", browse)
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: str(tmp_path))
    return found


def test_without_a_place_the_page_is_opened(
    run: Run,
    saved: Distance,
    tmp_path: Path,
    opened: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = run("view", "d.npz")
    assert done.code == 0, done.err
    assert opened == [(tmp_path / "d.html").as_uri()]
    assert (tmp_path / "d.html").is_file()
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    assert run("view", "d.npz").out.endswith("none was found here\n")


def test_a_plain_table_has_a_page_too(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.abs(np.subtract.outer([0.0, 1.0, 3.0], [0.0, 1.0, 3.0])))
    done = run("view", "x.npy", "-o", "page.html")
    assert done.out.startswith("states     3 states\n"), done.err
    assert "<title>x · bisimetric</title>" in Path("page.html").read_text(encoding="utf-8")
    (tmp_path / "y.npy").write_text("no numbers")
    assert_input_error(run("view", "y.npy", "-o", "page.html"), "y.npy is no .npy file of numbers")


def test_notes_are_said(run: Run, saved: Distance, tmp_path: Path) -> None:
    exact.bisimulation(worlds.load("mirrored-rooms", discount=0.5)).save(tmp_path / "slow.npz")
    done = run("view", "d.npz", "--against", "slow.npz", "-o", "page.html")
    assert "note       " in (done.out)


def test_mistakes_are_one_line(run: Run, saved: Distance, tmp_path: Path) -> None:
    view = ("view", "d.npz")
    assert_input_error(run("view", "none.npz", "-o", "p.html"), "none.npz")
    assert_input_error(
        run(*view, "-o", "page.png"), "cannot save a page as page.png", "end in .html"
    )
    assert_input_error(run(*view, "-o", "no/p.html"), "make the folder no first")
    assert_input_error(run(*view, "--against", "d.npz", "-o", "p.html"), "d.npz is given twice")
    assert_input_error(
        run(*view, "--against", "other.npz", "-o", "p.html"),
        "other",
        "3 states",
    )
    (tmp_path / "cut.npz").write_bytes((tmp_path / "d.npz").read_bytes()[:99])
    assert_input_error(run("view", "cut.npz", "-o", "p.html"), "cut.npz")
    with np.load(tmp_path / "d.npz") as found:
        arrays = dict(found)
    arrays["values"] = np.where(arrays["values"] > 3, np.nan, arrays["values"])
    np.savez(tmp_path / "nan.npz", **arrays)
    assert_input_error(run("view", "nan.npz", "-o", "p.html"), "nan.npz")
    assert not Path("p.html").exists()


class TestPlayground:
    def test_a_page_is_saved_with_its_grid(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "grid.txt").write_text("\n* g*\n*5x*\n", encoding="utf-8")
        done = run("playground", "--grid", "grid.txt", "-o", "page.html")
        assert (done.code, done.out) == (0, "size       0.1 MB\nsaved      page.html\n"), done.err
        text = Path("page.html").read_text(encoding="utf-8")
        assert '"grid":"* g*\\n*5x*"' in text
        assert "worker-src blob:" in text

    def test_without_a_place_the_page_is_opened(
        self,
        run: Run,
        tmp_path: Path,
        opened: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        assert run("playground", "--no-open").code == 0
        assert opened == []
        assert run("playground").code == 0
        assert opened == [(tmp_path / "playground.html").as_uri()]
        monkeypatch.setattr(webbrowser, "open", lambda address: False)
        assert run("playground").out.endswith("none was found here\n")

    def test_mistakes_are_one_line(self, run: Run, tmp_path: Path) -> None:
        assert_input_error(run("playground", "--grid", "no.txt"), "grid file no.txt: there is no")
        (tmp_path / "grid.txt").write_text("*y*", encoding="utf-8")
        assert_input_error(run("playground", "--grid", "grid.txt"), "grid file grid.txt: line 1")
        (tmp_path / "grid.txt").write_text("\n".join([" " * 3] * 31), encoding="utf-8")
        assert_input_error(run("playground", "--grid", "grid.txt"), "31 rows and 3 columns")
        assert_input_error(run("playground", "-o", "page.txt"), ".html")
