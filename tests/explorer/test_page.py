"""The explorer: what a page carries, what it refuses, and that nothing in it is run."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import itertools
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, Distance, InputError, datasets, exact, explorer, sampled, uses, worlds
from bisimetric.explorer import data as groups
from bisimetric.views.class_colours import CLASS_PALETTE
from tests.page_data import decode_distances, read_page_data

HOSTILE = (
    "</script><script>bad()</script>",
    "<img src=x onerror=bad()>",
    "\"'&{{data}}",
    "🙂\u2028",
)


@pytest.fixture(scope="module")
def rooms() -> Distance:
    return exact.bisimulation(worlds.load("mirrored-rooms", discount=0.9))


def build_ring(names: tuple[str, ...], **made: Any) -> Distance:
    count = len(names)
    ring = (np.arange(count) + 1) % count
    rewards = np.arange(count, dtype=float)[:, None]
    mdp = MDP.deterministic(ring[:, None], rewards, discount=0.5, names=names)
    found = exact.bisimulation(mdp)
    return dataclasses.replace(found, metadata={**found.metadata, **made})


def test_a_page_contains_the_matrix_values_and_transitions(rooms: Distance) -> None:
    data = read_page_data(explorer.render_page(rooms, title="two rooms"))
    (table,) = data["distances"]
    assert data["title"] == "two rooms"
    assert (decode_distances(table["values"], 31) == rooms.values).all()
    assert table["error"] == rooms.error
    assert data["names"] == list(rooms.mdp.names or ())
    assert table["V"]["name"] == "V*"
    assert data["goals"] == [rooms.mdp.state("1,5"), rooms.mdp.state("5,5")]
    assert data["map"]["rows"][0] == 1
    assert data["points"] is None


def test_commands_name_each_state_without_ambiguity() -> None:
    names = ("a b", "-x", "", "it's", "bell\x07", "0", "6", "7")
    d = build_ring(names)
    (first,) = read_page_data(explorer.build_page({"d": d}, files={"d": "d.npz"}).html)["distances"]
    assert first["command"]["file"] == "d.npz"
    # The names or, where commands misread them, the ids; the id of "-x" is no name of another.
    assert first["command"]["states"] == ["a b", "1", "2", "it's", "4", "0", "6", "7"]
    for s, text in enumerate(first["command"]["states"]):
        assert d.mdp.state(text) == s
    (second,) = read_page_data(
        explorer.build_page({"d": build_ring(("-x", "0"))}, files={"d": "d.npz"}).html
    )["distances"]
    assert second["command"]["states"] == [None, "0"]


def test_only_distances_that_explain_have_a_command(rooms: Distance) -> None:
    policy = np.zeros(rooms.mdp.num_states, np.int64)
    distances = {
        "d": rooms,
        "reduced": exact.reduced_mico(rooms.mdp, policy),
        "matrix": rooms.values,
        "lax": exact.lax(rooms.mdp),
    }
    files = {"d": "d.npz", "reduced": "reduced.npz", "matrix": "matrix.npy"}
    data = read_page_data(explorer.build_page(distances, files=files).html)["distances"]
    assert [each["command"] is not None for each in data] == [True, False, False, False]


def test_a_learned_distance_is_shown_by_its_matrix(rooms: Distance) -> None:
    learned = types.SimpleNamespace(distance=lambda: rooms)
    assert explorer.render_page(learned) == explorer.render_page(rooms)


@pytest.mark.parametrize("small", [False, True])
def test_names_are_text_and_never_markup(small: bool) -> None:
    d = build_ring(HOSTILE, world="<script>bad()</script>")
    text = explorer.render_page(d)
    if small:
        text = html.unescape(
            explorer.render_notebook(d).partition('srcdoc="')[2].partition('" sandbox')[0]
        )
    assert read_page_data(text)["names"] == list(HOSTILE)
    assert "<script>bad()" not in text
    assert "<img src" not in text
    # One script of data, and those whose hashes the policy lists.
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    allowed = set(re.findall(r"'sha256-([^']+)'", policy[1]))
    assert {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts} == (
        allowed
    )
    assert "default-src 'none'" in policy[1]
    assert "unsafe-eval" not in policy[1]


def test_a_plain_matrix_is_shown_as_points() -> None:
    line = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
    data = read_page_data(explorer.render_page(line))
    xs = np.array(data["points"])[:, 0]
    assert data["map"] is None
    assert np.argsort(xs).tolist() in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0])
    assert data["distances"][0]["transitions"] is None
    assert data["distances"][0]["aggregation"]["thresholds"][0]["regret"] is None
    assert (
        data["distances"][0]["aggregation"]["regretNote"]
        == "A matrix without an MDP has no regret."
    )
    assert data["stress"] == pytest.approx(0, abs=1e-6)


def test_a_page_of_one_state() -> None:
    mdp = MDP.deterministic([[0]], [[1.0]], discount=0.5)
    data = read_page_data(explorer.render_page(exact.bisimulation(mdp)))
    assert data["names"] == ["0"]
    assert data["distances"][0]["accuracy"] == "proven, exact"
    assert [step["numClasses"] for step in data["distances"][0]["aggregation"]["thresholds"]] == [1]
    assert "<iframe" in explorer.render_notebook(exact.bisimulation(mdp))


@pytest.mark.parametrize("kind", ["on_policy", "mico"])
def test_distances_of_a_policy_contain_its_chain(kind: str) -> None:
    mdp = worlds.load("random", states=12, actions=3, successors=2, discount=0.9)
    policy = np.full((12, 3), 1 / 3)
    policy[0] = [1, 0, 0]
    (table,) = read_page_data(explorer.render_page(getattr(exact, kind)(mdp, policy)))["distances"]
    assert table["transitions"]["numActions"] == 1
    assert table["transitions"]["policyActions"] == [0] + [-1] * 11
    assert table["V"]["name"] == "V^π"
    assert table["aggregation"]["valueName"] == "V^π"


def test_other_mdps_raise_and_other_discounts_are_noted(rooms: Distance) -> None:
    other = exact.bisimulation(worlds.load("pessimism"))
    with pytest.raises(InputError, match=r"e is of another MDP than d~: it has 3 states"):
        explorer.render_page(rooms, comparisons={"e": other})
    names = ("other", *(rooms.mdp.names or ())[1:])
    renamed = dataclasses.replace(rooms, mdp=rooms.mdp.replace(names=names))
    with pytest.raises(InputError, match=r"its state 0 is 'other', and not '1,1'; compare"):
        explorer.render_page(rooms, comparisons={"e": renamed})
    slower = exact.bisimulation(worlds.load("mirrored-rooms", discount=0.5))
    (note,) = explorer.build_page({"d": rooms, "e": slower}).notes
    assert note == "The MDP of e differs: its discount is 0.5 and not 0.9."
    assert explorer.build_page({"d": rooms, "e": exact.lax(rooms.mdp)}).notes == ()
    with pytest.raises(InputError, match=r"the table is of another world|it has 3 states, and not"):
        explorer.render_page(rooms, comparisons={"e": np.zeros((3, 3))})


def test_matrices_from_data_are_matched_by_name() -> None:
    world = worlds.load("FrozenLake-v1", is_slippery=False)
    lake = datasets.rollout("FrozenLake-v1", steps=2_000, seed=0, is_slippery=False)
    page = explorer.build_page(
        {"exact": exact.bisimulation(world), "data": sampled.bisimulation(lake)}
    )
    first, second = read_page_data(page.html)["distances"]
    found = sampled.bisimulation(lake)
    assert found.coverage is not None
    assert second["unknown"] == [s for s in range(16) if not found.coverage.visited[s]]
    assert first["unknown"] == []
    back = explorer.build_page({"data": found, "exact": exact.bisimulation(world)})
    assert back.notes == ("1 state is not in exact: end.",)
    assert 16 in read_page_data(back.html)["distances"][1]["unknown"]


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ([[0.0, np.nan], [np.nan, 0.0]], r"explorer.render_page: .* has nan at \[0, 1\]"),
        ([[0.0, -1.0], [-1.0, 0.0]], r"has -1 at \[0, 1\] and must be finite"),
        ([[0.0, 1.0], [2.0, 0.0]], r"must be symmetric"),
        ([0.0, 1.0], r"must be square"),
        (np.zeros((0, 0)), r"must be square"),
    ],
)
def test_bad_matrices_raise(table: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        explorer.render_page(np.array(table))


def test_a_distance_with_nan_raises() -> None:
    mdp = MDP.deterministic([[0], [1]], [[0.0], [1.0]], discount=0.5)
    d = Distance(np.array([[0.0, np.nan], [np.nan, 0.0]]), 0.0, "bisimulation", mdp)
    with pytest.raises(InputError, match=r"nan at \[0, 1\]"):
        explorer.render_page(d)
    with pytest.raises(InputError, match=r"explorer.render_page: second: .* has nan"):
        explorer.render_page(exact.bisimulation(mdp), comparisons={"second": d})


def build_grid_distance(rows: int, columns: int) -> Distance:
    """A table that is quick to make: how far cells are apart, of which nothing is proven."""
    mdp = worlds.load("open-grid", rows=rows, columns=columns, obstacles=0, discount=0.9)
    return Distance(uses.manhattan_distances(mdp), float("inf"), "bisimulation", mdp)


@pytest.mark.slow
def test_two_matrices_of_2000_states_are_below_20_mb() -> None:
    d = build_grid_distance(40, 50)
    rng = np.random.default_rng(0)
    noise = rng.random(d.values.shape)
    e = dataclasses.replace(d, values=np.maximum(noise, noise.T) * (d.values > 0))
    page = explorer.build_page({"d": d, "e": e})
    assert (page.num_shown, page.num_states, page.notes) == (2_000, 2_000, ())
    assert len(page.html.encode()) < 20e6


@pytest.mark.slow
def test_more_states_are_sampled_with_a_note() -> None:
    d = build_grid_distance(46, 50)
    page = explorer.build_page({"d": d})
    assert (page.num_shown, page.num_states) == (2_000, 2_300)
    assert page.notes == (
        "The page shows 2,000 of 2,300 states, in patches; paths are not followed outside of them.",
    )
    data = read_page_data(page.html)
    assert len(data["names"]) == 2_000
    assert len(data["map"]["unsampledCells"]) == 300
    ids = [d.mdp.state(name) for name in data["names"]]
    found = decode_distances(data["distances"][0]["values"], 2_000)
    assert (
        np.abs(found - d.values[np.ix_(ids, ids)]).max() <= data["distances"][0]["values"]["step"]
    )
    assert len(explorer.render_notebook(d)) < 1e6
    plain = explorer.build_page({"d": d.values})
    assert plain.notes == ("The page shows 2,000 of 2,300 states, at equal steps.",)


def test_regrets_are_those_of_aggregate(rooms: Distance) -> None:
    (table,) = read_page_data(explorer.render_page(rooms))["distances"]
    found = table["aggregation"]
    labels = np.frombuffer(base64.b64decode(found["labels"]), "<u2").reshape(-1, 31)
    assert len(labels) == len(found["thresholds"])
    for step, each in zip(found["thresholds"], labels, strict=True):
        true = uses.aggregate(rooms.mdp, rooms, radius=step["radius"], rule="complete")
        assert (each == true.labels).all()
        assert step["numClasses"] == len(true)
        assert (step["regretBound"], step["regret"]) == pytest.approx(
            (true.regret_bound, true.regret)
        )
    # Finest first, and every class is a part of one of the next.
    for fine, coarse in itertools.pairwise(labels):
        assert len(set(zip(fine.tolist(), coarse.tolist(), strict=True))) == fine.max() + 1
    assert found["thresholds"][-1]["numClasses"] == 1


def test_thresholds_range_from_singletons_to_one_class() -> None:
    points = np.random.default_rng(0).random((300, 2))
    table = np.linalg.norm(points[:, None] - points[None], axis=-1)
    found = groups.choose_thresholds(table)
    assert found[0] == 0
    assert len(found) <= groups.MAX_THRESHOLDS + 2
    assert (np.diff(found) > 0).all()
    assert uses.cluster(table, radius=found[-1], rule="complete").max() == 0


def test_no_bound_without_a_proof() -> None:
    (table,) = read_page_data(explorer.render_page(build_grid_distance(3, 3)))["distances"]
    assert {step["regretBound"] for step in table["aggregation"]["thresholds"]} == {None}
    assert "no regret bound" in table["aggregation"]["regretNote"]


def test_a_distance_has_a_notebook_representation(rooms: Distance) -> None:
    shown = rooms._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert 'sandbox="allow-scripts"' in shown
    assert len(shown) < 200_000


def test_a_notebook_needs_no_import_of_the_explorer() -> None:
    code = """
import bisimetric
d = bisimetric.exact.bisimulation(bisimetric.worlds.load("pessimism"))
print(d._repr_html_()[:7])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "<iframe\n", done.stderr


def test_a_page_is_written_atomically(rooms: Distance, tmp_path: Path) -> None:
    explorer.save_page(explorer.render_page(rooms), tmp_path / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert "31" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_classes_have_the_colours_of_figures() -> None:
    """The palette stands in Python and in JavaScript; both must be the same."""
    source = Path(explorer.__file__).with_name("parts") / "scales.js"
    listed = re.search(r"PALETTE = \[(.*?)\]", source.read_text(encoding="utf-8"), re.DOTALL)
    assert listed is not None
    assert tuple(re.findall(r'"(#\w+)"', listed[1])) == CLASS_PALETTE
