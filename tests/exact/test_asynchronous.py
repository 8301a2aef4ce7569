"""Asynchronous updates: bounds that hold for any schedule, and converge to the distance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import MDP, DistanceBounds, InputError, NotConverged, exact, worlds
from tests.property_testing import scaled
from tests.strategies import stochastic_mdps

KINDS = ("bisimulation", "on_policy", "lax")


def compute_reference(mdp: MDP, kind: str, policy: Any) -> Any:
    if kind == "on_policy":
        return exact.on_policy(mdp, policy, tol=1e3)
    return getattr(exact, kind)(mdp, tol=1e3)


@settings(max_examples=scaled(40), deadline=None)
@given(stochastic_mdps(available=True), st.sampled_from(KINDS), st.integers(0, 2**16))
def test_bounds_hold_after_any_blocks(mdp: MDP, kind: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    policy = mdp.action_mask / mdp.action_mask.sum(axis=1, keepdims=True)
    policy = policy if kind == "on_policy" else None
    blocks = [rng.integers(mdp.num_states, size=(rng.integers(1, 6), 2)) for _ in range(20)]
    d = compute_reference(mdp, kind, policy)
    previous = None
    for count in (1, 20):
        bounds = exact.asynchronous(mdp, kind=kind, policy=policy, schedule=blocks[:count])
        assert (bounds.lower <= d.values + d.error).all()
        assert (d.values - d.error <= bounds.upper).all()
        if previous is not None:  # bounds never widen
            assert (previous.lower <= bounds.lower).all()
            assert (bounds.upper <= previous.upper).all()
        previous = bounds


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schedule", ["round_robin", "uniform", "widest"])
def test_every_schedule_converges(kind: Any, schedule: Any) -> None:
    mdp = worlds.load("random", states=7, actions=2, successors=3, discount=0.7, seed=1)
    policy = [0, 1, 0, 1, 0, 1, 0] if kind == "on_policy" else None
    for block_size in (None, 1, 1000):
        bounds = exact.asynchronous(
            mdp, kind=kind, policy=policy, schedule=schedule, block_size=block_size, tol=1e-5
        )
        d, found = compute_reference(mdp, kind, policy), bounds.to_distance()
        assert found.error <= 1e-5 * (1 + 1e-9)
        assert np.abs(found.values - d.values).max() <= found.error + d.error


def test_one_block_of_all_pairs_is_value_iteration() -> None:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    pairs = np.argwhere(np.tri(31, k=-1, dtype=bool))
    lower = exact.asynchronous(mdp, schedule=[pairs] * 3).lower
    d = np.zeros((31, 31))
    for _ in range(3):
        backups = [
            np.abs(mdp.R[:, a, None] - mdp.R[:, a])
            + 0.9 * d[np.ix_(mdp.next_state[:, a], mdp.next_state[:, a])]
            for a in range(4)
        ]
        d = np.max(backups, axis=0)
    assert np.abs(lower - d).max() < 1e-13
    assert (lower <= d).all()


def test_only_chosen_pairs_change() -> None:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    bounds = exact.asynchronous(mdp, schedule=[[[3, 7], [7, 3], [5, 5]]])
    changed = np.argwhere(bounds.upper < mdp.diameter_bound * (1 - np.eye(31)))
    assert changed.tolist() == [[3, 7], [7, 3]]
    assert bounds.metadata["updates"] == 1


def test_an_iteration_continues_from_saved_bounds(tmp_path: Path) -> None:
    mdp = worlds.load("random", states=9, actions=2, successors=2, discount=0.9, seed=0)
    with pytest.raises(NotConverged, match="after 500 updates bounds differ by up to") as stop:
        exact.asynchronous(mdp, updates=500, tol=1e-6)
    stop.value.partial.save(tmp_path / "bounds.npz")  # type: ignore[union-attr]
    start = DistanceBounds.load(tmp_path / "bounds.npz")
    assert start.metadata["updates"] == 500
    more = exact.asynchronous(mdp, updates=500, start=start)
    assert more.max_width < start.max_width
    assert exact.asynchronous(mdp, start=more).max_width <= 2e-6


def test_rounding_ends_an_iteration_that_cannot_reach_tol() -> None:
    mdp = worlds.load("random", states=5, actions=2, successors=2, discount=0.5, seed=0)
    with pytest.raises(NotConverged) as stop:
        exact.asynchronous(mdp, tol=1e-17)
    assert stop.value.partial.max_width < 1e-13  # type: ignore[union-attr]


def test_states_with_different_labels_are_at_the_diameter_bound() -> None:
    mdp = MDP.deterministic([[0], [1]], [[0.0], [0.0]], discount=0.5, labels=["x", "y"])
    lower, upper = exact.asynchronous(mdp).bounds(0, 1)
    assert lower <= 2 <= upper
    assert upper - lower < 1e-14
    one = MDP.deterministic([[0]], [[0.0]], discount=0.5)
    assert exact.asynchronous(one).max_width == 0


def test_labels_of_a_chain_whose_reward_range_may_be_zero() -> None:
    """Where all rewards are equal, labels count as 1 per step; rounding hides whether they are."""
    R = [[0.1, 0.3], [0.3, 0.1]]
    mdp = MDP.deterministic([[0, 0], [1, 1]], R, discount=0.5, labels=["x", "y"])
    for policy in ([[0.7, 0.3], [0.3, 0.7]], [[0.5, 0.5], [0.5, 0.5]]):
        bounds = exact.asynchronous(mdp, kind="on_policy", policy=policy, updates=10)
        lower, upper = bounds.bounds(0, 1)
        assert lower == 0
        assert 2 <= upper < 2 + 1e-12
    # Deterministic policies have exact rewards.
    lower, upper = exact.asynchronous(mdp, kind="on_policy", policy=[0, 1]).bounds(0, 1)
    assert 2 - 1e-12 < lower <= 2 <= upper


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "mico"}, "kind is 'mico' and must be one of"),
        ({"policy": [0]}, "policy is for kind='on_policy'"),
        ({"schedule": "random"}, "schedule is 'random' and must be one of"),
        ({"schedule": [[[0, 9]]]}, r"block 0 of schedule is int64 of shape \(1, 2\)"),
        ({"updates": 0}, "updates is 0 and must be a whole number"),
        ({"tol": -1.0}, "tol is -1.0 and must be above 0"),
        ({"start": 3}, "start must be certain DistanceBounds"),
    ],
)
def test_invalid_arguments_are_named(options: Any, message: str) -> None:
    mdp = MDP.deterministic([[0], [1]], [[0.0], [1.0]], discount=0.5)
    with pytest.raises(InputError, match=message):
        exact.asynchronous(mdp, **options)


def test_bounds_of_another_distance_and_observations_are_rejected() -> None:
    mdp = MDP.deterministic([[0], [1]], [[0.0], [1.0]], discount=0.5)
    with pytest.raises(InputError, match="start is bisimulation of 2 states and must be lax"):
        exact.asynchronous(mdp, kind="lax", start=exact.asynchronous(mdp))
    with pytest.raises(InputError, match="observations"):
        exact.asynchronous(mdp.replace(observations=[[0], [1]]))
