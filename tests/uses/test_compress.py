"""Thinned buffers: against slow oracles, the promise as a law, and bad input."""

from __future__ import annotations

import dataclasses
import itertools
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric import (
    MDP,
    Coverage,
    Distance,
    InputError,
    Transitions,
    exact,
    planning,
    uses,
    worlds,
)
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps, stochastic_mdps

quick = settings(deadline=None, max_examples=scaled(60))


def steps_of(mdp: MDP, number: int, seed: int) -> Transitions:
    """Steps from random states with random actions that they have."""
    rng = np.random.default_rng(seed)
    having = np.argwhere(mdp.action_mask)
    states, actions = having[rng.integers(len(having), size=number)].T
    P = mdp.normalised_probabilities
    rows = states * mdp.num_actions + actions
    there = [rng.choice(P[[row]].indices, p=P[[row]].data / P[[row]].data.sum()) for row in rows]
    return Transitions(
        states,
        actions,
        mdp.R[states, actions],
        there,
        np.zeros(number, bool),
        num_states=mdp.num_states,
        num_actions=mdp.num_actions,
    )


def slow_radius(steps: Transitions, table: NDArray[Any], kept: Any) -> float:
    """The farthest step from the nearest kept one with its action, one by one."""
    assert steps.states is not None
    farthest = 0.0
    for s, a in zip(steps.states, steps.actions, strict=True):
        near = [table[s, steps.states[k]] for k in kept if steps.actions[k] == a]
        farthest = max(farthest, min(near, default=math.inf))
    return float(farthest)


mdps = st.one_of(deterministic_mdps(), stochastic_mdps(available=True))


@quick
@given(mdps, st.integers(1, 25), st.integers(0, 99), st.data())
def test_every_transition_has_a_representative_within_the_radius(
    mdp: MDP, number: int, seed: int, data: st.DataObject
) -> None:
    steps, d = steps_of(mdp, number, seed), exact.bisimulation(mdp)
    keep = data.draw(st.integers(len(np.unique(steps.actions)), number))
    found = uses.compress(steps, d, keep)
    assert steps.states is not None
    assert len(found.transitions) == len(found.indices) == keep
    assert (np.diff(found.indices) > 0).all()
    assert found.radius == slow_radius(steps, d.values, found.indices)
    assert np.isin(found.representatives, found.indices).all()
    assert (found.representatives[found.indices] == found.indices).all()
    assert (steps.actions[found.representatives] == steps.actions).all()
    assert (found.distances == d.values[steps.states, steps.states[found.representatives]]).all()
    assert found.distances.max() == found.radius
    assert (found.transitions.rewards == steps.rewards[found.indices]).all()


@quick
@given(mdps, st.integers(1, 25), st.integers(0, 99), st.data())
def test_values_differ_from_the_representative_by_at_most_the_bound(
    mdp: MDP, number: int, seed: int, data: st.DataObject
) -> None:
    steps, d = steps_of(mdp, number, seed), exact.bisimulation(mdp)
    keep = data.draw(st.integers(len(np.unique(steps.actions)), number))
    found = uses.compress(steps, d, keep, require_proof=True)
    assert steps.states is not None
    V = planning.optimal_values(mdp)
    Q = mdp.R + mdp.discount * (mdp.normalised_probabilities @ V.values).reshape(mdp.R.shape)
    off = np.abs(
        Q[steps.states, steps.actions] - Q[steps.states[found.representatives], steps.actions]
    )
    assert found.value_function == "Q*"
    assert off.max() <= found.value_bound + 2 * V.error
    assert found.value_bound == pytest.approx(found.radius + d.error)
    assert found.value_gap == pytest.approx(off.max(), abs=4 * V.error)


