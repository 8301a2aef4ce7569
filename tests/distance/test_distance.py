"""Distance: calls, explanations, neighbours, arrays and files."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import MDP, Distance, InputError, exact, worlds
from bisimetric.distance import Coverage, StateDistance
from tests.partial_data import (
    build_corridor,
    build_partial_corridor,
    build_partial_self_loops,
    solve_partial,
)
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps


@pytest.fixture(scope="module")
def rooms() -> Distance:
    return exact.bisimulation(worlds.load("mirrored-rooms-policy"))


def every_kind(mdp: MDP, seed: int) -> list[Distance]:
    policy = np.random.default_rng(seed).integers(mdp.num_actions, size=mdp.num_states)
    return [exact.bisimulation(mdp), exact.lax(mdp), exact.on_policy(mdp, policy)]


def test_calls_take_ids_names_and_arrays(rooms: Distance) -> None:
    assert rooms("1,5", "5,5") == rooms(4, 20) == rooms.values[4, 20]
    assert isinstance(rooms(0, 1), float)
    np.testing.assert_array_equal(rooms([0, 1], [[2], [3]]), rooms.values[[[0, 1]] * 2, [[2], [3]]])
    with pytest.raises(InputError, match="did you mean"):
        rooms("1,55", 0)
    with pytest.raises(InputError, match="ids go from 0 to 30"):
        rooms(0, 31)


def test_nearest_leaves_out_the_state_and_is_sorted(rooms: Distance) -> None:
    near = rooms.nearest("4,3", k=30)
    assert len(near) == 30
    assert rooms.mdp.state("4,3") not in [t for t, _ in near]
    distances = [distance for _, distance in near]
    assert distances == sorted(distances)
    assert distances[0] == np.sort(rooms.values[rooms.mdp.state("4,3")])[1]
    assert rooms.nearest(0, k=99) == rooms.nearest(0, k=30)
    with pytest.raises(InputError, match="at least 1"):
        rooms.nearest(0, k=0)


def test_the_values_are_read_only(rooms: Distance) -> None:
    with pytest.raises(ValueError, match="read-only"):
        rooms.values[0, 0] = 1


def test_values_of_another_size_raise(rooms: Distance) -> None:
    with pytest.raises(InputError, match=r"must be \(31, 31\)"):
        dataclasses.replace(rooms, values=np.zeros((3, 3)))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"kind": "bisimilarity"}, "kind is 'bisimilarity' and must be one of bisimulation, on_"),
        ({"error": -1.0}, "error is -1.0 and must be at least 0"),
        ({"error": float("nan")}, "error is nan"),
    ],
)
def test_invalid_fields_raise(rooms: Distance, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        dataclasses.replace(rooms, **change)


# Reasons.


@pytest.mark.slow
@settings(deadline=None, max_examples=scaled(60))
@given(deterministic_mdps(), st.integers(0, 9))
def test_steps_add_up_to_the_distance(mdp: MDP, seed: int) -> None:
    for d in every_kind(mdp, seed):
        for s in range(mdp.num_states):
            for t in range(mdp.num_states):
                why = d.explain(s, t)
                assert why.total == pytest.approx(d(s, t), abs=2 * d.error + 1e-9)
                assert why.value_gap is not None
                assert why.value_gap <= d(s, t) + 2 * d.error + 1e-6
                assert str(why)


@settings(deadline=None, max_examples=scaled(60))
@given(deterministic_mdps(), st.integers(0, 9))
def test_steps_follow_the_mdp(mdp: MDP, seed: int) -> None:
    for d in every_kind(mdp, seed):
        why = d.explain(0, mdp.num_states - 1)
        pair = why.states
        for k, step in enumerate(why.steps):
            assert step.states == pair
            assert step.actions is not None
            (s, t), (a, b) = step.states, step.actions
            assert step.reward_gap == abs(mdp.R[s, a] - mdp.R[t, b])
            assert step.contribution == pytest.approx(mdp.discount**k * step.reward_gap)
            assert step.next_states == (mdp.next_state[s, a], mdp.next_state[t, b])
            if d.kind == "bisimulation":
                assert a == b
            if d.policy is not None:
                assert (a, b) == (d.policy[s], d.policy[t])
            pair = step.next_states
        if why.loop_start is not None:
            assert pair == why.steps[why.loop_start].states


def test_the_text_of_the_pessimism_example() -> None:
    d = exact.bisimulation(worlds.load("pessimism"))
    text = str(d.explain("s", "t"))
    assert text.startswith("d~(s; t) = 10, proven to")
    assert "repeat in a cycle" in text
    assert "differ by at most 10; they differ by 0" in text
    assert "are bisimilar" in str(exact.lax(worlds.load("pessimism")).explain("s", "t"))
    assert "same state" in str(d.explain("s", "s"))


def test_a_long_path_is_cut_in_the_text_only() -> None:
    n = np.minimum(np.arange(100) + 1, 99)[:, None]
    R = np.zeros((100, 1))
    R[99] = 1
    why = exact.bisimulation(MDP.deterministic(n, R, discount=0.9)).explain(0, 1)
    assert len(why.steps) == 99
    assert len(str(why).splitlines()) < 35
    assert "more steps" in str(why)


def test_a_mixed_policy_with_one_successor_is_explained() -> None:
    mdp = MDP.deterministic([[1, 1], [1, 1]], [[0, 4], [0, 0]], discount=0.5)
    d = exact.on_policy(mdp, [[0.5, 0.5], [1.0, 0.0]])
    assert d(0, 1) == pytest.approx(2)
    assert d.explain(0, 1).total == pytest.approx(2)


# Files.


def test_saving_and_loading_is_lossless(rooms: Distance, tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    single = exact.on_policy(rooms.mdp, dtype="float32")
    nameless = exact.lax(worlds.load("random", states=9))
    for d in (rooms, single, nameless):
        d.save(path)
        again = Distance.load(path)
        np.testing.assert_array_equal(again.values, d.values)
        assert again.values.dtype == d.values.dtype
        assert (again.error, again.kind, again.metadata) == (d.error, d.kind, d.metadata)
        for name in ("R", "positions", "features", "policy"):
            np.testing.assert_array_equal(getattr(again.mdp, name), getattr(d.mdp, name))
        np.testing.assert_array_equal(again.mdp.next_state, d.mdp.next_state)
        assert (again.mdp.names, again.mdp.actions) == (d.mdp.names, d.mdp.actions)
        assert str(again.explain(0, 1)) == str(d.explain(0, 1))
    assert [file.name for file in tmp_path.iterdir()] == ["d.npz"]


def test_plain_numpy_reads_it(rooms: Distance, tmp_path: Path) -> None:
    rooms.save(tmp_path / "d.npz")
    with np.load(tmp_path / "d.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["values"], rooms.values)
        about = json.loads(str(file["about"]))
    assert (about["kind"], about["discount"]) == ("bisimulation", 0.99)
    assert {"method", "tol", "seconds", "bisimetric", "numpy"} <= about["metadata"].keys()


def test_a_failed_save_keeps_the_old_file(
    rooms: Distance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d.npz"
    rooms.save(path)
    before = path.read_bytes()

    def interrupt(file: Any, **_: Any) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupt)
    with pytest.raises(KeyboardInterrupt):
        rooms.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["d.npz"]


def test_every_truncated_file_raises(rooms: Distance, tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    rooms.save(path)
    whole = path.read_bytes()
    for size in range(0, len(whole), 997):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match="cut short or no distance file"):
            Distance.load(path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"about": None}, "it has no 'about'"),
        ({"values": None}, "it has no 'values'"),
        ({"about": np.array("{}")}, "it has no 'format'"),
        ({"about": np.array("[]")}, "no distance file"),
        ({"values": np.zeros((3, 3))}, r"values have shape \(3, 3\)"),
        ({"values": np.full((31, 31), np.nan)}, "finite"),
        ({"values": np.zeros((31, 31), int)}, "not finite floats"),
        ({"rewards": np.zeros(5)}, "no distance file"),
        ({"rows": np.zeros(125, int)}, "no distance file"),
        ({"successors": np.full(124, 77)}, "columns of its sparse matrix"),
    ],
)
def test_foreign_files_raise(
    rooms: Distance, tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    path = tmp_path / "d.npz"
    rooms.save(path)
    with np.load(path) as file:
        arrays = {**file, **change}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(InputError, match=complaint):
        Distance.load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.npz"):
        Distance.load(tmp_path / "none.npz")


def test_every_damaged_byte_of_the_directory_raises_or_is_harmless(
    tmp_path: Path,
) -> None:
    d = exact.bisimulation(worlds.load("pessimism"))
    path = tmp_path / "d.npz"
    d.save(path)
    whole = path.read_bytes()
    start = whole.index(b"PK\x01\x02")  # the first entry of the archive's directory
    refused = 0
    for place in range(start, start + 46):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            assert (Distance.load(path).values == d.values).all()
        except InputError:
            refused += 1
    assert refused > 5


def test_coverage_is_saved_with_the_distance(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    for d in (
        build_partial_corridor(),
        build_partial_self_loops(),
        build_partial_self_loops(math.inf),
        solve_partial(build_corridor(), np.ones((4, 2), bool), 3),
    ):
        assert d.coverage is not None
        d.save(path)
        again = Distance.load(path)
        assert again.coverage is not None
        for field in dataclasses.fields(Coverage):
            was, is_ = getattr(d.coverage, field.name), getattr(again.coverage, field.name)
            np.testing.assert_array_equal(is_, was)
            assert type(is_) is type(was)
        assert (again.error, again.estimate) == (d.error, d.estimate)
        assert repr(again) == repr(d)
        assert str(again.explain(0, 1)) == str(d.explain(0, 1))
        with np.load(path, allow_pickle=False) as file:
            np.testing.assert_array_equal(file["determined"], d.coverage.determined)


def test_files_without_coverage_have_none(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    d = exact.bisimulation(worlds.load("pessimism"))
    for old, error in ((d, d.error), (dataclasses.replace(d, error=math.inf, estimate=0.5), None)):
        old.save(path)
        with np.load(path) as file:
            arrays = dict(file)
        assert not {"known", "determined"} & arrays.keys()
        about = json.loads(str(arrays["about"]))
        assert "coverage" not in about
        assert about["format"] == "bisimetric distance, version 1"
        assert about["error"] == error
        again = Distance.load(path)
        assert again.coverage is None
        assert again.error == old.error
        assert again.estimate == old.estimate


@pytest.mark.parametrize(
    ("arrays", "numbers", "complaint"),
    [
        ({"known": None}, {}, "it has no 'known'"),
        ({"determined": None}, {}, "it has no 'determined'"),
        ({}, None, "it has no 'coverage'"),
        ({}, {"num_paired": None}, "num_paired is None"),
        ({}, {"num_paired": 13}, "num_paired is 13 and must be at most"),
        ({}, {"rounding": -1.0}, "rounding is -1.0"),
        ({}, {"error": "much"}, "must be a number"),
        ({"known": np.ones((4, 2))}, {}, "known is float64"),
        ({"known": np.ones((4, 1), bool)}, {}, r"has shape \(4, 1\) and must be \(4, 2\)"),
        ({"determined": np.eye(3, dtype=bool)}, {}, "determined has shape"),
        ({"determined": np.zeros((4, 4), bool)}, {}, "must be True"),
    ],
)
def test_damaged_coverage_raises(
    tmp_path: Path, arrays: dict[str, Any], numbers: dict[str, Any] | None, complaint: str
) -> None:
    path = tmp_path / "d.npz"
    build_partial_corridor().save(path)
    with np.load(path) as file:
        found = {**file, **arrays}
    about = json.loads(str(found["about"]))
    if numbers is None:
        del about["coverage"]
    else:
        about["coverage"] |= numbers
    found["about"] = np.array(json.dumps(about))
    np.savez(path, **{name: array for name, array in found.items() if array is not None})
    with pytest.raises(
        InputError, match=rf"d\.npz is no distance file of bisimetric \(.*{complaint}"
    ):
        Distance.load(path)


def test_a_distance_is_a_state_distance(rooms: Distance) -> None:
    assert isinstance(rooms, StateDistance)
    assert rooms.names == rooms.mdp.names
    assert rooms.to_distance() is rooms


def test_a_table_has_the_chosen_rows_and_columns(rooms: Distance) -> None:
    assert np.array_equal(rooms.table(), rooms.values)
    assert np.array_equal(rooms.table([2, 0]), rooms.values[np.ix_([2, 0], [2, 0])])
    name = rooms.mdp.state_name(3)
    assert np.array_equal(rooms.table([name], [1, 2]), rooms.values[[3]][:, [1, 2]])
    with pytest.raises(InputError, match="others must be a sequence"):
        rooms.table([0], 1)


def test_the_nearest_states_have_names(rooms: Distance) -> None:
    by_id = rooms.nearest(3, 2)
    assert rooms.nearest(3, 2, names=True) == [(rooms.mdp.state_name(t), d) for t, d in by_id]


def test_a_distance_is_an_array(rooms: Distance) -> None:
    view = np.asarray(rooms)
    assert np.shares_memory(view, rooms.values)
    assert not view.flags.writeable
    assert np.asarray(rooms, np.float32).dtype == np.float32
    copy = np.array(rooms)
    assert copy.flags.writeable
    assert not np.shares_memory(copy, rooms.values)
    with pytest.raises(ValueError, match="copy"):
        np.array(rooms, np.float32, copy=False)


def test_a_frame_is_labelled_by_states(rooms: Distance, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    frame = rooms.to_frame()
    assert tuple(frame.index) == tuple(frame.columns) == rooms.names
    assert np.array_equal(frame.to_numpy(), rooms.values)
    unnamed = Distance(np.zeros((1, 1)), 0.0, "lax", MDP.deterministic([[0]], [[0]], discount=0))
    assert list(unnamed.to_frame().index) == [0]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        rooms.to_frame()


def test_the_error_names_the_empirical_model(rooms: Distance) -> None:
    empirical = dataclasses.replace(rooms, metadata={"model": "empirical"})
    assert "of the empirical model)" in repr(empirical)
    assert "for the empirical model" in str(empirical.explain(0, 1))
    assert "empirical" not in repr(rooms) + str(rooms.explain(0, 1))
