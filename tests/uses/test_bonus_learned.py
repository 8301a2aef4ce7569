"""`uses.bonus` with a distance that a network learned."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np
import pytest

from bisimetric import learned, uses, worlds
from tests.learned_references import compile_quickly  # noqa: F401 - a fixture


def steps(environment: Any, count: int) -> list[Any]:
    """The steps of a random walk."""
    found = []
    environment.reset(seed=0)
    for action in np.random.default_rng(0).integers(4, size=count).tolist():
        found.append(environment.step(action))
        if found[-1][2] or found[-1][3]:
            environment.reset()
    return found


@pytest.mark.slow
def test_a_network_of_states_and_of_observations() -> None:
    mdp = worlds.load("FrozenLake-v1", is_slippery=False, discount=0.5)
    network = learned.bisimulation(mdp, updates=2)
    by_id = uses.bonus("FrozenLake-v1", network, is_slippery=False)
    steps(by_id, 10)
    assert isinstance(by_id.visits, uses.VisitCounts)
    assert len(by_id.visits.counts) == 16
    seen = dataclasses.replace(network, mdp=None, points=None, names=None)
    corner = gymnasium.wrappers.TransformObservation(
        gymnasium.make("FrozenLake-v1"),
        lambda place: np.array(divmod(int(place), 4), np.float32),
        gymnasium.spaces.Box(0, 3, (2,)),
    )
    by_sight = uses.bonus(corner, seen, radius=0.5)
    found = steps(by_sight, 10)
    assert isinstance(by_sight.visits, uses.EpisodicMemory)
    assert all(0 < each[4]["bonus"] <= 1 for each in found)