@quick
@given(deterministic_mdps(max_states=5, max_actions=2), st.integers(0, 99), st.data())
def test_the_radius_is_within_twice_the_best(mdp: MDP, seed: int, data: st.DataObject) -> None:
    steps, d = steps_of(mdp, 8, seed), exact.bisimulation(mdp)
    keep = data.draw(st.integers(len(np.unique(steps.actions)), 4))
    best = min(
        slow_radius(steps, d.values, part) for part in itertools.combinations(range(8), keep)
    )
    assert uses.compress(steps, d, keep).radius <= 2 * best + 4 * d.error


@pytest.mark.parametrize(
    ("make", "values"), [(exact.on_policy, "V^pi"), (exact.lax, "V*")], ids=["on-policy", "lax"]
)
def test_other_distances_bound_values_of_states(make: Any, values: str) -> None:
    mdp = worlds.load("mirrored-rooms-policy", discount=0.9)
    d = make(mdp, mdp.policy) if values == "V^pi" else make(mdp)
    steps = steps_of(mdp, 300, 0)
    found = uses.compress(steps, d, 12)
    assert found.value_function == values
    assert mdp.policy is not None
    V = (
        planning.policy_values(mdp, mdp.policy)
        if values == "V^pi"
        else planning.optimal_values(mdp)
    )
    assert steps.states is not None
    off = np.abs(V.values[steps.states] - V.values[steps.states[found.representatives]]).max()
    assert found.value_gap == pytest.approx(off)
    assert 0 < off <= found.value_bound


def test_a_fraction_is_that_of_all_transitions() -> None:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    steps, d = steps_of(mdp, 200, 0), exact.bisimulation(mdp)
    assert len(uses.compress(steps, d, 0.1).indices) == 20
    assert len(uses.compress(steps, d, np.float64(0.5)).indices) == 100
    everything = uses.compress(steps, d, 1.0)
    assert (everything.representatives == np.arange(200)).all()
    assert (everything.radius, everything.distances.max()) == (0.0, 0.0)


def test_a_larger_coreset_has_no_larger_radius() -> None:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    steps, d = steps_of(mdp, 500, 0), exact.bisimulation(mdp)
    parts = [uses.compress(steps, d, keep) for keep in (4, 10, 40, 90, 124, 200)]
    assert (np.diff([part.radius for part in parts]) <= 0).all()
    assert parts[-1].radius == 0
    radii = parts[-1].radii
    for part in parts[:4]:
        assert part.radius == radii[len(part.indices) - 1]
        assert (part.radii == radii[: len(part.indices)]).all()
    assert np.isinf(radii[:3]).all()


def test_the_remaining_budget_goes_to_first_transitions_then_to_second_ones() -> None:
    states = [0, 0, 0, 1, 0, 1]
    steps = Transitions(states, [0] * 6, np.arange(6), [0] * 6, [False] * 6, num_states=2)
    table = np.array([[0.0, 1.0], [1.0, 0.0]])
    # Also where the second state is at distance 0, and need not be kept at all.
    alike = [uses.compress(steps, 0 * table, keep).indices.tolist() for keep in range(1, 7)]
    kept = [uses.compress(steps, table, keep).indices.tolist() for keep in range(1, 7)]
    assert alike == kept
    assert kept == [
        [0],
        [0, 3],
        [0, 1, 3],
        [0, 1, 3, 5],
        [0, 1, 2, 3, 5],
        [0, 1, 2, 3, 4, 5],
    ]


def test_the_metadata_names_the_original_buffer() -> None:
    steps = Transitions([0, 1], [0, 0], [0, 0], [1, 0], [True, False], metadata={"seed": 3})
    found = uses.compress(steps, [[0, 2.5], [2.5, 0]], 1)
    assert found.transitions.metadata == {
        "seed": 3,
        "compression": {"original_size": 2, "radius": 2.5},
    }
    assert found.transitions.num_states == 2
    assert repr(found) == "Compression(1 of 2 transitions, radius 2.5)"
    assert found.metadata["keep"] == 1


def test_a_distance_may_include_the_terminal_state() -> None:
    steps = Transitions([0, 1, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0], [False, True, False])
    d = exact.bisimulation(steps.to_mdp(discount=0.9, unseen="missing"))
    assert d.mdp.num_states == 3
    assert uses.compress(steps, d, 3, require_proof=True).radius == 0


