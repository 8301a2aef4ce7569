"""Rollouts in MiniGrid's rooms: against the world that was walked through, and its clock."""

from __future__ import annotations

from typing import Any

import gymnasium
import minigrid  # registers its environments
import numpy as np
import pytest

from bisimetric import datasets, worlds

assert minigrid


@pytest.mark.parametrize(
    "name", ["MiniGrid-Empty-5x5-v0", "MiniGrid-FourRooms-v0", "MiniGrid-DoorKey-5x5-v0"]
)
def test_states_have_the_names_of_the_enumerated_mdp(name: str) -> None:
    steps = datasets.rollout(name, steps=2000, seed=7, environment_seed=2)
    world = worlds.enumerate_environment(name, seed=2)
    assert steps.names is not None
    assert steps.states is not None
    assert steps.action_names == world.actions
    for s, a, r, n in zip(
        steps.states, steps.actions, steps.rewards, steps.successors, strict=True
    ):
        here = world.state(steps.names[s])
        there = "end" if n == steps.terminal_state else steps.names[n]
        assert world.state_name(int(world.next_state[here, a])) == there
        assert world.R[here, a] == r
    if steps.positions is not None:
        assert world.positions is not None
        for s in np.unique(steps.states):
            at = world.positions[world.state(steps.names[s])]
            np.testing.assert_array_equal(steps.positions[s], at)
    assert (steps.positions is None) == ("DoorKey" in name)
    assert steps.observations.shape == (2000, 7, 7, 3)


def test_the_step_count_stays_0_and_episodes_are_truncated() -> None:
    steps = datasets.rollout("MiniGrid-Empty-5x5-v0", steps=1500)
    ends = steps.terminated
    assert ends.any()
    assert (steps.rewards[ends] == 1).all()
    lengths = [len(episode) for episode in steps.episodes()]
    assert max(lengths) == 100
    short = datasets.rollout("MiniGrid-Empty-5x5-v0", steps=300, max_episode_steps=12)
    assert max(len(episode) for episode in short.episodes()) == 12


def test_every_episode_starts_in_the_same_room_or_not() -> None:
    def starts(**options: Any) -> set[bytes]:
        steps = datasets.rollout(
            "MiniGrid-FourRooms-v0", steps=120, max_episode_steps=10, **options
        )
        assert (steps.names is None) == (options.get("same_start") is False)
        return {episode.observations[0].tobytes() for episode in steps.episodes()}

    assert len(starts()) == 1
    assert starts(seed=1) != starts()
    assert len(starts(same_start=False)) > 6


def test_a_wrapper_that_leaves_fewer_actions_leaves_no_names_of_them() -> None:
    whole = gymnasium.make("MiniGrid-Empty-5x5-v0")
    fewer: Any = gymnasium.wrappers.TransformAction(
        whole, lambda action: action, gymnasium.spaces.Discrete(3)
    )
    steps = datasets.rollout(fewer, steps=50)
    assert (steps.num_actions, steps.action_names) == (3, None)
    assert datasets.rollout(whole, steps=50).action_names is not None
