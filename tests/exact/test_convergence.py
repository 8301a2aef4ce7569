"""Iterations end after few rounds at any discount, with an error that holds in exact arithmetic."""

from __future__ import annotations

import importlib
import math
import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import MDP, Distance, NotConverged, exact, worlds
from bisimetric._progress import convergence_fraction
from bisimetric.exact import _threads
from bisimetric.exact._threads import map_chunks
from bisimetric.exact.deterministic import cycle_search, propagation, table_kernels
from tests.property_testing import scaled
from tests.rationals import compute_largest_error, solve_deterministic, solve_mico

pair_solver = importlib.import_module("bisimetric.exact.deterministic.policy_iteration")
ALMOST_ONE = math.nextafter(1.0, 0.0)
DISCOUNTS = [0.0, 5e-324, 1e-300, 0.5, 0.999, 1 - 1e-8, 1 - 1e-12, ALMOST_ONE]
REWARDS = st.sampled_from([0.0, 0.0, 1.0, 1.0, 2.0, -1.0, 0.1, 5e-324, 1e-300, 1e10])
TOLERANCES = st.sampled_from([1e-6, 1e3, 1e-320])
quick = settings(deadline=None, max_examples=scaled(100))


@st.composite
def extreme_mdps(draw: st.DrawFn, max_states: int = 4, max_actions: int = 3) -> MDP:
    """Few states, many ties, rewards and discounts at the ends of what float64 holds."""
    states, actions = draw(st.integers(1, max_states)), draw(st.integers(1, max_actions))
    size = states * actions
    successors = draw(st.lists(st.integers(0, states - 1), min_size=size, max_size=size))
    rewards = draw(st.lists(REWARDS, min_size=size, max_size=size))
    return MDP.deterministic(
        np.array(successors).reshape(states, actions),
        np.array(rewards).reshape(states, actions),
        discount=draw(st.sampled_from(DISCOUNTS)),
    )


