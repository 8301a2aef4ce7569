"""The rows of the comparison with other programs, and the pages that they are written to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import peers
import report
from bisimetric import exact, relation, worlds


def test_rows_replace_those_of_the_same_peer_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "peers.md"
    page.write_text(f"before\n{report.BEGIN}{report.END}after\n")
    monkeypatch.setattr(peers, "PAGE", page)
    empty = ("Storm, decision diagrams", "task", "0", "1 s", "not possible", "")
    peers.write_rows([empty, peers.compare("Storm", "old", "0", 2.0, 1.0)], "Machine: m.")
    peers.write_rows([peers.compare("Storm", "new", "0", 1.0, 4.0)], "Machine: m.")
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert report.read_results(page)[4:] == [
        "| Storm | new | 0 | 1 s | 4 s | 0.25 |",
        report.format_row(empty),
    ]
    with pytest.raises(SystemExit, match="another machine"):
        peers.write_rows([empty], "Machine: other.")


def test_a_page_without_markers_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n")
    with pytest.raises(RuntimeError, match="has no lines"):
        report.write_results(page, ["line"])
    assert page.read_text() == "text\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00022, "0.22 ms"), (0.034, "34 ms"), (1.83, "1.8 s"), (1234.0, "1,234 s")],
)
def test_seconds_have_two_digits(seconds: float, text: str) -> None:
    assert report.format_seconds(seconds) == text


def test_published_code_is_left_out_without_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(peers.published(None)) == []
    assert "--published" in capsys.readouterr().out


def test_sinkhorn_reports_the_errors_that_it_reaches() -> None:
    mdp = worlds.load("random", states=5, actions=1, successors=2, discount=0.5)
    best = peers.time_sinkhorn(mdp, exact.bisimulation(mdp).values, [0.5, 1e-12], 0.01)
    assert list(best) == [0.5]


def test_both_explicit_formats_describe_one_chain(tmp_path: Path) -> None:
    P = sparse.coo_array(np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]))
    peers.write_explicit_files(P, np.array([[False], [True], [True]]), tmp_path)
    mdp = worlds.from_prism(tmp_path / "ours.tra", observe="a", discount=0.9)
    assert relation.bisimulation(mdp).tolist() == [0, 1, 1]
    assert (tmp_path / "storm.lab").read_text().splitlines()[2:] == ["#END", "0 init", "1 a", "2 a"]
    assert (tmp_path / "storm.tra").read_text().splitlines()[0] == "dtmc"


def test_components_are_copies_of_the_first() -> None:
    source = peers.write_components(3, 4)
    assert "x1 : [0..3] init 0;" in source
    assert source.count("= c1 [") == 2
    assert 'label "failed" = x1=3 & x2=3 & x3=3;' in source