def test_a_large_buffer_needs_little_memory() -> None:
    rng = np.random.default_rng(0)
    x = rng.random(1_000)
    table = np.abs(np.subtract.outer(x, x))
    size = 100_000
    states, actions = rng.integers(1_000, size=size), rng.integers(4, size=size)
    nothing = np.zeros(size)
    steps = Transitions(states, actions, nothing, states, nothing)
    tracemalloc.start()
    found = uses.compress(steps, table, 0.01)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.indices) == 1_000
    assert 0 < found.radius < 0.01
    assert peak < 300 * size


class Network:
    """A learned distance of observations, as far as `compress` knows it."""

    kind = "bisimulation"

    def __init__(self, scale: float = 1.0) -> None:
        self.scale, self.asked = scale, 0

    def table(self, x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        self.asked += 1
        far = np.abs(x.reshape(len(x), -1)[:, None] - y.reshape(len(y), -1)).sum(-1)
        return np.asarray(self.scale * far + 0.001, np.float32)


def build_observations(size: int) -> Transitions:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, (size, 2, 1)).astype(float)
    return Transitions(x, rng.integers(3, size=size), np.zeros(size), x, [False] * size)


def test_a_learned_distance_compares_observations(monkeypatch: pytest.MonkeyPatch) -> None:
    from bisimetric.uses import _compress

    steps, network = build_observations(400), Network()
    found = uses.compress(steps, network, 30)
    x = steps.observations.reshape(400, 2)
    far = np.abs(x[:, None] - x).sum(-1) + 0.001
    far[steps.actions[:, None] != steps.actions] = np.inf
    np.fill_diagonal(far, 0.0)
    # Equal observations with equal actions are one.
    far[(x[:, None] == x).all(-1) & (steps.actions[:, None] == steps.actions)] = 0.0
    assert found.radius == pytest.approx(far[found.indices].min(axis=0).max(), rel=1e-6)
    assert found.num_state_actions == len(np.unique(np.column_stack([x, steps.actions]), axis=0))
    assert network.asked == len(found.radii) == 30
    assert (found.value_function, found.value_gap) == (None, None)
    assert math.isinf(found.value_bound)
    monkeypatch.setattr(_compress, "CHUNK_SIZE", 7)
    again = uses.compress(steps, Network(), 30)
    assert (again.indices == found.indices).all()


@pytest.mark.slow
def test_a_learned_distance_of_the_package() -> None:
    from bisimetric import learned

    mdp = worlds.load("mirrored-rooms", discount=0.9)
    d = learned.bisimulation(mdp, updates=5, seed=0)
    found = uses.compress(steps_of(mdp, 50, 0), d, 10)
    assert math.isfinite(found.radius)
    assert uses.embed(d, 2).coordinates.shape == (31, 2)


def test_network_outputs_are_validated() -> None:
    with pytest.raises(InputError, match="d is nan between transitions 0 and 0"):
        uses.compress(build_observations(9), Network(math.nan), 3)


def two(**changes: Any) -> Transitions:
    fields: dict[str, Any] = {"actions": [0, 1], "states": [0, 1], "next_states": [1, 0]}
    fields |= changes
    return Transitions(
        np.zeros((2, 3)),
        fields.pop("actions"),
        [0, 0],
        np.zeros((2, 3)),
        [False] * 2,
        **{name: value for name, value in fields.items() if value is not None},
    )


