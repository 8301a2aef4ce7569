"""Transitions: what they keep, what they refuse, and their files."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from bisimetric import exact, worlds
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.transitions import COLUMNS, Transitions
from tests.property_testing import scaled
from tests.sample_transitions import images, recordings, same, steps


class TestRecord:
    def test_the_end_is_one_past_the_others(self) -> None:
        assert (steps().num_states, steps().terminal_state) == (3, 3)
        assert steps().successors.tolist() == [1, 3, 2, 0]
        assert steps(num_states=7).successors.tolist() == [1, 7, 2, 0]
        found = steps().next_states
        assert found is not None
        assert found.tolist() == [1, 2, 2, 0]

    def test_without_a_terminated_step_there_is_no_terminal_state(self) -> None:
        alive = steps(terminated=np.zeros(4, bool))
        assert alive.terminal_state is None
        assert alive.successors.tolist() == [1, 2, 2, 0]
        assert images(terminated=np.ones(4, bool)).terminal_state is None

    def test_successors_need_ids(self) -> None:
        with pytest.raises(InputError, match="successors need ids of states; give states"):
            _ = images().successors

    def test_both_terminated_and_truncated(self) -> None:
        both = steps(truncated=np.array([False, True, False, False]))
        assert both.successors[1] == both.terminal_state

    def test_types(self) -> None:
        t = steps(
            rewards=[True, False, 2, 3],
            actions=np.array([0.0, 1.0, 1.0, 0.0], np.float32),
            terminated=[0, 1, 0, 0],
            truncated=np.array([0.0, 0.0, 0.0, 1.0], np.float32),
            observations=np.array([0, 1, 0, 2], np.uint16),
            next_observations=np.array([1, 2, 2, 0], np.uint16),
        )
        types = {name: str(getattr(t, name).dtype) for name in COLUMNS}
        assert types == {
            "observations": "uint16",
            "actions": "int64",
            "rewards": "float64",
            "next_observations": "uint16",
            "terminated": "bool",
            "truncated": "bool",
            "states": "int64",
            "next_states": "int64",
        }
        np.testing.assert_array_equal(t.states, t.observations)
        assert not steps(truncated=None).truncated.any()

    def test_images_and_continuous_actions_stay_as_they_are(self) -> None:
        t = images(actions=np.linspace(0, 1, 8, dtype=np.float32).reshape(4, 2))
        assert t.observations.dtype == t.next_observations.dtype == np.uint8
        assert t.actions.dtype == np.float32
        assert t.actions.shape == (4, 2)
        assert (t.states, t.num_states, t.num_actions) == (None, None, None)
        assert repr(t) == (
            "Transitions(4 steps, 1 episode, observations (3, 2) uint8, actions (2,) float32)"
        )

    def test_floats_are_no_ids(self) -> None:
        t = steps(observations=np.arange(4.0), next_observations=np.arange(4.0))
        assert t.states is None

    def test_repr(self) -> None:
        assert repr(steps()) == "Transitions(4 steps, 2 episodes, 3 states, 2 actions)"
        one = Transitions(*map(np.array, ([0], [0], [0], [0], [0])))
        assert repr(one) == "Transitions(1 step, 1 episode, 1 state, 1 action)"
        many = images(1000, num_actions=4)
        assert repr(many).startswith("Transitions(1,000 steps, 1 episode, observations (3, 2) u")

    def test_arrays_are_copied_and_frozen(self) -> None:
        rewards = np.zeros(4)
        t = steps(rewards=rewards, positions=np.zeros((3, 2)))
        rewards[0] = 9
        assert t.rewards[0] == 0
        for name in (*COLUMNS, "positions"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(t, name)[0] = 1
        with pytest.raises(dataclasses.FrozenInstanceError):
            t.rewards = rewards  # type: ignore[misc]

    def test_immutable_arrays_are_not_copied(self) -> None:
        t = images()
        again = images(observations=t.observations)
        assert again.observations is t.observations

    def test_metadata_are_stored_as_json(self) -> None:
        metadata = {"environment": "x", "sizes": (1, 2)}
        t = steps(metadata=metadata)
        metadata["environment"] = "y"
        assert t.metadata == {"environment": "x", "sizes": [1, 2]}

    def test_end_names_a_state_only_without_terminated_steps(self) -> None:
        names = ("a", "b", "end")
        assert steps(names=names, terminated=np.zeros(4, bool)).names == names
        with pytest.raises(InputError, match="state 2 is named 'end', the name of the terminal"):
            steps(names=names)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"rewards": [0.0] * 3}, "rewards have 3 steps and observations 4; give one per step"),
    ({"actions": [0] * 5}, "actions have 5 steps and observations 4"),
    ({"next_observations": [0] * 5}, "next_observations have 5 steps and observations 4"),
    ({"terminated": False}, "terminated have one number and observations 4"),
    ({"truncated": [True]}, "truncated have 1 steps"),
    ({"states": [0] * 3, "next_states": [0] * 4}, "states have 3 steps"),
    ({"observations": [], "next_observations": []}, "there are no steps; give at least one"),
    ({"rewards": [0, np.nan, 0, 0]}, r"rewards\[1\] is nan and must be finite"),
    ({"rewards": [0, 0, 0, -np.inf]}, r"rewards\[3\] is -inf and must be finite"),
    ({"rewards": [[0]] * 4}, r"rewards have shape \(4, 1\) and must be \(4,\), one per step"),
    ({"rewards": ["a"] * 4}, "rewards are <U1 and must be numbers"),
    ({"rewards": [[0], [0, 1], [0], [0]]}, "rewards must be an array of numbers"),
    (
        {
            "observations": np.full((4, 2), np.inf),
            "next_observations": np.zeros((4, 2)),
        },
        r"observations\[0, 0\] is inf and must be finite",
    ),
    (
        {
            "observations": np.zeros((4, 2)),
            "next_observations": np.array([[0, 0]] * 3 + [[0, np.nan]]),
        },
        r"next_observations\[3, 1\] is nan",
    ),
    (
        {"observations": np.zeros((4, 2)), "next_observations": np.zeros((4, 3))},
        r"next_observations are float64 of shape \(4, 3\) and must be like observations, float64 "
        r"of shape \(4, 2\)",
    ),
    ({"next_observations": np.zeros(4)}, "next_observations are float64 .* like observations, int"),
    ({"observations": np.zeros(4, complex)}, "observations are complex128 and must be numbers"),
    ({"actions": [0, 1, 2.5, 0]}, r"actions\[2\] is 2.5 and must be a whole .* shape \(steps, k\)"),
    ({"actions": [0, -1, 0, 0]}, r"actions\[1\] is -1 and must be a whole number, at least 0"),
    ({"actions": [0.0, np.nan, 0, 0]}, r"actions\[1\] is nan"),
    ({"actions": np.full((4, 1), np.inf)}, r"actions\[0, 0\] is inf"),
    ({"actions": np.zeros((4, 1), int)}, r"actions are int64 of shape \(4, 1\) and must be whole"),
    ({"actions": np.zeros((4, 1, 1))}, r"actions are float64 of shape \(4, 1, 1\)"),
    ({"num_actions": 1}, r"actions\[1\] is 1 and must be from 0 to 0; there are 1 actions"),
    ({"num_actions": 0}, "num_actions is 0 and must be a whole number, at least 1"),
    ({"num_actions": 2.5}, "num_actions is 2.5 and must be"),
    ({"actions": np.zeros((4, 1)), "num_actions": 2}, "num_actions needs discrete actions"),
    ({"terminated": [0, 2, 0, 0]}, r"terminated\[1\] is 2 and must be true or false"),
    ({"truncated": [0, 0.5, 0, 0]}, r"truncated\[1\] is 0.5 and must be true or false"),
    ({"states": [0] * 4}, "next_states are not given; give both"),
    ({"next_states": [0] * 4}, "states are not given; give both"),
    ({"states": [0, 0.5, 0, 0], "next_states": [0] * 4}, r"states\[1\] is 0.5 and must be a whole"),
    ({"states": [0] * 4, "next_states": [0, 0, 0, -2]}, r"next_states\[3\] is -2 and must be a wh"),
    (
        {"states": np.full(4, 2**63, np.uint64), "next_states": [0] * 4},
        r"states\[0\] is 9223372036854775808",
    ),
    ({"observations": [0, -1, 0, 0]}, r"observations\[1\] is -1 .* the id of a state; give states"),
    ({"num_states": 2}, r"states\[3\] is 2 and must be from 0 to 1; there are 2 states"),
    ({"num_states": "x"}, "num_states is 'x' and must be a whole number"),
    ({"names": ("a", "b")}, "there are 2 state names and must be 3, .* give num_states where"),
    ({"names": ("a", "b", "a")}, "the state name 'a' occurs twice"),
    ({"action_names": ("a",)}, "there are 1 action names and must be 2"),
    ({"action_names": ("x", "x")}, "the action name 'x' occurs twice"),
    ({"positions": np.zeros((2, 2))}, r"positions have shape \(2, 2\) and must be \(3, 2\)"),
    ({"positions": np.full((3, 2), np.nan)}, r"positions\[0, 0\] is nan"),
    ({"metadata": {"rng": np.random}}, "metadata must be a dict of texts, numbers and lists"),
    ({"metadata": ["x"]}, "metadata must be a dict of texts"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_bad_input_raises_in_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        steps(**changes)
    said = str(caught.value)
    assert said.startswith("Transitions: ")
    assert said.endswith(".")
    assert "\n" not in said


@pytest.mark.parametrize("field", ["num_states", "names", "positions"])
def test_functions_that_need_ids_raise_without_them(field: str) -> None:
    value: Any = {"num_states": 3, "names": ("a",), "positions": np.zeros((1, 2))}[field]
    with pytest.raises(InputError, match=r"needs? ids of states"):
        images(**{field: value})


def test_non_finite_entries_are_found_in_any_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bisimetric.transitions._validation.BLOCK_ENTRIES", 6)
    pictures = np.zeros((10, 2, 2))
    for step in range(10):
        wrong = pictures.copy()
        wrong[step, 1, 0] = np.nan
        with pytest.raises(InputError, match=rf"observations\[{step}, 1, 0\] is nan"):
            Transitions(wrong, np.zeros(10), np.zeros(10), pictures, np.zeros(10))


class TestIndexing:
    def test_slices_masks_and_indices(self) -> None:
        t = steps(names=("a", "b", "c"), metadata={"seed": 1}, num_actions=5)
        for which in (slice(1, 3), np.array([False, True, True, False]), np.array([1, 2]), [1, -2]):
            part = t[which]
            assert part.rewards.tolist() == [1.0, 0.5]
            assert (part.num_states, part.num_actions, part.names) == (3, 5, t.names)
            assert part.metadata == t.metadata
            with pytest.raises(ValueError, match="read-only"):
                part.rewards[0] = 1
        assert len(t[::2]) == 2
        assert (t[2:].terminal_state, t[:2].terminal_state) == (None, 3)

    @pytest.mark.parametrize(
        ("which", "message"),
        [
            (2, "2 selects no steps; give a slice, a mask or"),
            ("rewards", "'rewards' selects no steps"),
            (np.zeros((2, 2), int), "selects no steps"),
            (np.array([4]), "there are 4 steps, and index 4 is out of bounds"),
            (np.array([True]), "there are 4 steps, and boolean index"),
            (slice(2, 2), "none of the 4 steps is selected"),
            (np.zeros(4, bool), "none of the 4 steps is selected"),
        ],
    )
    def test_bad_choices(self, which: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            _ = steps()[which]


class TestFiles:
    @settings(deadline=None, max_examples=scaled(40))
    @given(recordings())
    def test_saved_files_are_read_back(self, t: Transitions) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "data.npz")
            t.save(path)
            same(Transitions.load(path), t)
            assert [file.name for file in path.parent.iterdir()] == ["data.npz"]

    def test_all_fields_are_read_back(self, tmp_path: Path) -> None:
        t = steps(
            states=np.array([3, 1, 0, 2]),
            next_states=np.array([1, 2, 2, 0]),
            num_states=5,
            num_actions=3,
            names=("a", "b", "ä", "", "e e"),
            action_names=("x", "y", "z"),
            positions=np.arange(10.0).reshape(5, 2),
            metadata={"environment": "Lake-v1", "nested": {"keys": [1, 2]}},
        )
        t.save(tmp_path / "data.npz")
        same(Transitions.load(tmp_path / "data.npz"), t)

    def test_plain_numpy_reads_it(self, tmp_path: Path) -> None:
        steps(metadata={"seed": 3}).save(tmp_path / "data.npz")
        with np.load(tmp_path / "data.npz", allow_pickle=False) as file:
            assert file["rewards"].tolist() == steps().rewards.tolist()
            assert "states" not in file  # the observations are the ids
            about = json.loads(str(file["about"]))
        assert about["format"] == "bisimetric transitions, version 1"
        assert (about["num_states"], about["num_actions"], about["metadata"]) == (3, 2, {"seed": 3})

    def test_observations_can_be_left_unread(self, tmp_path: Path) -> None:
        path = tmp_path / "data.npz"
        ids = np.array([0, 1, 0, 1])
        images(states=ids, next_states=ids[::-1]).save(path)
        light = Transitions.load(path, observations=False)
        assert light.observations.tolist() == ids.tolist()
        assert light.successors.tolist() == ids[::-1].tolist()
        steps().save(path)
        same(Transitions.load(path, observations=False), steps())
        images().save(path)
        same(Transitions.load(path, observations=False), images())

    def test_a_failed_save_keeps_the_old_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "data.npz"
        steps().save(path)
        before = path.read_bytes()

        def interrupt(file: Any, **_: Any) -> None:
            file.write(b"half")
            raise KeyboardInterrupt

        monkeypatch.setattr(np, "savez", interrupt)
        with pytest.raises(KeyboardInterrupt):
            images().save(path)
        assert path.read_bytes() == before
        assert [file.name for file in tmp_path.iterdir()] == ["data.npz"]

    def test_every_truncation_raises(self, tmp_path: Path) -> None:
        path = tmp_path / "data.npz"
        steps().save(path)
        whole = path.read_bytes()
        for size in range(0, len(whole), 97):
            path.write_bytes(whole[:size])
            with pytest.raises(InputError, match=r"data.npz is cut short or no file of transition"):
                Transitions.load(path)

    @pytest.mark.parametrize(
        ("change", "complaint"),
        [
            ({"about": None}, "it has no 'about'"),
            ({"about": np.array("{}")}, "it has no 'format'"),
            ({"about": np.array("[]")}, "it has no 'format'"),
            ({"about": np.array("no JSON")}, "it has no 'about'"),
            (
                {"about": np.array('{"format": "bisimetric transitions, version 9"}')},
                "its format is 'bisimetric transitions, version 9'",
            ),
            ({"rewards": None}, "it has no 'rewards'"),
            ({"rewards": np.zeros(3)}, r"Transitions: rewards have 3 steps"),
            ({"names": np.array(["a"])}, "there are 1 state names"),
            ({"actions": np.array([0, 1, 9, 0])}, r"actions\[2\] is 9 and must be from 0 to 1"),
            ({"rewards": np.array([{}] * 4)}, "cut short or no file of transitions"),
        ],
    )
    def test_foreign_files_raise(
        self, tmp_path: Path, change: dict[str, Any], complaint: str
    ) -> None:
        path = tmp_path / "data.npz"
        steps().save(path)
        with np.load(path) as file:
            arrays = {**file, **change}
        np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
        with pytest.raises(InputError, match=complaint) as caught:
            Transitions.load(path)
        assert "data.npz" in str(caught.value)
        assert str(caught.value).endswith("Transitions.save.")

    def test_a_table_of_distances_is_no_recording(self, tmp_path: Path) -> None:
        path = tmp_path / "d.npz"
        exact.bisimulation(worlds.load("pessimism")).save(path)
        with pytest.raises(
            InputError, match=r"no file of transitions .*format is 'bisimetric dist"
        ):
            Transitions.load(path)
        steps().save(path)
        with pytest.raises(InputError, match=r"d\.npz is no distance file"):
            Distance.load(path)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"cannot read .*none\.npz"):
            Transitions.load(tmp_path / "none.npz")
        with pytest.raises(FileNotFoundError, match=r"make the folder .*nowhere first"):
            steps().save(tmp_path / "nowhere" / "data.npz")
