"""Undiscounted distances against rational arithmetic, and the laws that they obey."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bisimetric import MDP, Distance, InputError, NotConverged, exact, relation
from bisimetric.exact.undiscounted_solver import coupling_iteration, fixed_point, pair_kernels
from bisimetric.exact.undiscounted_solver.distance_one import find_undecided_pairs
from bisimetric.exact.undiscounted_solver.strategy_iteration import list_moves
from tests.exact import labelled_models
from tests.exact import undiscounted_oracle as oracle
from tests.oracles import transport
from tests.property_testing import scaled

SEEDS = st.integers(0, 2**32 - 1)


def build_chain(P: Any, labels: Any, **attributes: Any) -> MDP:
    P = np.array(P, float)
    return MDP(P[:, None], np.zeros((len(P), 1)), discount=0.9, labels=labels, **attributes)


def random_chain(seed: int, **options: Any) -> MDP:
    """A chain whose states have at least two label sets."""
    rng = np.random.default_rng(seed)
    while True:
        chain = oracle.random_chain(rng, int(rng.integers(2, 8)), **options)
        if chain.has_labels:
            return chain


def compute(chain: MDP, **options: Any) -> Distance:
    """The distance, or the partial one: its error is claimed as well."""
    try:
        return exact.undiscounted(chain, **options)
    except NotConverged as stop:
        return cast("Distance", stop.partial)


def solve_rationally(chain: MDP) -> list[list[Fraction]]:
    """The rational distances: of the quotient, where rounding alone separates states of a class."""
    truth, classes = oracle.solve(chain), relation.bisimulation(chain)
    pairs = itertools.product(range(len(truth)), repeat=2)
    if all((truth[s][t] == 0) == (classes[s] == classes[t]) for s, t in pairs):
        return truth
    truth = oracle.solve(relation.quotient(chain, classes))
    return [[truth[a][b] for b in classes] for a in classes]


def assert_contains(d: Distance, truth: list[list[Fraction]]) -> None:
    """Bounds and error hold, and exactly the distances 0 and 1 are decided."""
    for s, t in itertools.product(range(len(truth)), repeat=2):
        low, high = d.bounds(s, t)
        assert Fraction(low) <= truth[s][t] <= Fraction(high)
        assert abs(Fraction(float(d.values[s, t])) - truth[s][t]) <= Fraction(d.error)
        for decided in (0, 1):
            assert (d(s, t) == decided) == (truth[s][t] == decided)
            assert d(s, t) != decided or low == high == decided


@settings(deadline=None, max_examples=scaled(100))
@given(SEEDS, st.sampled_from([3, 7, 8, 10, 10**9]))
@example(378, 7)  # two states are bisimilar up to the rounding of sevenths,
@example(3902, 10)  # or of tenths
def test_bounds_contain_the_rational_distances(seed: int, denominator: int) -> None:
    chain = random_chain(seed, denominator=denominator)
    d = exact.undiscounted(chain)
    assert d.error <= 1e-6
    assert_contains(d, solve_rationally(chain))


@settings(deadline=None, max_examples=scaled(100))
@given(SEEDS, st.sampled_from([1e-3, 1e-6, 1e-9, 2.0**-40, 1e-12]))
def test_bounds_hold_with_states_that_are_rarely_left(seed: int, leave: float) -> None:
    chain = random_chain(seed, leave=leave)
    d = compute(chain)
    assert d.error <= 1e-6 or leave <= 1e-12
    assert_contains(d, oracle.solve(chain))


@settings(deadline=None, max_examples=scaled(30))
@given(SEEDS)
def test_is_the_least_fixed_point(seed: int) -> None:
    """Without any decided pair: value iteration from 0, and from the result."""
    chain = random_chain(seed, denominator=4)
    d = exact.undiscounted(chain)
    below = oracle.iterate_from_below(chain, 400)
    assert (below <= d.values + d.error + 1e-12).all()
    np.testing.assert_allclose(below, d.values, atol=1e-4)


@settings(deadline=None, max_examples=scaled(30))
@given(SEEDS)
def test_laws(seed: int) -> None:
    chain = random_chain(seed)
    d = exact.undiscounted(chain)
    np.testing.assert_array_equal(d.values, d.values.T)
    assert (d.values[None] <= d.values[:, :, None] + d.values[:, None] + 3 * d.error).all()
    classes = relation.bisimulation(chain)
    np.testing.assert_array_equal(d.values == 0, classes[:, None] == classes[None, :])
    order = np.random.default_rng(seed).permutation(chain.num_states)
    assert chain.labels is not None
    moved = build_chain(
        chain.P.toarray()[np.ix_(order, order)],
        {name: mask[order] for name, mask in chain.labels.items()},
    )
    np.testing.assert_allclose(
        exact.undiscounted(moved).values, d.values[np.ix_(order, order)], atol=2 * d.error + 1e-6
    )


@settings(deadline=None, max_examples=scaled(20))
@given(SEEDS)
def test_is_the_limit_of_discounted_distances(seed: int) -> None:
    """(1 - discount) d~ increases to d: it is the probability that labels differ before a stop."""
    chain = random_chain(seed)
    d = exact.undiscounted(chain)
    found = [
        (1 - discount)
        * exact.bisimulation(chain.replace(discount=discount), tol=1e-7 / (1 - discount)).values
        for discount in (0.9, 0.999, 0.99999)
    ]
    for lower, upper in itertools.pairwise([*found, d.values]):
        assert (lower <= upper + d.error + 2e-7).all()
    np.testing.assert_allclose(found[-1], d.values, atol=1e-2)


@pytest.mark.parametrize(
    ("build", "num_undecided"),
    [
        (labelled_models.build_die, 2),
        (lambda: labelled_models.build_leader(2, 3), 0),
        (lambda: labelled_models.build_crowds(2, 2), 45),
        (lambda: labelled_models.build_nand(2, 2), 26),
    ],
    ids=["die", "leader", "crowds", "nand"],
)
def test_model_checking_case_studies(build: Callable[[], MDP], num_undecided: int) -> None:
    chain = build()
    d = exact.undiscounted(chain)
    assert d.metadata["undecided"] == num_undecided
    lower, upper = oracle.enclose(chain, 60)
    for s, t in itertools.product(range(chain.num_states), repeat=2):
        assert lower[s][t] <= upper[s][t] <= lower[s][t] + Fraction(1, 10**6)
        low, high = d.bounds(s, t)
        assert Fraction(low) <= upper[s][t]
        assert lower[s][t] <= Fraction(high)
        assert d(s, t) != 0 or lower[s][t] == 0
        assert d(s, t) != 1 or upper[s][t] == 1


def test_coins_have_the_known_distance() -> None:
    P = [[0.5, 0, 0.5], [0, 0.25, 0.75], [0, 0, 1]]
    d = exact.undiscounted(build_chain(P, ["", "", "heads"]), tol=1e-12)
    # d = 1/4 d + 1/4: both stay with 1/4, and 1/4 goes on while the other one has ended.
    assert abs(d(0, 1) - 1 / 3) <= d.error <= 1e-12


def test_recurrent_chains_are_at_distance_one() -> None:
    """Two coins that are tossed forever differ at some time, however close they are."""
    P = np.zeros((4, 4))
    P[:2, 0], P[:2, 1] = 0.5, 0.5
    P[2:, 2], P[2:, 3] = 0.5 + 1e-9, 0.5 - 1e-9
    d = exact.undiscounted(build_chain(P, ["h", "t", "h", "t"]))
    assert (d(0, 2), d(1, 3), d.error) == (1.0, 1.0, 0.0)
    P[2:, 2], P[2:, 3] = 0.5 + 1e-15, 0.5 - 1e-15
    d = exact.undiscounted(build_chain(P, ["h", "t", "h", "t"]))
    assert d(0, 2) == 0.0
    assert 0 < d.metadata["merged_within"] < 1e-14


def test_a_deterministic_chain_is_decided() -> None:
    chain = MDP.deterministic([[1], [2], [2], [2]], np.zeros((4, 1)), discount=0.9,
                              labels=["", "", "x", ""])  # fmt: skip
    d = exact.undiscounted(chain)
    np.testing.assert_array_equal(
        d.values, [[0, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 1], [1, 0, 1, 0]]
    )
    assert (d.error, d.metadata["undecided"]) == (0.0, 0)


def test_solves_its_equation_with_large_supports() -> None:
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(30), size=30)
    P[-2:] = np.eye(30)[-2:]
    d = exact.undiscounted(build_chain(P, ["x" if s == 29 else "" for s in range(30)]), tol=1e-9)
    assert d.metadata["undecided"] == 29 * 28 / 2
    for s, t in rng.integers(29, size=(30, 2)):
        assert abs(transport(d.values, P[s], P[t]) - d(s, t)) <= 2 * d.error + 1e-9


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_decided_entries_are_exact_in_each_dtype(dtype: str) -> None:
    """A distance within rounding of 1 is not 1, and one within rounding of 0 not 0."""
    tiny = 2.0**-40
    names = ["a", "b", "c", "d", "e", "f", "g", "x", "y", "w"]
    labels = ["", "", "y", "", "", "z", "z", "x", "y", "w"]
    edges = {
        "ay": 1 - tiny, "ac": tiny, "by": 1, "cy": 1 - tiny, "cx": tiny,
        "dw": 1 - tiny, "df": tiny, "eg": 1, "fx": tiny, "fw": 1 - tiny, "gx": 1,
        "xx": 1, "yy": 1, "ww": 1,
    }  # fmt: skip
    P = np.zeros((10, 10))
    for edge, mass in edges.items():
        P[names.index(edge[0]), names.index(edge[1])] = mass
    chain = build_chain(P, labels, names=names)
    d = compute(chain, dtype=dtype)
    truth = oracle.solve(chain)
    assert truth[1][0] == Fraction(1, 2**80)
    assert truth[4][3] == 1 - Fraction(1, 2**80)
    assert_contains(d, truth)
    assert d.values.dtype == dtype


def test_rounds_rows_to_fixed_point() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        n = int(rng.integers(1, 8))
        P = rng.random((n, n)) ** rng.integers(1, 20) * np.where(rng.random((n, n)) < 0.2, 1e-17, 1)
        P *= (1 + 1e-9 * rng.random()) / P.sum(axis=1, keepdims=True)
        chain = build_chain(P, None)
        rounded = fixed_point.round_rows(chain)
        for s, row in enumerate(oracle.normalise_rows(chain)):
            part = slice(rounded.row_starts[s], rounded.row_starts[s + 1])
            masses = [Fraction(float(mass)) for mass in rounded.probabilities[part]]
            assert sum(masses) == 1
            assert min(masses) > 0
            assert all((mass * 2**53).denominator == 1 for mass in masses)
            moved = sum(
                abs(mass - row[int(t)])
                for mass, t in zip(masses, rounded.successors[part], strict=True)
            )
            assert moved / 2 <= Fraction(float(rounded.rounding[s])) <= moved + Fraction(1, 2**90)


@pytest.mark.parametrize("offset", [0.49, -0.49])
def test_the_error_contains_the_rounding_of_rows(offset: float) -> None:
    """A state is left with 2^13 units of 2^-53, and nearly half a unit that rounding drops."""
    unit = 2.0**-53
    won, lost = (2**13 + offset) * unit, (2**13 - offset) * unit
    P = [[1 - won - lost, lost, won], [0, 1, 0], [0, 0, 1]]
    chain = build_chain(P, [(), (), "won"])
    d = compute(chain)
    truth = oracle.solve(chain)
    assert abs(truth[1][0] - Fraction(1, 2)) > Fraction(1, 10**5)
    assert_contains(d, truth)


def test_equality_without_slack_is_not_proven() -> None:
    """Both sums are exactly 0 here, but they might be off by rounding."""
    P = np.zeros((5, 5))
    P[0, [2, 3]] = P[1, 4] = 0.5
    P[1, [2, 3]] = 0.25
    P[2, 2] = P[3, 3] = P[4, 4] = 1
    chain = build_chain(P, [(), (), "x", "y", "z"])
    rows = fixed_point.round_rows(chain)
    pairs = find_undecided_pairs(rows, chain.label_classes)
    iteration = coupling_iteration.CouplingIteration(
        rows, pairs, list_moves(pairs, chain.action_mask)
    )
    iteration.values = np.array([0.5])
    assert pairs.size == 1
    assert iteration.improve()[1] == 1
    assert iteration.count_unproven_upper(iteration.values) == 1
    iteration.values = np.array([0.5 - 1e-14])
    assert iteration.improve()[1] == 0
    assert iteration.count_unproven_upper(np.array([0.5 + 1e-14])) == 0


def test_a_wrong_certificate_is_rejected() -> None:
    """Raised lower bounds, and lowered upper bounds, of one pair are not proven."""
    chain = random_chain(3)
    quotient = relation.quotient(chain, relation.bisimulation(chain))
    rounded = fixed_point.round_rows(quotient)
    pairs = find_undecided_pairs(rounded, quotient.label_classes)
    assert pairs.size > 0
    moves = list_moves(pairs, quotient.action_mask)
    bounds = coupling_iteration.solve(rounded, pairs, moves, 1e-9)
    iteration = coupling_iteration.CouplingIteration(rounded, pairs, moves)
    iteration.values = bounds.lower.copy()
    assert iteration.improve()[1] == 0
    assert iteration.count_unproven_upper(bounds.upper) == 0
    for pair in range(pairs.size):
        iteration.values = bounds.lower.copy()
        iteration.values[pair] = bounds.upper[pair] + 1e-6
        assert iteration.improve()[1] > 0
        lowered = bounds.upper.copy()
        lowered[pair] = bounds.lower[pair] - 1e-6
        assert iteration.count_unproven_upper(lowered) > 0


def test_iterative_and_direct_linear_solves_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = random_chain(3)
    direct = exact.undiscounted(chain)
    monkeypatch.setattr(coupling_iteration, "MAX_BLOCK", 0)
    iterative = exact.undiscounted(chain)
    np.testing.assert_allclose(iterative.values, direct.values, atol=1e-6)
    monkeypatch.setattr(coupling_iteration, "MAX_LINEAR_STEPS", 1)
    np.testing.assert_allclose(exact.undiscounted(chain).values, direct.values, atol=1e-6)


def test_without_a_proof_bounds_are_trivial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coupling_iteration, "MAX_ROUNDS", 1)
    with pytest.raises(NotConverged, match=r"proves an error of 0\.5") as stop:
        exact.undiscounted(random_chain(3))
    d = stop.value.partial
    assert isinstance(d, Distance)
    assert_contains(d, oracle.solve(d.mdp))


def test_rewards_and_discount_do_not_count() -> None:
    chain = random_chain(5)
    other = chain.replace(R=np.arange(chain.num_states)[:, None] * 1.0, discount=0.1)
    np.testing.assert_array_equal(
        exact.undiscounted(other).values, exact.undiscounted(chain).values
    )


def test_saves_and_loads_with_its_bounds(tmp_path: Any) -> None:
    d = exact.undiscounted(random_chain(3))
    d.save(tmp_path / "d.npz")
    again = Distance.load(tmp_path / "d.npz")
    states = np.arange(len(d.values))
    assert again.kind == "undiscounted"
    assert not again.bounds_values
    for ends in zip(d.bounds(states[:, None], states), again.bounds(states[:, None], states),
                    strict=True):  # fmt: skip
        np.testing.assert_array_equal(*ends)
    with pytest.raises(InputError, match="is a probability"):
        d.explain(0, 1)


def test_rejects_what_it_cannot_compare() -> None:
    chain = build_chain(np.eye(2), None)
    with pytest.raises(InputError, match="all states have the same labels and actions"):
        exact.undiscounted(chain)
    with pytest.raises(InputError, match=r"tol is 0 and must be above 0"):
        exact.undiscounted(build_chain(np.eye(2), ["", "x"]), tol=0)


def test_kernels_do_not_depend_on_chunks() -> None:
    chain = random_chain(11)
    rounded = fixed_point.round_rows(chain)
    pairs = find_undecided_pairs(rounded, chain.label_classes)
    whole, parts = np.empty((2, pairs.size)), np.empty((2, pairs.size))
    moves = list_moves(pairs, chain.action_mask)
    pair_kernels.bound_slack(rounded, pairs, moves, whole, 0, pairs.size)
    for pair in range(pairs.size):
        pair_kernels.bound_slack(rounded, pairs, moves, parts, pair, pair + 1)
    np.testing.assert_array_equal(whole, parts)
