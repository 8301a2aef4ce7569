"""Sampled distances from data: what is known, what that determines, streams, contradictions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric import (
    MDP,
    InputError,
    InsufficientMemory,
    NotConverged,
    Transitions,
    exact,
    sampled,
    worlds,
)
from bisimetric.sampled import AllActions, Prioritised, SampledRun, Trajectories, Uniform
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps

SAMPLERS: list[Any] = [Uniform(), Trajectories(), AllActions(), Prioritised()]
each_sampler = pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda each: type(each).__name__)


def steps_of(mdp: MDP, state: Any, action: Any, **more: Any) -> Transitions:
    """Return one step per known state and action of an MDP."""
    s, a = np.asarray(state), np.asarray(action)
    about = {"num_states": mdp.num_states, "num_actions": mdp.num_actions, **more}
    ended = np.zeros(len(s), np.bool_)
    return Transitions(s, a, mdp.R[s, a], mdp.next_state[s, a], ended, **about)


def everything(mdp: MDP) -> Transitions:
    s, a = (each.ravel() for each in np.indices(mdp.R.shape))
    return steps_of(mdp, s, a)


def find_determined_by_loops(known: NDArray[np.bool_], mdp: MDP) -> NDArray[np.bool_]:
    """Pairs whose actions are all known in both and lead to such pairs, by plain repetition."""
    whole = known.all(axis=1)
    found = np.outer(whole, whole) | np.eye(len(known), dtype=bool)
    while True:
        after = found.copy()
        for s, t in itertools.product(range(len(known)), repeat=2):
            if s != t and found[s, t]:
                n = mdp.next_state
                after[s, t] = all(found[n[s, a], n[t, a]] for a in range(mdp.num_actions))
        if (after == found).all():
            return found
        found = after


@st.composite
def partial_mdps(draw: st.DrawFn) -> tuple[MDP, NDArray[np.bool_]]:
    """A deterministic MDP, and which of its transitions were seen: at least one."""
    mdp = draw(deterministic_mdps(max_states=6, discounts=[0.0, 0.5, 0.9]))
    size = mdp.R.size
    seen = draw(st.lists(st.sampled_from([True] * 6 + [False]), min_size=size, max_size=size))
    known = np.array(seen).reshape(mdp.R.shape)
    known.flat[draw(st.integers(0, size - 1))] = True
    return mdp, known


@settings(max_examples=scaled(150), deadline=None)
@given(partial_mdps(), st.integers(0, 1000))
def test_determined_distances_hold_for_any_unobserved_transitions(
    half: tuple[MDP, NDArray[np.bool_]], seed: int
) -> None:
    mdp, known = half
    data = steps_of(mdp, *np.nonzero(known))
    if known.sum(axis=0).max() == 1 and known.any(axis=1).sum() > 1:
        with pytest.raises(InputError, match="no two states took the same action"):
            sampled.bisimulation(data)
        return
    d = sampled.bisimulation(data, discount=mdp.discount, tol=1e-6, seed=seed)
    coverage = d.coverage
    assert coverage is not None
    assert np.array_equal(coverage.known, known)
    assert np.array_equal(coverage.determined, find_determined_by_loops(known, mdp))
    assert coverage.error <= 1e-6
    random = np.random.default_rng(seed)
    lower, upper = d.bounds(*np.indices(d.values.shape))
    for _ in range(3):
        n = np.where(known, mdp.next_state, random.integers(mdp.num_states, size=known.shape))
        R = np.where(known, mdp.R, random.normal(scale=5, size=known.shape))
        truth = exact.bisimulation(MDP.deterministic(n, R, discount=mdp.discount))
        assert (lower <= truth.values + truth.error).all()
        assert (truth.values <= upper + truth.error).all()


@settings(max_examples=scaled(50), deadline=None)
@given(mdp=deterministic_mdps(discounts=[0.3, 0.9]), seed=st.integers(0, 99))
def test_complete_data_reaches_the_metric_and_reports_it(mdp: MDP, seed: int) -> None:
    data = everything(mdp)
    for sampler in SAMPLERS:
        d = sampled.bisimulation(data, discount=mdp.discount, sampler=sampler, seed=seed, tol=1e-6)
        truth = exact.bisimulation(data.to_mdp(discount=mdp.discount), tol=1e-9)
        assert d.error <= 1e-6
        assert np.abs(d.values - truth.values).max() <= d.error + truth.error
        assert d.estimate is None


def test_termination_is_a_state_and_truncation_is_not() -> None:
    # 0 -> 1 -> terminal, with reward 1; 2 has a self-loop and is truncated there.
    data = Transitions(
        [0, 1, 2], [0, 0, 0], [0, 1, 0], [1, 1, 2], [False, True, False], [False, False, True]
    )
    d = sampled.bisimulation(data, discount=0.9, tol=1e-9)
    *states, terminal = d.mdp.names or ()
    assert states == ["0", "1", "2"]
    assert d.error <= 1e-9
    assert d("1", terminal) == pytest.approx(1.0)
    assert d("0", terminal) == pytest.approx(0.9)
    assert d("2", terminal) == 0  # neither ever pays
    assert d(0, 1) == pytest.approx(1 + 0.9 * 1.0)
    truth = exact.bisimulation(data.to_mdp(discount=0.9))
    assert np.abs(truth.values - d.values).max() <= truth.error + d.error


def test_distinct_transitions_are_sampled_uniformly_without_weights() -> None:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    often = np.repeat(np.arange(31), 4), np.tile(np.arange(4), 31)
    s, a = (np.concatenate([column, *[column[:4]] * 500]) for column in often)
    alike = SampledRun("bisimulation", steps_of(mdp, s, a), discount=0.9)
    assert np.array_equal(alike.source.table.weight, np.ones(124))
    run = SampledRun(
        "bisimulation", steps_of(mdp, s, a), discount=0.9, sampler=Uniform(np.ones(len(s)))
    )
    weight = run.source.table.weight
    assert sorted(set(weight.tolist())) == [1.0, 501.0]
    assert weight.sum() == len(s)


def test_on_policy_data() -> None:
    mdp = worlds.load("mirrored-rooms-policy", discount=0.9)
    policy = np.asarray(mdp.policy)
    truth = exact.on_policy(mdp, tol=1e-9)
    walk = steps_of(mdp, np.arange(31), policy)
    d = sampled.on_policy(walk, discount=0.9, tol=1e-6)
    assert np.abs(d.values - truth.values).max() <= d.error + truth.error
    assert d.coverage is not None
    assert d.coverage.known.shape == (31, 1)
    assert d.explain(0, 5).distance == d(0, 5)
    picked = sampled.on_policy(everything(mdp), policy, discount=0.9, tol=1e-6)
    assert np.abs(picked.values - truth.values).max() <= picked.error + truth.error
    continuous = Transitions(
        np.arange(31), np.ones((31, 2)), walk.rewards, walk.next_observations, walk.terminated
    )
    assert np.array_equal(sampled.on_policy(continuous, discount=0.9, tol=1e-6).values, d.values)


@each_sampler
def test_a_stream_converges_to_the_values_of_a_data_set(sampler: Any) -> None:
    mdp = worlds.load("random", states=12, actions=2, discount=0.9, seed=4)
    random = np.random.default_rng(0)
    s, a = random.integers(12, size=600), random.integers(2, size=600)

    def stream() -> Iterator[Transitions]:
        """Ids come one by one, and the number of states with them; then in any order."""
        order = [np.argsort(s, kind="stable"), *[np.arange(600)] * 2]
        for part in np.array_split(np.concatenate(order), 60):
            highest = int(max(s[part].max(), mdp.next_state[s[part], a[part]].max())) + 1
            yield steps_of(mdp, s[part], a[part], num_states=highest)

    d = sampled.bisimulation(
        stream(), discount=0.9, sampler=sampler, updates_per_transition=500, seed=1
    )
    assert d.metadata["steps"] == 1800 * 500
    assert d.metadata["stopped"] == "end of the stream"
    truth = exact.bisimulation(mdp, tol=1e-9)
    assert np.abs(d.values - truth.values).max() <= d.error + truth.error
    assert d.error < 0.1


def test_a_stream_may_terminate_late_and_add_states_afterwards() -> None:
    parts = [
        Transitions([0], [0], [0.0], [1], [False], num_states=2, num_actions=1),
        Transitions([1], [0], [1.0], [1], [True], num_states=2, num_actions=1),
        Transitions([2], [0], [2.0], [3], [False], num_states=4, num_actions=1),
        Transitions([3], [0], [0.0], [3], [True], num_states=4, num_actions=1),
    ]
    whole = Transitions.concatenate(parts)
    truth = exact.bisimulation(whole.to_mdp(discount=0.5), tol=1e-12)
    for sampler in SAMPLERS:
        d = sampled.bisimulation(
            iter(parts), discount=0.5, sampler=sampler, updates_per_transition=200
        )
        assert np.abs(d.values - truth.values).max() <= d.error + truth.error + 1e-9
        assert d.mdp.names is not None
        assert d.mdp.names[-1] == "end"


def test_a_stream_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    mdp = worlds.load("random", states=12, actions=2, discount=0.9, seed=4)
    data = everything(mdp)
    parts = [data[low : low + 4] for low in range(0, 24, 4)]
    file = tmp_path / "run.npz"
    whole = sampled.bisimulation(iter(parts), discount=0.9, updates_per_transition=100)
    sampled.bisimulation(iter(parts[:3]), discount=0.9, updates_per_transition=100, checkpoint=file)
    d = sampled.bisimulation(iter(parts[3:]), discount=0.9, updates_per_transition=100, resume=file)
    assert np.array_equal(d.values, whole.values)
    with pytest.raises(InputError, match=r"its discount is 0.9 and must be 0.99"):
        sampled.bisimulation(iter(parts[3:]), resume=file)
    model = tmp_path / "model.npz"
    sampled.bisimulation(mdp, steps=10, checkpoint=model)
    with pytest.raises(InputError, match="a run on an MDP, which a stream cannot resume"):
        sampled.bisimulation(iter(parts), discount=0.9, resume=model)


def test_named_states_are_the_same_by_name(tmp_path: Path) -> None:
    # "a" pays 1 and stays; "b" leads to "a". The second part numbers them the other way round.
    first = Transitions([0], [0], [1.0], [0], [False], num_states=1, names=("a",))
    second = Transitions([0, 1], [0, 0], [0.0, 1.0], [1, 1], [False] * 2, names=("b", "a"))
    d = sampled.bisimulation(iter([first, second]), discount=0.5, updates_per_transition=200)
    assert d.mdp.names == ("a", "b")
    assert d("a", "b") == pytest.approx(1.0)
    assert d.error < 1e-6
    file = tmp_path / "run.npz"
    sampled.bisimulation(iter([first]), discount=0.5, checkpoint=file)
    again = sampled.bisimulation(
        iter([second]), discount=0.5, updates_per_transition=200, resume=file
    )
    assert again.mdp.names == ("a", "b")
    assert again("a", "b") == pytest.approx(1.0)
    liar = Transitions([1], [0], [0.0], [1], [False], num_states=2, names=("b", "a"))
    with pytest.raises(InputError, match=r"state a under action 0 paid 1.0 .* and paid 0.0"):
        sampled.bisimulation(iter([first, liar]), discount=0.5)
    nameless = Transitions([1], [0], [0.0], [1], [False], num_states=2)
    with pytest.raises(InputError, match="1 states have names and 1 more have none"):
        sampled.bisimulation(iter([first, nameless]), discount=0.5)


def test_parts_of_a_stream_may_be_incomplete() -> None:
    def part(state: int, action: int, **more: Any) -> Transitions:
        about = {"num_states": 2, "num_actions": 2, **more}
        return Transitions([state], [action], [1.0 * state], [state], [False], **about)

    # No part has two states with the same action, and some have no step of the policy.
    parts = [part(0, 0, num_states=1), part(1, 1), part(1, 0), part(0, 1)]
    d = sampled.bisimulation(iter(parts), discount=0.5, updates_per_transition=100)
    assert d(0, 1) == pytest.approx(2.0)
    d = sampled.on_policy(iter(parts[::-1]), [0, 0], discount=0.5, updates_per_transition=100)
    assert d(0, 1) == pytest.approx(2.0)
    with pytest.raises(InputError, match="none of its transitions follows the policy"):
        sampled.on_policy(iter(parts[:2]), [1, 0])
    for sampler in SAMPLERS:
        d = sampled.on_policy(
            iter(parts), [0, 0], discount=0.5, updates_per_transition=100, sampler=sampler
        )
        assert d(0, 1) == pytest.approx(2.0)


def test_a_part_that_is_too_large_loses_nothing(tmp_path: Path) -> None:
    small = Transitions([0, 1], [0, 0], [0, 1], [0, 1], [False] * 2)
    large = Transitions([0, 10**7], [0, 0], [0, 1], [0, 1], [False] * 2)
    file = tmp_path / "run.npz"
    with pytest.raises(InsufficientMemory, match=r"10,000,00. states need"):
        sampled.bisimulation(iter([small, small, large]), checkpoint=file)
    d = sampled.bisimulation(iter([small]), resume=file)
    assert d.metadata["steps"] == 6
    with pytest.raises(InsufficientMemory, match="number the states from 0 without gaps"):
        sampled.bisimulation(Transitions([0, 10**12], [0, 0], [0, 1], [0, 1], [False] * 2))


def test_a_stream_of_another_policy_raises(tmp_path: Path) -> None:
    data = Transitions([0, 1, 0, 1], [0, 0, 1, 1], [0, 1, 2, 3], [0, 1, 0, 1], [False] * 4)
    file = tmp_path / "run.npz"
    sampled.on_policy(iter([data]), [0, 0], checkpoint=file)
    with pytest.raises(InputError, match=r"its policy is .* and must be"):
        sampled.on_policy(iter([data]), [1, 1], resume=file)


def test_actions_are_called_the_same_in_all_parts() -> None:
    one = Transitions([0], [0], [0.0], [0], [False], action_names=("x",))
    two = Transitions([0], [0], [0.0], [0], [False], action_names=("y",))
    with pytest.raises(InputError, match="actions are named x and then y; use the same names"):
        sampled.bisimulation(iter([one, two]))


def test_ids_that_only_terminate_episodes_are_not_visited() -> None:
    # 0 -> 1 -> the end, seen as id 2; id 3 never occurs.
    data = Transitions([0, 1], [0, 0], [0, 1], [1, 2], [False, True], num_states=4)
    d = sampled.bisimulation(data, discount=0.5, tol=1e-9)
    assert d.coverage is not None
    assert d.coverage.visited.tolist() == [True, True, False, False, True]
    assert d.coverage.complete
    assert d.error <= 1e-9
    assert d.bounds(0, 2)[1] == np.inf
    assert [t for t, _ in d.nearest(0)] == [4, 1]
    assert "unvisited  2 of 5 ids" in str(d.coverage)


def test_a_stream_stops_at_tol_only_when_all_is_known() -> None:
    mdp = worlds.load("random", states=6, actions=2, discount=0.5, seed=1)
    data = everything(mdp)
    known = iter([data[:6], data[6:], *[data] * 100_000])
    d = sampled.bisimulation(known, discount=0.5, tol=1e-3, updates_per_transition=100)
    assert d.metadata["stopped"] == "tol"
    assert d.error <= 1e-3
    with pytest.raises(NotConverged):
        sampled.bisimulation(iter([data[:6]]), discount=0.5, tol=1e-9)


@each_sampler
def test_resuming_on_data(sampler: Any, tmp_path: Path) -> None:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    random = np.random.default_rng(3)
    data = steps_of(mdp, random.integers(31, size=900), random.integers(4, size=900))
    whole = sampled.bisimulation(data, steps=5000, sampler=sampler)
    sampled.bisimulation(data, steps=1700, sampler=sampler, checkpoint=tmp_path / "run.npz")
    d = sampled.bisimulation(data, steps=5000, sampler=sampler, resume=tmp_path / "run.npz")
    assert np.array_equal(d.values, whole.values)
    with pytest.raises(InputError, match="its transitions or their weights differ"):
        sampled.bisimulation(data[:899], steps=5000, sampler=sampler, resume=tmp_path / "run.npz")


def test_nothing_is_proven_about_unobserved_transitions() -> None:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    data = steps_of(mdp, *np.nonzero(np.ones((31, 3), bool)))  # never the last action
    d = sampled.bisimulation(data, discount=0.9)
    assert d.error == np.inf
    assert d.estimate is not None
    assert d.estimate <= 1e-3
    assert d.coverage is not None
    assert not (d.coverage.determined & ~np.eye(31, dtype=bool)).any()
    assert d.coverage.unseen.tolist() == [[s, 3] for s in range(31)]
    assert d.bounds(0, 1)[1] == np.inf
    truth = exact.bisimulation(mdp, tol=1e-9)
    assert (d.values <= truth.values + truth.error + d.coverage.rounding).all()
    assert (truth.values - d.values).max() > 1  # so that a claim would have been wrong
    assert "lower bound" in str(d.explain(0, 1))


CONTRADICTIONS: list[tuple[Transitions, str]] = [
    (
        Transitions([0, 1, 0], [1, 1, 1], [0, 0, 0], [1, 1, 2], [False] * 3),
        r"state 0 under action 1 led to state 1 \(step 0\) and to state 2 \(step 2\)",
    ),
    (
        Transitions([0, 1, 0], [1, 1, 1], [0, 0, 0], [1, 1, 1], [False, False, True]),
        r"led to state 1 \(step 0\) and to the terminal state \(step 2\)",
    ),
    (
        Transitions([0, 1, 1], [0, 0, 0], [0, 0.1, 0.1 + 1e-12], [1, 1, 1], [False] * 3),
        r"state 1 under action 0 paid 0.1 \(step 1\) and paid 0.10000000000100001 \(step 2\)",
    ),
    (
        Transitions([0, 1, 0], [0, 0, 0], [0, 0, 0], [1, 1, 0], [False] * 3, names=("a", "b")),
        r"state a under action 0 led to state b \(step 0\) and to state a \(step 2\)",
    ),
]


@pytest.mark.parametrize(("data", "complaint"), CONTRADICTIONS)
def test_contradictions_raise(data: Transitions, complaint: str) -> None:
    offer = r"use exact.bisimulation\(transitions.to_mdp\(\)\)"
    with pytest.raises(InputError, match=f"{complaint}.*{offer}"):
        sampled.bisimulation(data)
    parts = [data[:2], data[2:]]
    with pytest.raises(InputError, match=complaint):
        sampled.bisimulation(iter(parts))


def test_a_contradiction_in_a_stream_loses_nothing(tmp_path: Path) -> None:
    data = CONTRADICTIONS[0][0]
    file = tmp_path / "run.npz"
    with pytest.raises(InputError, match="led to state 1"):
        sampled.bisimulation(iter([data[:2], data[2:]]), checkpoint=file, updates_per_transition=50)
    kept = sampled.bisimulation(iter([data[1:2]]), resume=file, updates_per_transition=50)
    assert kept.metadata["steps"] == 150


def test_stochastic_policies_raise() -> None:
    data = Transitions([0, 1, 0], [0, 0, 1], [0, 0, 5], [1, 1, 0], [False] * 3)
    with pytest.raises(InputError, match=r"takes action 0 \(step 0\) and action 1 \(step 2\).*pol"):
        sampled.on_policy(data)
    d = sampled.on_policy(data, [0, 0], tol=1e-6)
    assert d(0, 1) == 0
    with pytest.raises(InputError, match=r"must be \(2,\) actions, one per state"):
        sampled.on_policy(data, [0])
    with pytest.raises(InputError, match="no step of the data takes the action of policy"):
        sampled.on_policy(data, [3, 3])


def test_data_without_comparable_states_raise() -> None:
    on = [False] * 2
    apart = Transitions([0, 1], [0, 1], [0, 0], [1, 1], on)
    with pytest.raises(InputError, match="no two states took the same action"):
        sampled.bisimulation(apart)
    sampled.on_policy(apart)
    observed = Transitions([[0.5], [1.5]], [0, 0], [0, 0], [[1.5], [2.5]], on)
    with pytest.raises(InputError, match="have observations and no state ids"):
        sampled.bisimulation(observed)
    pushed = Transitions([0, 1], [[0.5], [0.5]], [0, 0], [1, 1], on)
    with pytest.raises(InputError, match="actions are continuous and must be discrete"):
        sampled.bisimulation(pushed)
    with pytest.raises(InputError, match="these actions are continuous"):
        sampled.on_policy(pushed, [0, 0])
    same = Transitions([0, 1], [0, 0], [0, 0], [1, 1], on)
    with pytest.raises(InputError, match=r"weights have shape \(3,\) and must be \(2,\) numbers"):
        sampled.bisimulation(same, sampler=Uniform(np.ones(3)))
    with pytest.raises(InputError, match="data already follow a policy"):
        sampled.bisimulation(same, sampler=Trajectories(policy=[0, 0]))
    with pytest.raises(InputError, match="the stream is empty"):
        sampled.bisimulation(iter([]))
    with pytest.raises(InputError, match="item 1 of the stream is int and must be Transitions"):
        sampled.bisimulation(iter([same, 3]))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="omit the sampler's weights"):
        sampled.bisimulation(iter([same]), sampler=Uniform(np.ones(2)))