TABLE = [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("keep", "complaint"),
    [
        (3, "keep is 3 and must be at most .* 2"),
        (0, "keep is 0 and must be a whole number, at least 1"),
        (-1, "keep is -1 and must be"),
        (0.0, "keep is 0.0 and must be a fraction, above 0 and at most 1.0, or a whole number"),
        (1.5, "keep is 1.5 and must be a fraction"),
        (math.nan, "keep is nan and must be a fraction"),
        ("many", "keep is 'many' and must be a whole number"),
        (1, "keep leaves 1 of 2 transitions, .* 2 actions .*; keep 2"),
        (0.5, "keep leaves 1 of 2 transitions"),
    ],
)
def test_keep_out_of_range_raises(keep: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=f"uses.compress: {complaint}"):
        uses.compress(two(), TABLE, keep)


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ([[0, 1], [2, 0]], r".*matrix has 1 at \[0, 1\] and 2 at \[1, 0\]"),
        ([[0, -1], [-1, 0]], r".*matrix has -1 at \[0, 1\]"),
        ([[0, math.nan], [1, 0]], r".*matrix has nan at \[0, 1\]"),
        ([[0, 1], [1, 3]], r".*matrix has 3 at \[1, 1\]"),
        (np.zeros((5, 5)), "the transitions have 2 states and d has 5; use a distance of the same"),
        ([[0]], "the transitions have 2 states and d has 1"),
    ],
)
def test_bad_matrices_raise(table: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=f"uses.compress: {complaint}"):
        uses.compress(two(), table, 2)


def test_other_mdps_raise() -> None:
    def far(**about: Any) -> Distance:
        return Distance(
            np.array(TABLE), 0.0, "lax", MDP.deterministic([[0] * 2] * 2, [[0.0] * 2] * 2, **about)
        )

    named = far(discount=0.5, names=("a", "b"))
    with pytest.raises(InputError, match=r"a state is named 'c' .* and 'b' in d"):
        uses.compress(two(names=("a", "c")), named, 2)
    with pytest.raises(InputError, match=r"the transitions have 3 actions and d\.mdp has 2"):
        uses.compress(two(num_actions=3), far(discount=0.5), 2)
    three = exact.bisimulation(worlds.load("pessimism"))
    with pytest.raises(InputError, match="the transitions have 2 states and d has 3"):
        uses.compress(two(), three, 2)


def test_transitions_without_ids_or_with_continuous_actions_raise() -> None:
    with pytest.raises(InputError, match=r"observations of shape \(3,\) are no ids of states"):
        uses.compress(two(states=None, next_states=None), TABLE, 2)
    with pytest.raises(
        InputError, match=r"actions are continuous, of shape \(1,\), and a representative must"
    ):
        uses.compress(two(actions=[[0.5], [1.0]]), TABLE, 2)


def test_an_estimate_is_no_proof() -> None:
    assert uses.compress(two(), TABLE, 2).value_function is None
    with pytest.raises(InputError, match="require_proof requires a proven error"):
        uses.compress(two(), TABLE, 2, require_proof=True)
    mdp = MDP.deterministic([[0, 0]] * 2, [[0.0, 1.0]] * 2, discount=0.5)
    unsure = Distance(np.array(TABLE), math.inf, "bisimulation", mdp)
    with pytest.raises(InputError, match="require_proof requires a proven error"):
        uses.compress(two(), unsure, 2, require_proof=True)
    # A step whose action the MDP of d does not know.
    lacking = mdp.replace(available=[[True, False], [True, True]])
    steps = two(states=[0, 0], next_states=[0, 0], num_states=2)
    assert (
        uses.compress(steps, Distance(np.array(TABLE), 0, "bisimulation", mdp), 2).value_function
        == "Q*"
    )
    assert (
        uses.compress(
            steps, Distance(np.array(TABLE), 0, "bisimulation", lacking), 2
        ).value_function
        is None
    )


def test_unvisited_states_have_no_value_bound() -> None:
    mdp = worlds.load("mirrored-rooms")
    d, steps = exact.bisimulation(mdp), steps_of(mdp, 200, seed=0)
    everything = np.ones(d.values.shape, np.bool_)
    for lived in (everything[0], np.arange(31) != np.asarray(steps.states)[0]):
        coverage = Coverage(mdp.action_mask, everything, d.error, 0.0, 1, 1, lived)
        found = uses.compress(steps, dataclasses.replace(d, coverage=coverage), 0.5)
        assert math.isfinite(found.value_bound) == lived.all()
