"""Pairs in topological order: no pair before what it depends on, and the same distances."""

from __future__ import annotations

from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest

from bisimetric import MDP, NotConverged, exact
from bisimetric._transport import Costs
from bisimetric.exact._request import SweepLimit
from bisimetric.exact.stochastic import policy_iteration, topological_order
from bisimetric.mdp import compute_comparison_classes
from tests.oracles import solve_by_linear_programme
from tests.rationals import compute_residual


def layered_mdp(seed: int, *, actions: int = 2, labels: bool = False, discount: float = 0.9) -> MDP:
    """Return an MDP of layers, each a cycle, states without one, or both; the last absorbs."""
    rng = np.random.default_rng(seed)
    layers = np.sort(rng.integers(4, size=int(rng.integers(3, 9))))
    states = len(layers)
    P = np.zeros((states, actions, states))
    cyclic = rng.random(4) < 0.5
    for s in range(states):
        own = np.flatnonzero((layers == layers[s]) & cyclic[layers[s]])
        targets = np.append(np.flatnonzero(layers > layers[s]), own)
        if len(targets) == 0:
            targets = np.array([s])
        for a in range(actions):
            chosen = rng.choice(targets, min(len(targets), int(rng.integers(1, 4))), replace=False)
            P[s, a, chosen] = rng.dirichlet(np.ones(len(chosen)))
    order = rng.permutation(states)
    held = {"goal": rng.random(states) < 0.3} if labels else None
    P = P[order][:, :, order]
    return MDP(P, rng.integers(3, size=(states, actions)).astype(float), discount, labels=held)