def solve(distance: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """Return the distance, or the partial one where `tol` was not proven."""
    try:
        return distance(*given, **options)
    except NotConverged as failed:
        return failed.partial


def holds(d: Distance, reference: list[list[Fraction]]) -> bool:
    """Return whether every entry is within `error` of the reference."""
    return math.isinf(d.error) or compute_largest_error(d.values, reference) <= Fraction(d.error)


def solve_as_large(mdp: MDP, **options: Any) -> Distance:
    """Return `exact.bisimulation` of the solver for large MDPs, however small this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_solver, "MAX_SERIAL_STATES", 0)
        d = solve(exact.bisimulation, mdp, **options)
        assert isinstance(d, Distance)
        return d


# Deterministic MDPs.


@quick
@given(extreme_mdps(), TOLERANCES)
def test_bisimulation_ends_after_few_rounds(mdp: MDP, tol: float) -> None:
    reference = solve_deterministic(mdp, "bisimulation")
    d = solve(exact.bisimulation, mdp, tol=tol)
    # One action is solved by doubling: 59 times where the discount is almost 1.
    assert d.metadata["rounds"] <= (20 if mdp.num_actions > 1 else 60)
    assert holds(d, reference)
    large = solve_as_large(mdp, tol=tol)
    assert large.metadata.get("sweeps", 0) <= 40
    assert holds(large, reference)


@quick
@given(extreme_mdps(), TOLERANCES)
def test_lax_ends_after_few_sweeps(mdp: MDP, tol: float) -> None:
    reference = solve_deterministic(mdp, "lax")
    d = solve(exact.lax, mdp, tol=tol)
    assert d.metadata["sweeps"] <= 1024
    assert holds(d, reference)
    pairs = [(s, t) for s in range(mdp.num_states) for t in range(s)]
    if pairs:
        answer = solve(exact.query, mdp, pairs, kind="lax", tol=tol)
        assert answer.metadata.get("sweeps", 0) <= 2048
        lines = [[reference[s][t] for s, t in pairs]]
        assert math.isinf(answer.error) or (
            compute_largest_error([answer.values], lines) <= Fraction(float(answer.error))
        )


@quick
@given(extreme_mdps(), TOLERANCES, st.data())
def test_on_policy_ends_after_few_rounds(mdp: MDP, tol: float, data: st.DataObject) -> None:
    actions = st.integers(0, mdp.num_actions - 1)
    policy = data.draw(st.lists(actions, min_size=mdp.num_states, max_size=mdp.num_states))
    d = solve(exact.on_policy, mdp, policy, tol=tol)
    assert d.metadata["rounds"] <= 60
    assert holds(d, solve_deterministic(mdp.apply_policy(policy), "bisimulation"))


@pytest.mark.parametrize("discount", [0.99999999, ALMOST_ONE])
def test_a_cycle_through_all_pairs_is_found(discount: float) -> None:
    # Two absorbing states: their pair is the only one, and its own successor.
    mdp = MDP.deterministic([[0, 0], [1, 1]], [[1.0, 0.0], [0.0, 0.0]], discount=discount)
    for d in (
        solve(exact.bisimulation, mdp, tol=1e3),
        solve_as_large(mdp, tol=1e3),
        solve(exact.lax, mdp, tol=1e3),
    ):
        assert max(d.metadata.get("rounds", 0), d.metadata.get("sweeps", 0)) <= 16
        assert holds(d, solve_deterministic(mdp, d.kind))
        # As far as rounding lets it, which is amplified by 1 / (1 - discount).
        assert d.error <= max(1e3, 64 * 2.0**-53 * mdp.diameter_bound / (1 - discount))


def test_a_cycle_through_all_pairs_of_three_states_is_found() -> None:
    # Three states in a circle: so are their three pairs.
    successor = [[1, 1], [2, 2], [0, 0]]
    mdp = MDP.deterministic(successor, [[0.0, 1.0], [1.0, 3.0], [3.0, 0.0]], discount=1 - 1e-8)
    assert exact.bisimulation(mdp, tol=1e3).metadata["rounds"] <= 4
    assert exact.lax(mdp, tol=1e3).metadata["sweeps"] <= 16
    assert solve_as_large(mdp, tol=1e3).metadata["sweeps"] <= 8


@pytest.mark.parametrize(
    ("successor", "reward"),
    [
        (
            [[3, 5], [3, 5], [2, 5], [1, 3], [4, 1], [4, 2]],
            [[0.0, 1.0], [1.0, 0.66], [1.0, 0.0], [2.0, 0.83], [2.0, 2.0], [0.79, 0.0]],
        ),
        (
            [[3, 0], [4, 3], [0, 2], [3, 2], [4, 1]],
            [[-1.0, 2.0], [0.0, 0.69], [0.31, 0.81], [0.0, 0.87], [0.82, 1.0]],
        ),
    ],
)
@pytest.mark.parametrize("discount", [0.999, 1 - 1e-8])
def test_lax_converges_where_newton_steps_go_astray(
    successor: list[list[int]], reward: list[list[float]], discount: float
) -> None:
    mdp = MDP.deterministic(successor, reward, discount=discount)
    d = solve(exact.lax, mdp)
    assert d.metadata["sweeps"] <= 128
    assert d.error <= max(1e-6, 64 * 2.0**-53 * mdp.diameter_bound / (1 - discount))
    assert holds(d, solve_deterministic(mdp, "lax"))


def test_a_long_cycle_ends_although_rounding_brings_policies_back() -> None:
    states = 101
    successor = np.repeat((np.arange(states) + 1)[:, None] % states, 2, axis=1)
    reward = np.random.default_rng(0).random((states, 2))
    mdp = MDP.deterministic(successor, reward, discount=1 - 1e-10)
    d = solve(exact.bisimulation, mdp)
    assert d.metadata["rounds"] <= pair_solver.MAX_ROUNDS
    # Once round the cycle, a rounding per step adds up, and is amplified by 1 / (1 - discount).
    assert d.error <= states * 2.0**-53 * mdp.diameter_bound / (1 - mdp.discount)


@quick
@given(extreme_mdps())
def test_too_few_rounds_of_policy_iteration_keep_the_error_valid(mdp: MDP) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_solver, "MAX_ROUNDS", 1)
        d = solve(exact.bisimulation, mdp)
    assert holds(d, solve_deterministic(mdp, "bisimulation"))


@pytest.mark.parametrize("discount", [1 - 1e-9, 1 - 1e-12])
def test_value_iteration_alone_ends_with_a_valid_error(
    discount: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdp = worlds.load("random", states=5, discount=discount)
    iteration = pair_solver._PolicyIteration
    monkeypatch.setattr(iteration, "evaluate_steepest_cycles", lambda self: None)
    monkeypatch.setattr(iteration, "evaluate_cycles", lambda self, starts: None)
    monkeypatch.setattr(iteration, "start_from_best_cycle", lambda self: False)
    d = solve_as_large(mdp)
    assert 128 < d.metadata["sweeps"] <= 512
    assert d.error > 1e-6
    assert holds(d, solve_deterministic(mdp, "bisimulation"))


# MICo.


@st.composite
def extreme_chains(draw: st.DrawFn) -> MDP:
    states = draw(st.integers(1, 3))
    weights = st.lists(st.integers(0, 3), min_size=states, max_size=states).filter(any)
    counts = np.array(draw(st.lists(weights, min_size=states, max_size=states)), float)
    P = (counts / counts.sum(axis=1, keepdims=True))[:, None]
    R = np.array(draw(st.lists(REWARDS, min_size=states, max_size=states)))[:, None]
    return MDP(P, R, discount=draw(st.sampled_from(DISCOUNTS)))


DTYPES = ["float64", "float32"]


@settings(deadline=None, max_examples=scaled(60))
@given(extreme_chains(), TOLERANCES, st.sampled_from(DTYPES))
def test_mico_ends_after_few_sweeps(mdp: MDP, tol: float, dtype: str) -> None:
    d = solve(exact.mico, mdp, tol=tol, dtype=dtype)
    assert d.metadata["doublings"] <= 64
    assert d.metadata["sweeps"] <= 512
    assert holds(d, solve_mico(mdp))


@pytest.mark.parametrize("dtype", DTYPES)
def test_mico_of_a_periodic_chain_at_the_largest_discount(dtype: str) -> None:
    # Nothing mixes here, so that sweeps gain one factor of the discount each.
    P = np.roll(np.eye(3), 1, axis=1)[:, None]
    mdp = MDP(P, [[0.02], [0.26], [0.48]], discount=ALMOST_ONE)
    d = solve(exact.mico, mdp, dtype=dtype)
    assert d.metadata["sweeps"] <= 512
    assert holds(d, solve_mico(mdp))


# Progress.


@given(*[st.floats(0.0, allow_nan=False)] * 3)
def test_convergence_fraction_is_a_fraction(residual: float, small: float, largest: float) -> None:
    assert 0.0 <= convergence_fraction(residual, small, largest) <= 1.0


# Threads.


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp = worlds.load("random", states=300)
    chain = worlds.load("random", states=90, actions=1, successors=3)
    policy = np.random.default_rng(0).integers(4, size=300)

    def tables() -> list[bytes]:
        found = (
            exact.bisimulation(mdp),
            exact.on_policy(mdp, policy),
            exact.lax(worlds.load("random", states=100)),
            exact.mico(chain),
        )
        return [d.values.tobytes() for d in found]

    monkeypatch.setattr(propagation, "MAX_SERIAL_PAIRS", 16)
    alone = tables()
    monkeypatch.setattr(table_kernels, "MIN_PARALLEL_ENTRIES", 1)
    monkeypatch.setattr(propagation, "MIN_PARALLEL_PAIRS", 1)
    monkeypatch.setattr(cycle_search, "MIN_PARALLEL_STARTS", 1)
    monkeypatch.setattr(cycle_search, "ENTRIES_PER_THREAD", 1)
    took_part = set()

    def three() -> int:
        took_part.add(threading.current_thread().name)
        return 3

    monkeypatch.setattr("numba.get_num_threads", three)
    assert tables() == alone
    assert took_part


def test_small_work_is_left_to_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise AssertionError("threads were asked for")

    monkeypatch.setattr("numba.get_num_threads", refuse)
    mdp = worlds.load("random", states=300)
    exact.bisimulation(mdp)
    exact.on_policy(mdp, np.zeros(300, int))
    exact.lax(worlds.load("random", states=60))
    exact.mico(worlds.load("random", states=60, actions=1, successors=2))


def test_chunks_that_no_other_thread_starts_run_in_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("numba.get_num_threads", lambda: 2)
    started, release = threading.Event(), threading.Event()

    class Busy(_threads._ParallelLoop[None]):
        def join(self) -> None:
            started.set()
            release.wait()

    _threads.start_workers(1).put(Busy(lambda low, high: None, [0, 1]))
    try:
        assert started.wait(10)
        parts = map_chunks(lambda low, high: list(range(low, high)), 100, min_parallel_size=1)
    finally:
        release.set()
    assert [i for part in parts for i in part] == list(range(100))


@pytest.mark.parametrize("where", ["caller", "helper"])
def test_an_error_in_a_chunk_is_raised(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.get_num_threads", lambda: 2)
    caller, other_started = threading.current_thread(), threading.Event()
    running = []

    def work(low: int, high: int) -> None:
        mine = threading.current_thread() is caller
        if mine:
            assert other_started.wait(10)
        other_started.set()
        if mine == (where == "caller"):
            raise ArithmeticError(where)
        running.append(low)

    with pytest.raises(ArithmeticError, match=where):
        map_chunks(work, 1000, min_parallel_size=1)
    assert len(running) < 2 * _threads.MAX_CHUNKS_PER_THREAD
