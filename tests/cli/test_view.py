"""`bisimetric explore`."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import numpy as np
import pytest

from bisimetric import Distance, exact, worlds
from tests.commands import Run, refused


@pytest.fixture
def saved(tmp_path: Path) -> Distance:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    d = exact.bisimulation(mdp)
    d.save(tmp_path / "d.npz")
    exact.lax(mdp).save(tmp_path / "lax.npz")
    exact.bisimulation(worlds.load("pessimism")).save(tmp_path / "other.npz")
    return d


def test_a_page_is_saved_and_said(run: Run, saved: Distance) -> None:
    done = run("explore", "d.npz", "--against", "lax.npz", "-o", "page.html")
    assert done.code == 0, done.err
    assert done.out.startswith("states     31 states\nsize       0.")
    assert done.out.endswith("saved      page.html\n")
    text = Path("page.html").read_text(encoding="utf-8")
    assert '"label":"lax"' in text
    assert "<title>d · bisimetric</title>" in text


def test_a_page_is_called_as_its_world_is(run: Run) -> None:
    run("exact", "bisimulation", "pessimism", "-o", "d.npz")
    assert run("explore", "d.npz", "-o", "page.html").code == 0
    assert "<title>pessimism · " in Path("page.html").read_text(encoding="utf-8")


def test_without_a_place_the_page_is_opened(
    run: Run, saved: Distance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def browse(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", browse)
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: str(tmp_path))
    done = run("explore", "d.npz")
    assert done.code == 0, done.err
    assert opened == [(tmp_path / "d.html").as_uri()]
    assert (tmp_path / "d.html").is_file()
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    assert run("explore", "d.npz").out.endswith("none was found here\n")


def test_a_plain_table_has_a_page_too(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.abs(np.subtract.outer([0.0, 1.0, 3.0], [0.0, 1.0, 3.0])))
    done = run("explore", "x.npy", "-o", "page.html")
    assert done.out.startswith("states     3 states\n"), done.err
    assert "<title>x · bisimetric</title>" in Path("page.html").read_text(encoding="utf-8")
    (tmp_path / "y.npy").write_text("no numbers")
    refused(run("explore", "y.npy", "-o", "page.html"), "y.npy is no .npy file of numbers")


def test_notes_are_said(run: Run, saved: Distance, tmp_path: Path) -> None:
    exact.bisimulation(worlds.load("mirrored-rooms", discount=0.5)).save(tmp_path / "slow.npz")
    done = run("explore", "d.npz", "--against", "slow.npz", "-o", "page.html")
    assert "note       The world of slow is another one: its discount is 0.5 and not 0.9" in (
        done.out
    )


def test_mistakes_are_one_line(run: Run, saved: Distance, tmp_path: Path) -> None:
    explore = ("explore", "d.npz")
    refused(run("explore", "none.npz", "-o", "p.html"), "none.npz")
    refused(run(*explore, "-o", "page.png"), "cannot save a page as page.png", "end in .html")
    refused(run(*explore, "-o", "no/p.html"), "make the folder no first")
    refused(run(*explore, "--against", "d.npz", "-o", "p.html"), "d.npz is given twice")
    refused(
        run(*explore, "--against", "other.npz", "-o", "p.html"),
        "other is of another world than d: it has 3 states, and not 31",
    )
    (tmp_path / "cut.npz").write_bytes((tmp_path / "d.npz").read_bytes()[:99])
    refused(run("explore", "cut.npz", "-o", "p.html"), "cut.npz is cut short")
    with np.load(tmp_path / "d.npz") as found:
        arrays = dict(found)
    arrays["values"] = np.where(arrays["values"] > 3, np.nan, arrays["values"])
    np.savez(tmp_path / "nan.npz", **arrays)
    refused(run("explore", "nan.npz", "-o", "p.html"), "something else than finite numbers")
    assert not Path("p.html").exists()
