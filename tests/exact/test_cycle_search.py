"""The search for the best cycle of the pair graph, and backward propagation from it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric import MDP, exact, worlds
from bisimetric.exact._phases import share_phases
from bisimetric.exact.deterministic import (
    cycle_kernels,
    cycle_search,
    pair_kernels,
    policy_iteration,
    propagation,
)
from bisimetric.exact.deterministic.problem import DeterministicProblem, build_problem
from bisimetric.exact.deterministic.propagation import WorkLists, index_predecessors


def build(mdp: MDP) -> DeterministicProblem:
    return build_problem(mdp, np.dtype(np.float64), 1e-9, mdp.diameter_bound)


def find_cycle(problem: DeterministicProblem) -> tuple[NDArray[Any], NDArray[Any]]:
    starts, predecessors, _ = index_predecessors(problem.successor, problem.reward)
    scratch = np.zeros((problem.num_states, problem.num_states), problem.dtype)
    found = cycle_search.find_cycle(problem, starts, predecessors, scratch)
    assert not scratch.any()
    return found


def compute_action_values(problem: DeterministicProblem, d: NDArray[Any]) -> NDArray[Any]:
    """Return |R(s,a) - R(t,a)| + discount * d(n(s,a), n(t,a)), (A, S, S)."""
    n, R = problem.successor.astype(np.int64), problem.reward
    gaps = np.abs(R[:, :, None] - R[:, None, :])
    return gaps + problem.discount * d[n[:, :, None], n[:, None, :]]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("seed", range(5))
def test_the_search_finds_the_largest_distance(
    seed: int, dtype: type[np.floating[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cycle_search._Search, "_count_few_ancestors", lambda self, pairs: 0)
    mdp = worlds.load("random", states=80, discount=0.99, seed=seed)
    problem, d = build(mdp), exact.bisimulation(mdp, tol=1e-9)
    pairs, values = find_cycle(dataclasses.replace(problem, dtype=np.dtype(dtype)))
    s, t = np.divmod(pairs, 80)
    assert np.all(t < s)
    assert len(np.unique(pairs)) == len(pairs)
    assert np.all(values <= d.values[s, t] + d.error)
    if d.values.max() > cycle_search.estimate_level(problem):
        rest = 1 - cycle_search.MIN_IMPROVEMENT * 3
        assert values.max() >= d.values.max() * rest


def test_the_values_of_a_path_into_a_cycle_are_those_of_its_rewards() -> None:
    problem = build(worlds.load("random", states=300, discount=0.95, seed=1))
    pairs, values = find_cycle(problem)
    assert len(pairs) > 0
    d = np.zeros((300, 300))
    s, t = np.divmod(pairs, 300)
    d[s, t] = d[t, s] = values
    backup = compute_action_values(problem, d).max(axis=0)
    assert np.all(backup[s, t] >= d[s, t] * (1 - 1e-12))


def test_the_number_of_threads_changes_no_bit_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    # Batches of 64 entries, of which those of one chunk may be in the same partition.
    monkeypatch.setattr(cycle_search, "MAX_BATCH", 64)
    problem = build(worlds.load("random", states=300, discount=0.99, seed=3))
    alone = find_cycle(problem)
    assert len(alone[0]) > 0
    counted: list[int] = []

    def share_and_count(prepare: Any, arguments: Any, plan: Any) -> None:
        counted.append(plan.num_threads)
        share_phases(prepare, arguments, plan)

    monkeypatch.setattr(cycle_search, "share_phases", share_and_count)
    monkeypatch.setattr(cycle_search, "MIN_PARALLEL_STARTS", 1)
    monkeypatch.setattr(cycle_search, "ENTRIES_PER_THREAD", 1)
    monkeypatch.setattr("numba.get_num_threads", lambda: 3)
    for _ in range(5):
        for mine, theirs in zip(find_cycle(problem), alone, strict=True):
            assert mine.tobytes() == theirs.tobytes()
    assert max(counted) == 3


def test_a_higher_level_lowers_the_surplus_of_every_path() -> None:
    rng, discount, level, higher, count = np.random.default_rng(0), 0.9, 5.0, 5.7, 400
    pairs, gaps = rng.integers(50, size=count), rng.uniform(0.5, 0.75, count)
    links = np.zeros((count, 3), np.int32)
    links[0] = cycle_kernels.NONE, cycle_kernels.NONE, 0

    def compute_surplus(level: float) -> NDArray[np.float64]:
        surplus = np.zeros(count)
        for k in range(1, count):
            before = surplus[links[k, 0]]
            surplus[k] = (before + gaps[k] - (1 - discount) * level) / discount
        return surplus

    for k in range(1, count):
        before = rng.integers(max(0, k - 20), k)
        links[k] = before, cycle_kernels.NONE, links[before, 2] + 1
    values, lower = compute_surplus(level), compute_surplus(higher)
    # The first half is in buckets, but for two entries that were continued, and two at the end.
    heads = np.empty(cycle_kernels.NUM_BUCKETS, np.int32)
    heads[:] = cycle_kernels.NONE
    surplus, batch = np.zeros(51), np.empty(2, np.int32)
    surplus[7] = np.inf
    width = values.max() / cycle_kernels.NUM_BUCKETS
    assert cycle_kernels.take_batch(values, links, heads, 0, count // 2, width, batch) == 2
    links[-2:, 1] = cycle_kernels.LEFT
    found = values.copy()
    cycle_kernels.raise_level(
        surplus, pairs, found, links, heads, count // 2, count, discount, higher - level
    )
    assert np.abs(found - lower).max() <= 1e-9 * np.abs(lower).max()
    assert (lower < 0).any()
    assert np.all(heads == cycle_kernels.NONE)
    waits = found >= 0
    waits[[*batch, count - 2, count - 1]] = False
    assert np.array_equal(links[:, 1] == cycle_kernels.NONE, waits)
    expected = np.zeros(51)
    np.maximum.at(expected, pairs, found)
    expected[7] = np.inf
    assert np.array_equal(surplus, expected)


def test_pairs_that_few_pairs_lead_to_are_left_out() -> None:
    random = worlds.load("random", states=300, discount=0.95, seed=1)
    successor, R = random.next_state.copy(), random.R.copy()
    # Both of the best cycle stay where they are, and no other state leads there.
    successor[successor < 2] += 2
    successor[:2, 0], R[:2, 0] = [0, 1], [0.0, 1.0]
    mdp = MDP.deterministic(successor, R, discount=0.95)
    pairs, values = find_cycle(build(mdp))
    d = exact.bisimulation(mdp)
    assert d.values[1, 0] == d.values.max() > 19.9
    assert len(pairs) > 0
    assert values.max() < 19.0


@pytest.mark.parametrize("rewards", ["zero", "equal gaps", "tiny"])
def test_the_search_ends_for_any_rewards(rewards: str) -> None:
    rng = np.random.default_rng(0)
    successor = rng.integers(300, size=(300, 3))
    R = {
        "zero": np.zeros((300, 3)),
        "equal gaps": rng.integers(2, size=(300, 3)).astype(float),
        "tiny": rng.random((300, 3)) * 1e-310,
    }[rewards]
    mdp = MDP.deterministic(successor, R, discount=0.9)
    pairs, values = find_cycle(build(mdp))
    assert np.all(np.isfinite(values))
    assert (len(pairs) > 0) == (rewards == "equal gaps") or rewards == "tiny"
    d = exact.bisimulation(mdp)
    assert np.all(values <= d.values.max() + d.error)


def test_random_graphs_mix_fast_and_grids_do_not() -> None:
    random, grid = worlds.load("random", states=400), worlds.load("open-grid")
    assert cycle_search.mixes_fast(build(random).successor)
    assert not cycle_search.mixes_fast(build(grid).successor)
    trap = np.zeros((1, 400), np.uint32)
    assert not cycle_search.mixes_fast(trap)


@pytest.mark.parametrize("stride", [1, 4])
def test_every_stride_th_marked_pair_is_listed(stride: int) -> None:
    marked = np.tril(np.random.default_rng(0).integers(3, size=(30, 30)), -1).astype(np.uint8)
    expected = np.flatnonzero(marked)[stride - 1 :: stride]
    assert pair_kernels.list_marked(marked, stride).tolist() == expected.tolist()


def test_predecessors_are_indexed_by_state_and_action() -> None:
    problem = build(worlds.load("random", states=40))
    starts, states, rewards = index_predecessors(problem.successor, problem.reward)
    for s in range(40):
        for a in range(4):
            found = slice(starts[s * 4 + a], starts[s * 4 + a + 1])
            assert states[found].tolist() == np.flatnonzero(problem.successor[a] == s).tolist()
            assert rewards[found].tolist() == problem.reward[a, states[found]].tolist()


@pytest.mark.parametrize("max_serial_pairs", [0, 100, 2**12])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_propagation_raises_all_predecessors(
    max_serial_pairs: int, dtype: type[np.floating[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(propagation, "MAX_SERIAL_PAIRS", max_serial_pairs)
    monkeypatch.setattr(propagation, "CAPACITY", 8.0)
    problem = build(worlds.load("random", states=120, discount=0.9))
    d = np.zeros((120, 120), dtype)
    lists = WorkLists(problem, d)
    s, t = sorted(problem.successor[0, [70, 30]], reverse=True)
    d[s, t] = 20.0
    lists.marked[s, t] = pair_kernels.PENDING
    while lists.queue_length > 0 or lists.start_layer():
        assert lists.propagate()
    lists.clear()
    assert lists.num_visited > 0
    assert not lists.marked.any()
    assert np.array_equal(d, d.T)
    updates = compute_action_values(problem, d.astype(np.float64))
    n = problem.successor.astype(np.int64)
    is_propagated = d[n[:, :, None], n[:, None, :]] > 0
    rounding = 1e-8 if dtype == np.float64 else 1e-5
    off_diagonal = ~np.eye(120, dtype=bool)
    excess = np.where(is_propagated & off_diagonal, updates - d, -1.0)
    assert excess.max() <= rounding


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("quantile", [0.0, 0.3, 0.9, 1.0])
def test_the_largest_pending_pairs_are_moved_to_the_queue(
    threads: int, quantile: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numba.get_num_threads", lambda: threads)
    monkeypatch.setattr(propagation, "MIN_PARALLEL_PENDING", 32)
    monkeypatch.setattr(propagation, "MIN_LAYER", 1)
    monkeypatch.setattr(propagation, "MAX_LAYER", 1.0)
    monkeypatch.setattr(propagation, "LAYER_FRACTION", 1 - quantile)
    monkeypatch.setattr(propagation, "CAPACITY", 1.0)
    rng, states, count = np.random.default_rng(0), 60, 200
    lists = WorkLists(build(worlds.load("random", states=states)), np.zeros((states, states)))
    lower = np.flatnonzero(np.tri(states, k=-1).reshape(-1))
    pairs, values = rng.choice(lower, count, replace=False), rng.random(count)
    is_marked = rng.random(count) < 0.8
    lists.pending[:count], lists.pending_values[:count] = pairs, values
    lists.marked.reshape(-1)[pairs[is_marked]] = pair_kernels.PENDING
    lists.num_pending = count
    assert lists.start_layer()
    is_taken = values >= lists.floors[0]
    queue = lists.queue[: lists.queue_length].tolist()
    assert queue == pairs[is_taken & is_marked].tolist()
    assert (lists.marked.reshape(-1)[queue] == pair_kernels.MOVED).all()
    rest = lists.pending[: lists.num_pending], lists.pending_values[: lists.num_pending]
    assert sorted(zip(*rest, strict=True)) == sorted(
        zip(pairs[~is_taken], values[~is_taken], strict=True)
    )


@pytest.mark.parametrize("equal_gaps", [False, True])
def test_more_pairs_than_a_list_holds_are_propagated(
    equal_gaps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdp = worlds.load("random", states=300, discount=0.99)
    if equal_gaps:
        mdp = MDP.deterministic(mdp.next_state, mdp.R > 0.5, discount=0.99)
    reference = exact.bisimulation(mdp, tol=1e-9)
    monkeypatch.setattr(propagation, "PENDING_CAPACITY", 0.005)
    monkeypatch.setattr(propagation, "CAPACITY", 0.001)
    d = exact.bisimulation(mdp, tol=1e-9)
    assert np.abs(d.values - reference.values).max() <= d.error + reference.error


def test_the_rest_of_the_marked_pairs_is_not_taken_for_growth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The marked pairs are listed in many parts, each after nearly all of the part before.
    monkeypatch.setattr(propagation, "PENDING_CAPACITY", 0.01)
    monkeypatch.setattr(propagation, "PAIRS_PER_CALL", 16)
    mdp = worlds.load("random", states=300, discount=0.9)
    problem = build(mdp)
    iteration = policy_iteration._PolicyIteration(problem)
    iteration.d[:] = exact.bisimulation(mdp, tol=1e-9).values
    lower = np.tri(300, k=-1, dtype=bool)
    iteration.lists.marked[lower] = pair_kernels.PENDING
    iteration.propagate(np.inf, max_growth=2)
    # Every action of a pair that leads to another pair is visited once.
    n = problem.successor
    assert iteration.lists.num_visited == (n[:, :, None] != n[:, None, :])[:, lower].sum()
