"""The transport kernel against SciPy's linear programme."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric import _transport
from tests.oracles import transport as solve_by_linear_programme
from tests.property_testing import scaled


def solve(d: NDArray[Any], p: NDArray[Any], q: NDArray[Any], start: Any = None) -> dict[str, Any]:
    """W1 by the kernel, from a tree or from the north-west corner; with its flow and tree."""
    states = np.concatenate([np.flatnonzero(p), np.flatnonzero(q)])
    share = np.concatenate([p[p > 0], q[q > 0]])
    rows = int((p > 0).sum())
    room = _transport.allocate_workspace(len(states))
    n, m = _transport.cancel_common_mass(room, states, share, 0, rows, rows, len(states))
    if n == 0 or m == 0:
        return {"cost": 0.0, "flow": np.zeros((0, 0)), "tree": None, "least": np.inf}
    costs = _transport.Costs(d, np.empty(0, np.int64), len(d))
    if start is None:
        _transport.build_northwest_tree(room, n, m)
    else:
        room.ints[_transport.PARENT, : n + m] = start
    _transport.compute_flows(room, n, m)
    before = _transport.compute_cost(room, costs, n, m)
    largest = _transport.gather_costs(room, costs, n, m)
    least, _, _ = _transport.optimise_tree(room, n, m, largest)
    flow = np.zeros((n, m))
    for v in range(1, n + m):
        u = room.ints[_transport.PARENT, v]
        i, j = (v, u) if v < n else (u, v)
        flow[i, j - n] = room.reals[_transport.FLOW, v]
    x, y = room.ints[_transport.ROW_STATE, :n].copy(), room.ints[_transport.COLUMN_STATE, :m].copy()
    return {
        "cost": _transport.compute_cost(room, costs, n, m),
        "before": before,
        "flow": flow,
        "x": x,
        "y": y,
        "tree": room.ints[_transport.PARENT, : n + m].copy(),
        "least": least,
    }


@st.composite
def problems(draw: st.DrawFn) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """A metric, often with ties and zeros, and two distributions, perhaps equal or tiny."""
    states = draw(st.integers(1, 9))
    points = draw(st.lists(st.tuples(*[st.integers(0, 3)] * 2), min_size=states, max_size=states))
    spot = np.array(points, float) * draw(st.sampled_from([1.0, 0.1, 1e3]))
    d = np.abs(spot[:, None] - spot[None, :]).sum(axis=2)
    weights = st.lists(st.sampled_from([0, 1, 1, 2, 5, 1e-9]), min_size=states, max_size=states)
    p, q = (np.array(draw(weights.filter(any)), float) for _ in range(2))
    return d, p / p.sum(), q / q.sum()


@settings(max_examples=scaled(200), deadline=None)
@given(problems())
def test_cost_is_that_of_the_linear_programme(problem: Any) -> None:
    d, p, q = problem
    found = solve(d, p, q)
    truth = solve_by_linear_programme(d[np.ix_(p > 0, q > 0)], p[p > 0], q[q > 0])
    assert found["cost"] == pytest.approx(truth, abs=1e-9 * max(1.0, d.max()))


@settings(max_examples=scaled(100), deadline=None)
@given(problems())
def test_flow_has_the_right_marginals(problem: Any) -> None:
    d, p, q = problem
    found = solve(d, p, q)
    if found["tree"] is not None:
        rest = p - q
        assert (found["flow"] >= 0).all()
        assert np.abs(found["flow"].sum(axis=1) - rest[found["x"]]).max() < 1e-14
        assert np.abs(found["flow"].sum(axis=0) + rest[found["y"]]).max() < 1e-14


@settings(max_examples=scaled(100), deadline=None)
@given(problems(), st.integers(0, 1000))
def test_an_old_tree_is_a_good_start_for_other_costs(problem: Any, key: int) -> None:
    d, p, q = problem
    tree = solve(d, p, q)["tree"]
    other = np.random.default_rng(key).random(d.shape)
    cold, warm = solve(other, p, q), solve(other, p, q, tree)
    assert warm["cost"] == pytest.approx(cold["cost"], abs=1e-12)


@settings(max_examples=scaled(100), deadline=None)
@given(problems(), st.integers(0, 1000))
def test_a_tree_stays_optimal_while_costs_move_less_than_its_slack(problem: Any, key: int) -> None:
    d, p, q = problem
    found = solve(d, p, q)
    if found["tree"] is None or found["least"] <= 0 or not np.isfinite(found["least"]):
        return
    nodes = len(found["tree"])
    by = np.random.default_rng(key).uniform(-1, 1, d.shape) * found["least"] / nodes
    kept = solve(d + by, p, q, found["tree"])
    assert kept["before"] <= kept["cost"] + 1e-12


def test_the_north_west_corner_is_optimal_on_a_line() -> None:
    rng = np.random.default_rng(0)
    spot = np.sort(rng.random(30))
    d = np.abs(spot[:, None] - spot[None, :])
    p, q = rng.dirichlet(np.ones(30)), rng.dirichlet(np.ones(30))
    found = solve(d, p, q)
    assert found["before"] == pytest.approx(found["cost"], rel=1e-12)


def test_equal_masses_end_in_an_assignment() -> None:
    from scipy.optimize import linear_sum_assignment

    rng = np.random.default_rng(1)
    d = rng.integers(0, 4, (80, 80)).astype(float)
    p, q = np.zeros(80), np.zeros(80)
    p[:40], q[40:] = 1 / 40, 1 / 40
    rows, columns = linear_sum_assignment(d[:40, 40:])
    assert solve(d, p, q)["cost"] == pytest.approx(d[:40, 40:][rows, columns].sum() / 40)


@pytest.mark.slow
def test_hundreds_of_successors() -> None:
    rng = np.random.default_rng(2)
    spot = rng.random((500, 2))
    d = np.abs(spot[:, None] - spot[None, :]).sum(axis=2)
    p, q = np.zeros(500), np.zeros(500)
    p[:250], q[250:] = rng.dirichlet(np.ones(250)), rng.dirichlet(np.ones(250))
    truth = solve_by_linear_programme(d[:250, 250:], p[:250], q[250:])
    assert solve(d, p, q)["cost"] == pytest.approx(truth, rel=1e-8)
