"""The MDP that transitions tell of, from Python, from a file and from the command line."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric import exact, worlds
from bisimetric.distance import Distance
from bisimetric.errors import InputError, InsufficientMemory, MissingActionsWarning
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions
from bisimetric.transitions.empirical_mdp import mean_rewards
from tests.commands import Run
from tests.property_testing import scaled
from tests.sample_transitions import images, recordings, same_mdp, steps, walk
from tests.strategies import REWARDS, deterministic_mdps


class TestModel:
    @settings(deadline=None, max_examples=scaled(100))
    @given(deterministic_mdps(), st.integers(0, 20), st.integers(0, 99))
    def test_a_deterministic_mdp_is_recovered(self, mdp: MDP, times: int, key: int) -> None:
        again = walk(mdp, times, key).to_mdp(discount=mdp.discount)
        same_mdp(again, mdp)
        assert again.available is None
        assert again.is_deterministic

    @settings(deadline=None, max_examples=scaled(100))
    @given(recordings(max_steps=30), st.integers(0, 99))
    def test_frequencies_and_means(self, t: Transitions, key: int) -> None:
        if t.states is None or t.num_states is None or t.num_actions is None:
            with pytest.raises(InputError, match=r"ids of states|actions are continuous"):
                t.to_mdp()
            return
        mdp = t.to_mdp(unseen="missing")
        assert mdp.num_states == t.num_states + (t.terminal_state is not None)
        for s in range(mdp.num_states):
            for a in range(t.num_actions):
                here = (t.states == s) & (t.actions == a)
                row = mdp.P[[s * t.num_actions + a]].toarray()[0]
                if here.any():
                    shares = np.bincount(t.successors[here], minlength=mdp.num_states) / here.sum()
                    np.testing.assert_allclose(row, shares, rtol=1e-15)
                    assert mdp.R[s, a] == pytest.approx(t.rewards[here].mean(), abs=1e-12)
                    assert mdp.action_mask[s, a]
                else:
                    assert row[s] == 1
                    assert mdp.R[s, a] == 0
                    assert mdp.action_mask[s, a] == (s not in t.states)
        shuffled = t[np.random.default_rng(key).permutation(len(t))].to_mdp(unseen="missing")
        same_mdp(shuffled, mdp)

    def test_a_common_reward_is_exact(self) -> None:
        same_spot = np.zeros(3, int)
        for reward in (0.1, 1 / 3, 1e300, -0.7):
            t = Transitions(same_spot, same_spot, np.full(3, reward), same_spot, same_spot)
            assert t.to_mdp().R.tolist() == [[reward]]
            assert t[:1].to_mdp().R.tolist() == [[reward]]

    def test_the_terminal_state_is_absorbing_and_has_a_name(self) -> None:
        t = walk(worlds.load("random", states=5, actions=2), 0, 0, np.arange(5) == 3)
        mdp = t.to_mdp(discount=0.5)
        assert mdp.names == ("0", "1", "2", "3", "4", "end")
        assert mdp.next_state[5].tolist() == [5, 5]
        assert mdp.R[5].tolist() == [0, 0]
        assert (mdp.next_state != 3).all()
        assert mdp.discount == 0.5

    def test_names_positions_and_actions_come_along(self) -> None:
        every = np.arange(6)
        t = Transitions(
            every // 2,
            every % 2,
            every,
            (every // 2 + 1) % 3,
            every == 5,
            names=("a", "b", "c"),
            action_names=("x", "y"),
            positions=np.array([[0, 0], [0, 1], [4, 3]]),
        )
        mdp = t.to_mdp()
        assert mdp.names == ("a", "b", "c", "end")
        assert mdp.actions == ("x", "y")
        assert mdp.positions is not None
        assert mdp.positions.tolist() == [[0, 0], [0, 1], [4, 3], [6, 1]]
        assert mdp.discount == 0.99
        alive = dataclasses.replace(t, terminated=np.zeros(6, bool)).to_mdp()
        assert alive.names == ("a", "b", "c")
        assert alive.positions is not None
        assert len(alive.positions) == 3

    def test_without_names_and_end_there_are_no_names(self) -> None:
        assert walk(worlds.load("random", states=5), 0, 0).to_mdp().names is None

    def test_a_truncated_step_leads_to_its_next_state(self) -> None:
        cut = Transitions(*map(np.array, ([0, 1], [0, 0], [1, 2], [1, 0], [0, 0], [1, 1])))
        assert cut.terminal_state is None
        assert cut.to_mdp().next_state.tolist() == [[1], [0]]
        ended = dataclasses.replace(cut, terminated=np.array([False, True]))
        assert ended.to_mdp().next_state.tolist() == [[1], [2], [2]]

    def test_unseen_actions_raise(self) -> None:
        t = steps(names=("a", "b", "c"), action_names=("left", "right"))
        with pytest.raises(InputError) as caught:
            t.to_mdp()
        message = str(caught.value)
        for part in ("action left", "state b", "one of 2 gaps in 6", "unseen='missing'"):
            assert part in message
        with pytest.raises(InputError, match="action 0 was never taken in state 1, one of 2 gaps"):
            steps().to_mdp()

    def test_unseen_actions_can_be_missing(self) -> None:
        mdp = steps().to_mdp(unseen="missing")
        assert mdp.available is not None
        assert mdp.available.tolist() == [[1, 1], [0, 1], [1, 0], [1, 1]]
        assert mdp.next_state.tolist() == [[1, 2], [1, 3], [0, 2], [3, 3]]
        assert mdp.R.tolist() == [[0, 0.5], [0, 1], [-1, 0], [0, 0]]

    def test_a_state_that_was_never_left_stays_on_the_spot(self) -> None:
        t = steps()[:3]  # enters state 2 alive and stops there
        with pytest.raises(InputError, match="action 0 was never taken in state 1, one of 3 gaps"):
            t.to_mdp()
        mdp = t.to_mdp(unseen="missing")
        assert mdp.next_state[2].tolist() == [2, 2]
        assert mdp.action_mask[2].all()

    def test_holes_that_only_terminate_become_absorbing(self) -> None:
        lake = worlds.load("FrozenLake-v1", is_slippery=False, discount=0.9)
        holes = (lake.next_state == np.arange(16)[:, None]).all(axis=1)
        t = walk(lake, 0, 0, holes)
        t = t[~holes[t.observations]]
        mdp = t.to_mdp(discount=0.9)  # nothing is unseen: no hole was ever entered alive
        assert mdp.num_states == 17
        for hole in np.flatnonzero(holes):
            assert (mdp.next_state[hole] == hole).all()
            assert (mdp.R[hole] == 0).all()
        mine, theirs = exact.bisimulation(mdp), exact.bisimulation(lake)
        alive = np.flatnonzero(~holes)
        np.testing.assert_allclose(
            mine.values[np.ix_(alive, alive)],
            theirs.values[np.ix_(alive, alive)],
            atol=mine.error + theirs.error,
        )
        assert mine("end", int(np.flatnonzero(holes)[0])) <= mine.error

    def test_unvisited_ids_are_absorbing(self) -> None:
        t = walk(worlds.load("random", states=4), 0, 0)
        mdp = dataclasses.replace(t, num_states=6).to_mdp()
        assert (mdp.next_state[4:] == [[4], [5]]).all()

    @pytest.mark.parametrize(
        ("t", "message"),
        [
            (images(), r"observations \(3, 2\) are no ids of states, .*give states=\.\.\. and"),
            (
                steps(actions=np.zeros((4, 2))),
                r"actions are continuous, \(2,\), and an MDP has finitely many; number them",
            ),
        ],
    )
    def test_data_without_an_mdp(self, t: Transitions, message: str) -> None:
        with pytest.raises(InputError, match=message):
            t.to_mdp()

    def test_other_words(self) -> None:
        with pytest.raises(InputError, match="unseen is 'guess' and must be raise or missing"):
            steps().to_mdp(unseen="guess")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="discount is 1 and must be"):
            steps().to_mdp(discount=1, unseen="missing")

    def test_scattered_ids_raise_before_memory_is_taken(self) -> None:
        far = np.array([0, 10**15, 0, 0])
        with pytest.raises(InsufficientMemory, match="number the states from 0 without gaps"):
            steps(observations=far).to_mdp()


class TestMeanRewards:
    @settings(deadline=None, max_examples=scaled(60))
    @given(st.lists(st.tuples(st.integers(0, 3), REWARDS), max_size=20), st.randoms())
    def test_means_do_not_depend_on_the_order(
        self, paid: list[tuple[int, float]], random: Any
    ) -> None:
        def means(outcomes: list[tuple[int, float]]) -> tuple[NDArray[Any], NDArray[Any]]:
            row = np.array([row for row, _ in outcomes], dtype=int)
            return mean_rewards(row, np.array([r for _, r in outcomes], dtype=float), 4)

        mean, differs = means(paid)
        for row in range(4):
            rewards = [r for each, r in paid if each == row]
            assert mean[row] == pytest.approx(np.mean(rewards) if rewards else 0.0, abs=1e-12)
            assert differs[row] == (len(set(rewards)) > 1)
        shuffled = random.sample(paid, len(paid))
        np.testing.assert_array_equal(means(shuffled)[0], mean)

    def test_sums_that_round_by_their_order_do_not(self) -> None:
        paid = np.array([0.1, 0.2, 0.3])
        assert paid.sum() != paid[::-1].sum()
        mean, _ = mean_rewards(np.repeat([0, 1], 3), np.concatenate([paid, paid[::-1]]), 2)
        assert mean[0] == mean[1]

    def test_non_finite_values_are_not_hidden(self) -> None:
        for reward in (np.inf, -np.inf, np.nan):
            mean, _ = mean_rewards(np.array([0]), np.array([reward]), 2, np.array([1.0]))
            assert not np.isfinite(mean[0])
            assert mean[1] == 0
        P = np.eye(2)[None]
        with pytest.raises(InputError, match=r"rewards\[0, 0\] is inf and must be finite"):
            worlds.from_matrices(P, np.where(P > 0, np.inf, 0.0), discount=0.9)


class TestWorlds:
    def test_load_distinguishes_recordings_from_matrices(self, tmp_path: Path) -> None:
        path = tmp_path / "data.npz"
        reference = worlds.load("random", states=6)
        walk(reference, 3, 0).save(path)
        same_mdp(worlds.load(path), reference)
        assert worlds.load(path, discount=0.5).discount == 0.5
        with pytest.raises(InputError, match=r"file of transitions .*no option 'first'; .* unseen"):
            worlds.load(path, first="states")

    def test_options_and_errors_name_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "data.npz"
        steps().save(path)
        with pytest.raises(InputError, match=r"data\.npz: action 0 was never taken in state 1"):
            worlds.load(path)
        with pytest.warns(
            MissingActionsWarning, match=r"data\.npz: 2 of 4 states lack some actions"
        ):
            mdp = worlds.load(path, unseen="missing")
        same_mdp(mdp, steps().to_mdp(unseen="missing"))
        with pytest.raises(InputError, match=r"data\.npz: unseen is 'x' and must be raise or m"):
            worlds.load(path, unseen="x")
        images().save(path)
        with pytest.raises(InputError, match=r"data\.npz: observations \(3, 2\) are no ids of s"):
            worlds.load(path)

    def test_another_version_is_no_matrix_file(self, tmp_path: Path) -> None:
        path = tmp_path / "data.npz"
        np.savez(path, about=np.array('{"format": "bisimetric transitions, version 9"}'))
        with pytest.raises(InputError, match="its format is 'bisimetric transitions, version 9'"):
            worlds.load(path)


class TestCommandLine:
    def test_exact_distances_of_recorded_data(self, run: Run, tmp_path: Path) -> None:
        walk(worlds.load("mirrored-rooms"), 0, 0).save(tmp_path / "data.npz")
        done = run("exact", "bisimulation", "data.npz", "--discount", "0.9", "-o", "d.npz")
        assert done.code == 0
        d = Distance.load(tmp_path / "d.npz")
        reference = exact.bisimulation(worlds.load("mirrored-rooms", discount=0.9))
        np.testing.assert_allclose(d.values, reference.values, atol=d.error + reference.error)

    def test_gaps_are_reported(self, run: Run, tmp_path: Path) -> None:
        steps().save(tmp_path / "data.npz")
        failed = run("exact", "bisimulation", "data.npz")
        assert failed.code != 0
        assert "data.npz: action 0 was never taken in state 1" in failed.err
        done = run("exact", "bisimulation", "data.npz", "--set", "unseen=missing")
        assert done.code == 0
        assert "data.npz: 2 of 4 states lack some actions" in done.err


def test_estimates_are_marked_and_stay_so_in_files(tmp_path: Path) -> None:
    mdp = steps().to_mdp(unseen="missing", discount=0.5)
    assert mdp.is_empirical
    exact.bisimulation(mdp).save(tmp_path / "d.npz")
    assert Distance.load(tmp_path / "d.npz").mdp.is_empirical
