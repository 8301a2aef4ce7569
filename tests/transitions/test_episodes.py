"""Episodes of transitions: told apart, dealt to parts, and joined again."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric.errors import InputError
from bisimetric.transitions import Transitions
from tests.property_testing import scaled
from tests.sample_transitions import images, recordings, same, steps


class TestEpisodes:
    @settings(deadline=None, max_examples=scaled(60))
    @given(recordings())
    def test_episodes_partition_the_recording(self, t: Transitions) -> None:
        episodes = list(t.episodes())
        for episode in episodes:
            ended = episode.terminated | episode.truncated
            assert ended[-1]
            assert not ended[:-1].any()
        same(Transitions.concatenate(episodes), t)

    def test_the_last_may_be_open(self) -> None:
        t = steps(truncated=None)
        assert [len(episode) for episode in t.episodes()] == [2, 2]

    @settings(deadline=None, max_examples=scaled(60))
    @given(recordings(), st.integers(1, 3), st.integers(0, 99))
    def test_parts_of_a_split_hold_each_episode_once(
        self, t: Transitions, parts: int, key: int
    ) -> None:
        numbered = dataclasses.replace(t, rewards=np.arange(float(len(t))))
        episodes = [tuple(each.rewards) for each in numbered.episodes()]
        fractions = [1 / parts] * parts
        if len(episodes) < parts:
            with pytest.raises(InputError, match=f"{len(episodes)} episodes cannot be split into"):
                numbered.split(*fractions, seed=key)
            return
        split = numbered.split(*fractions, seed=key)
        assert len(split) == parts
        again = [tuple(each.rewards) for each in Transitions.concatenate(split).episodes()]
        assert sorted(again) == sorted(episodes)
        for one, other in zip(split, numbered.split(*fractions, seed=key), strict=True):
            same(one, other)

    def test_shares_come_near(self) -> None:
        rng = np.random.default_rng(5)
        ended = rng.random(20_000) < 0.02
        t = Transitions(np.zeros((20_000, 1)), ended * 0, ended * 0, np.zeros((20_000, 1)), ended)
        longest = max(len(episode) for episode in t.episodes())
        for fractions in [(0.8, 0.2), (0.5, 0.3, 0.2), (1.0,)]:
            sizes = np.array([len(part) for part in t.split(*fractions, seed=1)])
            assert sizes.sum() == len(t)
            assert abs(sizes - 20_000 * np.array(fractions)).max() < longest / 2

    def test_few_long_episodes_go_where_they_fit(self) -> None:
        terminated = np.zeros(100, bool)
        terminated[[0, 99]] = True
        t = images(100, terminated=terminated)
        for key in range(20):
            assert [len(part) for part in t.split(0.9, 0.1, seed=key)] == [99, 1]

    @pytest.mark.parametrize(
        ("fractions", "sizes"),
        [
            ((0.4, 0.6), [10, 20]),
            ((0.6, 0.4), [20, 10]),
            ((0.01, 0.99), [10, 20]),
            ((0.01, 0.01, 0.98), [10, 10, 10]),
            ((0.98, 0.01, 0.01), [10, 10, 10]),
            ((1.000000005, 1e-9), [20, 10]),
        ],
    )
    def test_every_part_gets_an_episode(
        self, fractions: tuple[float, ...], sizes: list[int]
    ) -> None:
        t = images(30, terminated=np.arange(30) % 10 == 9)
        for key in range(5):
            assert [len(part) for part in t.split(*fractions, seed=key)] == sizes

    def test_another_seed_gives_another_split(self) -> None:
        t = images(100, terminated=np.ones(100, bool))
        drawn = {tuple(t.split(0.5, 0.5, seed=key)[0].rewards) for key in range(5)}
        assert len(drawn) == 5

    @pytest.mark.parametrize(
        "fractions", [(), (0.5,), (0.5, 0.6), (1.5, -0.5), (1.0, 0.0), (np.nan,), ("a",)]
    )
    def test_bad_fractions(self, fractions: Any) -> None:
        with pytest.raises(
            InputError, match=r"split: the fractions are .* must be positive and sum"
        ):
            steps().split(*fractions, seed=0)

    @pytest.mark.parametrize("seed", [-1, 0.5, None])
    def test_bad_seeds(self, seed: Any) -> None:
        with pytest.raises(InputError, match=r"split: seed is .* and must be a whole number"):
            steps().split(0.5, 0.5, seed=seed)
        with pytest.raises(InputError, match="sample: seed is"):
            steps().sample(1, seed)

    def test_samples(self) -> None:
        t = images(50)
        drawn = t.sample(50, 3)
        assert sorted(drawn.rewards) == sorted(t.rewards)
        assert drawn.rewards.tolist() != t.rewards.tolist()
        same(t.sample(7, 4), t.sample(7, 4))
        assert t.sample(7, 4).rewards.tolist() != t.sample(7, 5).rewards.tolist()
        assert len(t.sample(200, 0, replacement=True)) == 200
        with pytest.raises(InputError, match="n is 51 and there are 50 steps; draw fewer"):
            t.sample(51, 0)
        with pytest.raises(InputError, match="n is 0 and must be a whole number, at least 1"):
            t.sample(0, 0)


class TestConcatenate:
    def test_names_decide_the_ids(self) -> None:
        one = steps(names=("a", "b", "c"), positions=np.array([[0, 0], [0, 1], [0, 2]]))
        other = steps(names=("c", "d", "a"), positions=np.array([[0, 2], [5, 5], [0, 0]]))
        both = Transitions.concatenate([one, other])
        assert both.names == ("a", "b", "c", "d")
        assert both.num_states == 4
        assert both.states is not None
        assert both.next_states is not None
        assert both.states.tolist() == [0, 1, 0, 2, 2, 3, 2, 0]
        assert both.next_states.tolist() == [1, 2, 2, 0, 3, 0, 0, 2]
        assert both.observations.tolist() == both.states.tolist()
        assert both.positions is not None
        assert both.positions.tolist() == [[0, 0], [0, 1], [0, 2], [5, 5]]

    def test_observations_that_are_no_ids_stay(self) -> None:
        ids: dict[str, Any] = {"states": np.array([0, 1, 0, 1]), "next_states": np.ones(4, int)}
        one, other = images(names=("a", "b"), **ids), images(names=("b", "a"), **ids)
        both = Transitions.concatenate([one, other])
        np.testing.assert_array_equal(both.observations[4:], other.observations)
        assert both.observations.dtype == np.uint8
        assert both.states is not None
        assert both.states.tolist() == [0, 1, 0, 1, 1, 0, 1, 0]

    def test_without_names_ids_are_the_same_ids(self) -> None:
        both = Transitions.concatenate(iter([steps(), steps(num_states=9)]))
        assert both.num_states == both.terminal_state == 9
        assert both.names is None

    def test_metadata_of_the_parts(self) -> None:
        one, other = steps(metadata={"seed": 1}), steps(metadata={"seed": 2})
        assert Transitions.concatenate([one, one]).metadata == {"seed": 1}
        assert Transitions.concatenate([one, other]).metadata == {
            "parts": [{"seed": 1}, {"seed": 2}]
        }

    def test_actions_are_named_by_any_part(self) -> None:
        named = steps(action_names=("x", "y"))
        assert Transitions.concatenate([steps(), named]).action_names == ("x", "y")

    def test_an_open_part_continues_or_is_truncated(self) -> None:
        t = images(6)
        same(Transitions.concatenate([t[:2], t[2:]]), t)
        assert len(list(Transitions.concatenate([t[:2], t[3:]]).episodes())) == 2
        last = images(6, terminated=np.array([0, 1, 0, 0, 0, 0]))
        assert not Transitions.concatenate([last[:2], last[3:]]).truncated.any()

    def test_incomplete_positions_are_left_out(self) -> None:
        one, other = steps(positions=np.zeros((3, 2))), steps(num_states=4)
        assert Transitions.concatenate([one, other]).positions is None
        assert Transitions.concatenate([one, steps()]).positions is not None

    @pytest.mark.parametrize(
        ("parts", "message"),
        [
            ([], "there is nothing to concatenate"),
            ([steps(), images()], r"part 1 has observations \(3, 2\) uint8 and part 0 has \(\) in"),
            ([steps(), steps(actions=np.zeros((4, 1)))], r"part 1 has actions \(1,\) float64"),
            ([steps(), steps(), steps(num_actions=3)], "part 2 has 3 actions and part 0 has 2"),
            ([steps(), steps(names=("a", "b", "c"))], "of part 1 and part 0 only one has names"),
            (
                [
                    images(),
                    images(states=np.zeros(4, int), next_states=np.zeros(4, int)),
                ],
                "only one has states; give states to all",
            ),
            (
                [steps(action_names=("x", "y")), steps(action_names=("y", "x"))],
                "name their actions x, y and y, x",
            ),
            (
                [steps(positions=np.zeros((3, 2))), steps(positions=np.eye(3)[:, :2])],
                r"part 1 puts state 0 at \[1.0, 0.0\] and a part before it at \[0.0, 0.0\]",
            ),
            (
                [steps(names=("a", "b", "c")), steps(names=("c", "b", "end"), terminated=[0] * 4)],
                "state 3 is named 'end'",
            ),
        ],
    )
    def test_parts_must_be_compatible(self, parts: list[Transitions], message: str) -> None:
        with pytest.raises(InputError, match=message):
            Transitions.concatenate(parts)
