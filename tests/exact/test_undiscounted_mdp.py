"""Undiscounted distances of labelled MDPs: games on pairs, in which actions may cycle."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import MDP, InputError, exact, relation
from bisimetric.exact.undiscounted_solver import fixed_point, strategy_iteration
from bisimetric.exact.undiscounted_solver.coupling_iteration import CouplingIteration
from bisimetric.mdp import compute_comparison_classes
from tests.exact import undiscounted_oracle as oracle
from tests.exact.test_undiscounted import assert_contains, random_chain
from tests.property_testing import scaled

SEEDS = st.integers(0, 2**32 - 1)


def random_mdp(seed: int, most: int, *, distinct: bool, denominator: int) -> MDP:
    """An MDP with states of several comparison classes, and no bisimilar ones if `distinct`."""
    rng = np.random.default_rng(seed)
    while True:
        mdp = oracle.random_mdp(
            rng, int(rng.integers(3, most)), int(rng.integers(2, 4)), denominator=denominator
        )
        num_classes = int(relation.bisimulation(mdp).max()) + 1
        if compute_comparison_classes(mdp).any() and (
            num_classes == mdp.num_states or not distinct
        ):
            return mdp


def build_mdp(rows: dict[str, dict[str, dict[str, float]]], labels: dict[str, str]) -> MDP:
    """Return an MDP from rows by state, action and successor; states without rows are absorbing."""
    names = sorted({*rows, *(t for by in rows.values() for row in by.values() for t in row)})
    actions = sorted({action for by in rows.values() for action in by})
    P = np.zeros((len(names), len(actions), len(names)))
    for (s, name), (a, action) in itertools.product(enumerate(names), enumerate(actions)):
        row = rows.get(name, {}).get(action, {name: 1.0})
        for successor, mass in row.items():
            P[s, a, names.index(successor)] = mass
    return MDP(
        P, np.zeros(P.shape[:2]), discount=0.9, names=names, actions=actions,
        labels=[labels.get(name, ()) for name in names],
    )  # fmt: skip


def waiting_pair(half: float = 0.5) -> MDP:
    """States s and t may wait forever; when they go, labels differ with probability 1 - half."""
    rows = {
        "s": {"go": {"done": half, "won": 1 - half}, "wait": {"s": 1.0}},
        "t": {"go": {"done": 1.0}, "wait": {"t": 1.0}},
    }
    return build_mdp(rows, {"won": "won"})


@settings(deadline=None, max_examples=scaled(60))
@given(SEEDS, st.sampled_from([3, 4, 5, 10]))
def test_bounds_contain_the_rational_distances(seed: int, denominator: int) -> None:
    mdp = random_mdp(seed, 5, distinct=True, denominator=denominator)
    d = exact.undiscounted(mdp)
    assert d.error <= 1e-6
    assert_contains(d, oracle.solve_mdp(mdp))


@settings(deadline=None, max_examples=scaled(40))
@given(SEEDS, st.sampled_from([3, 4, 5, 10]))
def test_is_the_least_fixed_point(seed: int, denominator: int) -> None:
    mdp = random_mdp(seed, 9, distinct=False, denominator=denominator)
    d = exact.undiscounted(mdp)
    below = oracle.iterate_from_below(mdp, 400)
    assert (below <= d.values + d.error + 1e-12).all()
    np.testing.assert_allclose(below, d.values, atol=1e-3)


@pytest.mark.parametrize("half", [0.5, 0.3, 1 / 3])
def test_waiting_for_ever_does_not_count(half: float) -> None:
    """d = max(d, 1 - half) has many solutions, and the least one is the distance."""
    d = exact.undiscounted(waiting_pair(half))
    assert abs(d("s", "t") - (1 - half)) <= d.error <= 1e-6


def test_a_move_that_waits_proves_nothing() -> None:
    mdp = waiting_pair()
    rows = fixed_point.round_rows(mdp, snap=True)
    classes = compute_comparison_classes(mdp)
    pairs = strategy_iteration.find_undecided_pairs(rows, classes, mdp.action_mask)
    moves = strategy_iteration.list_moves(pairs, mdp.action_mask)
    s, t = mdp.state("s"), mdp.state("t")
    pair = pairs.number[s, t]
    iteration = CouplingIteration(rows, pairs, moves)
    for action, is_positive in (("go", True), ("wait", False)):
        assert mdp.actions is not None
        iteration.selected[pair] = moves.starts[pair] + mdp.actions.index(action)
        assert strategy_iteration._find_positive_pairs(iteration)[pair] == is_positive


@pytest.mark.parametrize("thirds", [True, False])
def test_cycles_over_several_pairs_have_one_value(thirds: bool) -> None:
    """Both states move at random in a ring, for as long as the actions choose, and then go."""
    share = [1 / 3, 1 / 3, 1 / 3] if thirds else [0.25, 0.25, 0.5]
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for side, i in itertools.product("st", range(3)):
        # The order of the successors differs, and so would their rounding.
        ring = [f"{side}{j}" for j in (range(3) if side == "s" else (1, 2, 0))]
        masses = share if side == "s" else share[1:] + share[:1]
        won = 0.1 * (i + 1) if side == "s" else 0.0
        rows[f"{side}{i}"] = {
            "walk": dict(zip(ring, masses, strict=True)),
            "go": {"won": won, "done": 1 - won} if won else {"done": 1.0},
        }
    labels = {"won": "won"} | {f"{side}{i}": f"at {i}" for side in "st" for i in range(3)}
    d = exact.undiscounted(build_mdp(rows, labels))
    assert d.error <= 1e-6
    # Walking to the last state and going there is best from everywhere.
    for i in range(3):
        assert abs(d(f"s{i}", f"t{i}") - 0.3) <= d.error


def test_distance_one_by_the_choice_of_actions() -> None:
    """Each round wins with probability 1/2 and may be repeated: labels differ in the end."""
    rows = {
        "s": {"try": {"s": 0.5, "won": 0.5}, "go": {"done": 1.0}},
        "t": {"try": {"t": 1.0}, "go": {"done": 1.0}},
    }
    d = exact.undiscounted(build_mdp(rows, {"won": "won"}))
    assert (d("s", "t"), d.bounds("s", "t"), d.error) == (1.0, (1.0, 1.0), 0.0)


def test_one_action_is_the_chain() -> None:
    for seed in range(20):
        chain = random_chain(seed)
        P = np.repeat(chain.P.toarray()[:, None], 2, axis=1)
        twice = MDP(P, np.zeros(P.shape[:2]), discount=0.9, labels=chain.labels)
        d, again = exact.undiscounted(chain), exact.undiscounted(twice)
        np.testing.assert_allclose(again.values, d.values, atol=d.error + again.error)
        np.testing.assert_array_equal(again.values == 1, d.values == 1)


def test_more_actions_increase_distances() -> None:
    for seed in range(20):
        mdp = random_mdp(seed, 7, distinct=False, denominator=4).replace(available=None)
        if not mdp.has_labels:
            continue
        d = exact.undiscounted(mdp)
        for action in range(mdp.num_actions):
            single = exact.undiscounted(mdp.apply_policy(np.full(mdp.num_states, action)))
            assert (single.values <= d.values + d.error + single.error).all()


def test_snaps_decimals_and_thirds() -> None:
    P = [[[1 / 3, 2 / 3, 0]], [[0.1, 0.2, 0.7]], [[0.001, 0.3, 0.699]]]
    rows = fixed_point.round_rows(MDP(P, np.zeros((3, 1)), discount=0.9), snap=True)
    total = Fraction(rows.total)
    found = [Fraction(float(mass)) / total for mass in rows.probabilities]
    expected = [(1, 3), (2, 3), (1, 10), (2, 10), (7, 10), (1, 1000), (3, 10), (699, 1000)]
    assert found == [Fraction(*pair) for pair in expected]
    assert 0 < rows.rounding.max() < 1e-15


def test_actions_that_differ_are_labels() -> None:
    available = np.array([[True, True], [True, False]])
    P = np.tile(np.eye(2)[:, None], (1, 2, 1))
    mdp = MDP(P, np.zeros((2, 2)), discount=0.9, available=available)
    assert exact.undiscounted(mdp)(0, 1) == 1.0


def test_rejects_choice_labels() -> None:
    mdp: Any = waiting_pair().replace(choice_labels=["a", "a"])
    with pytest.raises(InputError, match=r"pass mdp\.replace\(choice_labels=None\)"):
        exact.undiscounted(mdp)


def test_rejects_observations() -> None:
    mdp: Any = waiting_pair()
    observed = mdp.replace(observations=np.arange(mdp.num_states)[:, None])
    with pytest.raises(InputError, match=r"pass mdp\.replace\(observations=None"):
        exact.undiscounted(observed)
    plain = observed.replace(observations=None, ground_distance=None)
    assert (exact.undiscounted(plain).values == exact.undiscounted(mdp).values).all()