def list_levels(mdp: MDP, *, lax: bool = False) -> list[topological_order.PairLevel]:
    states = mdp.num_states
    model = policy_iteration.build_kernel_mdp(mdp, np.arange(states), lax, 1.0)
    costs = Costs(np.zeros((states, states)), np.empty(0, np.int64), states)
    return topological_order.order_pairs(model, costs, states * (states - 1) // 2)


def list_dependencies(mdp: MDP, s: int, t: int, *, lax: bool) -> set[tuple[int, int]]:
    """Return the pairs in the equation of a pair, by brute force over its actions."""
    classes = compute_comparison_classes(mdp, lax=lax)
    if classes[s] != classes[t]:
        return set()
    P = mdp.P.toarray().reshape(*mdp.R.shape, -1)
    return {
        (max(x, y), min(x, y))
        for a in range(mdp.num_actions)
        for b in (range(mdp.num_actions) if lax else [a])
        for x in np.flatnonzero(P[s, a]).tolist()
        for y in np.flatnonzero(P[t, b]).tolist()
        if x != y
    }


@pytest.mark.parametrize("lax", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_a_pair_depends_on_earlier_levels_and_in_a_cyclic_one_on_its_own(
    seed: int, lax: bool
) -> None:
    mdp = layered_mdp(seed, labels=seed % 2 == 1)
    levels = list_levels(mdp, lax=lax)
    pairs = [(s, t) for s in range(mdp.num_states) for t in range(s)]
    number = {pairs[i]: n for n, level in enumerate(levels) for i in level.pairs.tolist()}
    if not levels:
        return
    assert len(number) == len(pairs) == sum(len(level.pairs) for level in levels)
    for (s, t), own in number.items():
        for successor in list_dependencies(mdp, s, t, lax=lax):
            assert number[successor] < own + levels[own].is_cyclic


def test_a_strongly_connected_mdp_has_one_level() -> None:
    ring = np.roll(np.eye(6), 1, axis=1)
    mdp = MDP((ring + np.eye(6))[:, None] / 2, np.arange(6.0)[:, None], discount=0.9)
    assert list_levels(mdp) == []
    assert exact.bisimulation(mdp).metadata["levels"] == 1
    labelled = mdp.replace(labels={"first": [True] + 5 * [False]})
    levels = list_levels(labelled)
    assert [level.is_cyclic for level in levels] == [False, True]
    assert levels[0].pairs.tolist() == [0, 1, 3, 6, 10]  # (s, 0)


def test_a_tree_takes_one_update_per_pair_at_any_discount() -> None:
    """Each state moves to one of two later ones: no evaluation, and no error but rounding."""
    rng = np.random.default_rng(0)
    states = 40
    P = np.zeros((states, 1, states))
    for s in range(states - 2):
        P[s, 0, [s + 1, s + 2]] = rng.dirichlet([1, 1])
    P[states - 2 :, 0, states - 1] = 1
    mdp = MDP(P, rng.random((states, 1)), discount=0.999999)
    d = exact.bisimulation(mdp)
    assert (d.metadata["rounds"], d.metadata["levels"]) == (0, 2 * states - 3)
    assert float(compute_residual(d)) <= 1e-15 * states
    assert Fraction(d.error) >= compute_residual(d) / (1 - Fraction(mdp.discount))


@pytest.mark.parametrize("kind", ["bisimulation", "lax"])
@pytest.mark.parametrize("seed", range(12))
def test_distances_satisfy_the_equation_in_rationals(seed: int, kind: str) -> None:
    mdp = layered_mdp(seed, discount=[0.0, 0.5, 0.9, 0.99][seed % 4])
    d = getattr(exact, kind)(mdp)
    assert compute_residual(d) / (1 - Fraction(mdp.discount)) <= Fraction(d.error)
    assert d.error <= 1e-6


@pytest.mark.parametrize("kind", ["bisimulation", "lax"])
@pytest.mark.parametrize("seed", range(6))
def test_distances_agree_with_the_linear_programme(seed: int, kind: str) -> None:
    mdp = layered_mdp(seed, actions=1 + seed % 2)
    d = getattr(exact, kind)(mdp)
    reference, own_error = solve_by_linear_programme(mdp, kind)
    assert np.abs(d.values - reference).max() <= d.error + own_error


@pytest.mark.parametrize("kind", ["bisimulation", "lax"])
@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_the_order_changes_no_distance_by_more_than_the_errors(
    seed: int, labels: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdp = layered_mdp(seed, labels=labels)
    d = getattr(exact, kind)(mdp)
    query = exact.query(mdp, [(0, 1), (2, 1)], kind=kind)  # type: ignore[arg-type]
    monkeypatch.setattr(policy_iteration, "order_pairs", lambda *_: [])
    whole = getattr(exact, kind)(mdp)
    assert np.abs(d.values - whole.values).max() <= d.error + whole.error
    for pair, value in zip(query.pairs, query.values.tolist(), strict=True):
        assert value == pytest.approx(whole(*pair), abs=query.error + whole.error)


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    layers = np.repeat(np.arange(6), 30)
    P = np.zeros((180, 2, 180))
    for s, layer in enumerate(layers):
        targets = np.flatnonzero((layers == layer) | (layers == min(layer + 1, 5)))
        for a in range(2):
            P[s, a, rng.choice(targets, 3, replace=False)] = rng.dirichlet(np.ones(3))
    mdp = MDP(P, rng.random((180, 2)), discount=0.95, labels={"odd": layers % 2 == 1})
    tables = []
    for threads in (1, 3):
        get_num_threads = mock.Mock(return_value=threads)
        monkeypatch.setattr("numba.get_num_threads", get_num_threads)
        d = exact.bisimulation(mdp)
        assert get_num_threads.called
        assert d.metadata["levels"] > 5
        tables.append(d.values)
    assert (tables[0] == tables[1]).all()


def test_levels_that_do_not_converge_still_prove_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp = layered_mdp(5, discount=0.99)
    reference = exact.bisimulation(mdp)
    assert reference.metadata["levels"] > 1
    monkeypatch.setattr(SweepLimit, "is_exceeded", lambda *_: True)
    with pytest.raises(NotConverged) as caught:
        exact.bisimulation(mdp, tol=1e-12)
    partial: Any = caught.value.partial
    assert partial.error > 1e-12
    assert np.abs(partial.values - reference.values).max() <= partial.error + reference.error
