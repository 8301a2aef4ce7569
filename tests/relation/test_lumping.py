"""Relations of stochastic MDPs against exact fractions, by their laws, and where rounding bites."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from bisimetric import InputError, relation, worlds
from bisimetric.mdp import MDP
from bisimetric.relation import api, lumping, refinement
from tests.strategies import deterministic_mdps, stochastic_mdps

Labels = NDArray[np.int64]
Compute = Callable[[MDP], Labels]

KINDS = {"bisimulation": relation.bisimulation, "lax": relation.lax}
both_kinds = pytest.mark.parametrize("compute", KINDS.values(), ids=KINDS)
any_mdps = st.booleans().flatmap(lambda masked: stochastic_mdps(available=masked))


def first_appearance(keys: Iterable[Hashable]) -> list[int]:
    number: dict[Hashable, int] = {}
    return [number.setdefault(key, len(number)) for key in keys]


def runs(values: Iterable[Fraction], tol: float) -> dict[Fraction, int]:
    """The number of the run of each value, where runs lie more than `tol` apart."""
    number, before, found = {}, Fraction(-1), -1
    for value in sorted(set(values)):
        found += value - before > tol
        number[value], before = found, value
    return number


def signatures(mdp: MDP, labels: list[int], lax: bool, tol: float) -> list[Hashable]:
    """What each state does, as the definition reads it, with exact sums of fractions."""
    rows: list[dict[int, Fraction]] = []
    for row in range(mdp.R.size):
        entries = slice(*mdp.P.indptr[row : row + 2])
        chances = [Fraction(chance) for chance in mdp.P.data[entries].tolist()]
        mass: dict[int, Fraction] = {}
        for t, chance in zip(mdp.P.indices[entries], chances, strict=True):
            mass[labels[t]] = mass.get(labels[t], Fraction(0)) + chance / sum(chances)
        rows.append(mass)
    number = runs([Fraction(0), *(value for mass in rows for value in mass.values())], tol)
    found: list[Hashable] = []
    for s in range(mdp.num_states):
        moves = [
            (R, frozenset((c, number[value]) for c, value in mass.items() if number[value]))
            if mdp.available is None or mdp.available[s, a]
            else None
            for a, (R, mass) in enumerate(zip(mdp.R[s], rows[s * mdp.num_actions :], strict=False))
        ]
        found.append(frozenset(filter(None, moves)) if lax else tuple(moves))
    return found


def by_rounds(mdp: MDP, lax: bool, tol: float = relation.RELATION_TOL) -> list[int]:
    """Refine all states by what they do until no class is split."""
    labels, classes = [0] * mdp.num_states, 1
    while True:
        labels = first_appearance(signatures(mdp, labels, lax, tol))
        if max(labels) + 1 == classes:
            return labels
        classes = max(labels) + 1


@both_kinds
@given(mdp=any_mdps)
@settings(deadline=None)
def test_agrees_with_exact_fractions(compute: Compute, mdp: MDP) -> None:
    labels = compute(mdp)
    assert labels.dtype == np.int64
    assert labels.tolist() == by_rounds(mdp, compute is relation.lax)


@both_kinds
@given(mdp=any_mdps)
@settings(deadline=None)
def test_is_a_fixed_point_of_its_definition(compute: Compute, mdp: MDP) -> None:
    labels = compute(mdp).tolist()
    found = signatures(mdp, labels, compute is relation.lax, relation.RELATION_TOL)
    assert first_appearance(found) == labels


@given(mdp=stochastic_mdps(), seed=st.integers(0, 1000), mixed=st.booleans())
@settings(deadline=None)
def test_on_policy_agrees_with_exact_fractions(mdp: MDP, seed: int, mixed: bool) -> None:
    rng = np.random.default_rng(seed)
    policy: NDArray[Any] = rng.integers(mdp.num_actions, size=mdp.num_states)
    if mixed:
        policy = rng.multinomial(4, np.ones(mdp.num_actions) / mdp.num_actions, mdp.num_states) / 4
    tol = 5e-15  # between rounding and the shares of 1e-12 that the policy makes
    expected = by_rounds(mdp.apply_policy(policy), lax=False, tol=tol)
    assert relation.on_policy(mdp, policy, tol=tol).tolist() == expected


def through_the_stochastic_kernel(compute: Compute, mdp: MDP) -> Labels:
    def lump_deterministic(
        source: Any, target: Any, labels: Any, num_labels: int, *start: Any
    ) -> Any:
        indptr = np.arange(target.size + 1, dtype=target.dtype)
        initial, num_initial, free = start
        moves = lumping.group_by_successor(indptr, target, np.ones(target.size), len(initial))
        lump: Any = lumping.lump
        return lump(*moves, source, labels, num_labels, initial, num_initial, free, 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "refine", lump_deterministic)
        return compute(mdp)


@both_kinds
@given(mdp=deterministic_mdps(max_states=12))
@settings(deadline=None)
def test_both_kernels_agree_on_deterministic_mdps(compute: Compute, mdp: MDP) -> None:
    assert through_the_stochastic_kernel(compute, mdp).tolist() == compute(mdp).tolist()


@both_kinds
@pytest.mark.parametrize(("states", "actions"), [(3000, 1), (1000, 3), (100, 8)])
def test_both_kernels_agree_on_larger_mdps(compute: Compute, states: int, actions: int) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        successors = rng.integers(states, size=(states, actions))
        rewards = rng.integers(2, size=(states, actions))
        mdp = MDP.deterministic(successors, rewards, discount=0.9)
        assert through_the_stochastic_kernel(compute, mdp).tolist() == compute(mdp).tolist()


@both_kinds
@given(mdp=any_mdps, seed=st.integers(0, 1000))
@settings(deadline=None)
def test_relabelling_states_permutes_the_classes(compute: Compute, mdp: MDP, seed: int) -> None:
    old = np.random.default_rng(seed).permutation(mdp.num_states)  # new state i is old[i]
    rows = (old[:, None] * mdp.num_actions + np.arange(mdp.num_actions)).ravel()
    available = None if mdp.available is None else mdp.available[old]
    shuffled = MDP(mdp.P[rows][:, old], mdp.R[old], 0.9, available=available)
    assert compute(shuffled).tolist() == first_appearance(compute(mdp)[old])


@given(mdp=any_mdps, seed=st.integers(0, 1000))
@settings(deadline=None)
def test_reordering_the_actions_of_single_states_keeps_lax_classes(mdp: MDP, seed: int) -> None:
    order = np.random.default_rng(seed).random(mdp.R.shape).argsort(axis=1)
    s = np.arange(mdp.num_states)[:, None]
    available = None if mdp.available is None else mdp.available[s, order]
    rows = mdp.P[(s * mdp.num_actions + order).ravel()]
    shuffled = MDP(rows, mdp.R[s, order], 0.9, available=available)
    assert relation.lax(shuffled).tolist() == relation.lax(mdp).tolist()


@given(mdp=any_mdps)
@settings(deadline=None)
def test_every_bisimulation_class_lies_in_one_lax_class(mdp: MDP) -> None:
    strict, lax = relation.bisimulation(mdp), relation.lax(mdp)
    assert len(set(zip(strict, lax, strict=True))) == len(set(strict))


@both_kinds
@given(mdp=any_mdps)
@settings(deadline=None)
def test_the_placeholder_of_a_missing_action_is_ignored(compute: Compute, mdp: MDP) -> None:
    """The classes are those of an MDP where each lacking action repeats the first that there is.

    For bisimulation states with different available actions are kept apart by a reward.
    """
    if mdp.available is None:
        return
    s = np.arange(mdp.num_states)[:, None]
    a = np.where(mdp.available, np.arange(mdp.num_actions), mdp.available.argmax(axis=1)[:, None])
    R = mdp.R[s, a]
    if compute is relation.bisimulation:
        R = np.hstack([R, (mdp.available @ 2.0 ** np.arange(mdp.num_actions))[:, None]])
        a = np.hstack([a, mdp.available.argmax(axis=1)[:, None]])
    full = MDP(mdp.P[(s * mdp.num_actions + a).ravel()], R, 0.9)
    assert compute(mdp).tolist() == compute(full).tolist()


def towards(chances: list[float], tol: float) -> list[int]:
    """The classes of states that reach a paying end with these chances, else one that does not."""
    count = len(chances)
    P = np.zeros((count + 2, 1, count + 2))
    P[:count, 0, count], P[:count, 0, count + 1] = chances, 1 - np.array(chances)
    P[count, 0, count] = P[count + 1, 0, count + 1] = 1
    R = np.zeros((count + 2, 1))
    R[count] = 1
    mdp = MDP(P, R, discount=0.9)
    labels: list[int] = relation.bisimulation(mdp, tol=tol).tolist()
    assert relation.lax(mdp, tol=tol).tolist() == labels
    assert relation.on_policy(mdp, [0] * len(P), tol=tol).tolist() == labels
    return labels[:count]


@pytest.mark.parametrize(
    ("chances", "tol", "classes"),
    [
        ([0.0, 1e-12, 1e-12], 1e-13, [0, 1, 1]),
        ([1.0, 1 - 1e-12, 1.0], 1e-13, [0, 1, 0]),
        ([0.0, 1e-12, 0.5], 1e-11, [0, 0, 1]),
        ([0.3, 0.1 + 0.2, 0.3 + 2e-13], 1e-13, [0, 0, 1]),
        ([0.3, 0.1 + 0.2, 0.3], 0.0, [0, 1, 0]),
        ([0.5, 0.5 + 0.8e-13, 0.5 + 1.6e-13], 1e-13, [0, 0, 0]),  # in small steps
        ([0.5, 0.5 + 1.6e-13], 1e-13, [0, 1]),
        ([0.9, 0.1, 0.5, 0.5, 0.5, 0.1, 0.7], 1e-13, [0, 1, 2, 2, 2, 1, 3]),
        ([0.9, 0.1, 0.5, 0.55, 0.45, 0.1, 0.7], 0.06, [0, 1, 2, 2, 2, 1, 3]),
        ([0.2, 0.3, 0.0, 0.05], 0.1, [0, 0, 1, 1]),
        ([1e-20, 0.0], 0.0, [0, 0]),  # below 2^-63
        ([1e-18, 0.0], 0.0, [0, 1]),
    ],
)
def test_probabilities_part_at_gaps_wider_than_tol(
    chances: list[float], tol: float, classes: list[int]
) -> None:
    assert towards(chances, tol) == classes
    backwards = towards(chances[::-1], tol)
    assert first_appearance(backwards[::-1]) == classes


@given(
    chances=st.lists(st.integers(0, 60), min_size=1, max_size=12),
    tol=st.sampled_from([0.0, 0.02, 0.05, 0.1]),
)
@settings(deadline=None)
def test_sums_part_like_the_runs_of_the_definition(chances: list[int], tol: float) -> None:
    exact = [Fraction(chance, 64) for chance in chances]
    number = runs(exact, tol)
    expected = first_appearance(number[value] for value in exact)
    assert towards([float(value) for value in exact], tol) == expected


@pytest.mark.parametrize("count", [3, 49, 1000])
def test_a_class_reached_in_many_ways_is_reached_for_certain(count: int) -> None:
    """1 / count, count times over, sums to 1, however the float sum is rounded."""
    P = np.zeros((count + 1, 1, count + 1))
    P[:count, 0, :count] = 1 / count
    P[count, 0, 0] = 1
    mdp = MDP(P, np.zeros((count + 1, 1)), discount=0.9)
    assert relation.bisimulation(mdp, tol=1e-15).tolist() == [0] * (count + 1)
    R = np.zeros((count + 1, 1))
    R[count] = 1
    labels = relation.bisimulation(mdp.replace(R=R), tol=1e-15)
    assert labels.tolist() == [0] * count + [1]


def test_rows_that_sum_to_1_only_nearly_are_scaled() -> None:
    """States 3 and 4 reach the three paying states for certain, through three of them and one."""
    third = 0.333333333
    P = np.zeros((9, 1, 9))
    P[:3, 0, :3] = P[3, 0, :3] = third
    P[4, 0, 2] = P[5, 0, 5] = 1
    P[6:, 0, 5] = 1
    mdp = MDP(P, np.arange(9)[:, None] < 3, discount=0.9)
    labels = relation.bisimulation(mdp)
    assert labels.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert relation.quotient(mdp, labels).next_state.tolist() == [[0], [0], [2]]
    some = relation.quotient(mdp, [0, 1, 2, 3, 4, 5, 5, 5, 5]).P
    assert some.sum(axis=1).tolist() == [1] * 6


def test_the_quotient_of_chosen_states() -> None:
    mdp = worlds.load("pessimism")
    labels = np.array([0, 0, 1])
    for states in ([0, 2], [1, 2]):
        small = relation.quotient(mdp, labels, states=states)
        np.testing.assert_array_equal(small.R, mdp.R[states])
        np.testing.assert_array_equal(small.next_state, labels[mdp.next_state[states]])
    for wrong in ([2, 0], [0], [0, 3], [-3, 2], [0.0, 2.0]):
        with pytest.raises(InputError, match="one state of each of 2 classes, in the order of the"):
            relation.quotient(mdp, labels, states=wrong)


def test_probabilities_below_the_smallest_weight_count_as_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    P = np.zeros((5, 1, 5))
    P[:, 0, 0], P[1:, 0, 3:] = 1, 1e-30
    mdp = MDP(P, [[0], [0], [0], [1], [1]], discount=0.9)
    monkeypatch.setattr(api, "lump", lumping.lump.py_func)  # which checks its indices
    assert relation.bisimulation(mdp, tol=0).tolist() == [0, 0, 0, 1, 1]


def random_mdp(seed: int, states: int, actions: int) -> MDP:
    """Three successors per row, in eighths, and so few rewards that splitting takes many rounds."""
    rng = np.random.default_rng(seed)
    rows = states * actions
    shares = np.array([(4, 2, 2), (6, 1, 1), (3, 3, 2)])[rng.integers(3, size=rows)] / 8
    successors = rng.integers(states, size=3 * rows)
    P = sparse.csr_array((shares.ravel(), successors, 3 * np.arange(rows + 1)), (rows, states))
    rewards = rng.random((states, actions)) < 3 / states
    return MDP(P, rewards.astype(np.float64), 0.9)


def blown_up(small: MDP, states: int, order: NDArray[np.int64], seed: int) -> tuple[MDP, Labels]:
    """An MDP whose state s acts like state `planted[s]` of `small`, and `planted`.

    Its action i is action `order[s, i]` of `small`; the probability of a successor is shared, in
    shares that differ from state to state, between two states of its class.
    """
    rng = np.random.default_rng(seed)
    planted = rng.permutation(np.resize(np.arange(small.num_states), states))
    members = np.argsort(planted, kind="stable")
    count = np.bincount(planted)
    rows = small.P[(planted[:, None] * small.num_actions + order).ravel()]
    wanted = np.repeat(rows.indices, 2)
    successors = members[(count.cumsum() - count)[wanted] + rng.integers(count[wanted])]
    share = rng.integers(9, size=rows.nnz) / 8
    entries = np.stack([rows.data * share, rows.data * (1 - share)], axis=1).ravel()
    P = sparse.csr_array(
        (entries, successors, 2 * rows.indptr), (len(order) * order.shape[1], states)
    )
    return MDP(P, np.take_along_axis(small.R[planted], order, axis=1), 0.9), planted


@both_kinds
@pytest.mark.parametrize(("states", "actions"), [(120, 1), (60, 3), (12, 12)])
def test_agrees_with_exact_fractions_on_larger_mdps(
    compute: Compute, states: int, actions: int
) -> None:
    for seed in range(3):
        mdp = random_mdp(seed, states, actions)
        assert compute(mdp).tolist() == by_rounds(mdp, compute is relation.lax)


@both_kinds
@pytest.mark.parametrize(("classes", "states"), [(60, 20_000), *((6, n) for n in range(12, 40))])
def test_planted_classes_are_recovered(compute: Compute, classes: int, states: int) -> None:
    small = random_mdp(states, classes, 3)
    order = np.tile(np.arange(3), (states, 1))
    if compute is relation.lax:  # any order, and some actions twice
        repeated = np.random.default_rng(states).integers(3, size=(states, 2))
        order = np.random.default_rng(1).permuted(np.hstack([order, repeated]), axis=1)
    mdp, planted = blown_up(small, states, order, seed=states)
    expected = np.array(by_rounds(small, compute is relation.lax))[planted]
    assert compute(mdp).tolist() == first_appearance(expected)


def lazy_chain(states: int, at_the_end: float) -> MDP:
    """Only the last state pays, so each round of plain refinement would split off one state."""
    P = (sparse.eye_array(states) + sparse.eye_array(states, k=1)).tolil()
    P[-1, -1] = 2
    rewards = np.zeros((states, 1))
    rewards[-1] = at_the_end
    return MDP(sparse.csr_array(P / 2), rewards, 0.9)


@both_kinds
@pytest.mark.parametrize(
    "mdp",
    [random_mdp(0, 300, 1), random_mdp(0, 150, 3), lazy_chain(400, 1.0), lazy_chain(400, -1.0)],
    ids=["1 action", "3 actions", "chain", "negative chain"],
)
def test_work_grows_like_transitions_times_their_logarithm(
    compute: Compute, mdp: MDP, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row marks its source at most twice in log2(rows) + 1 cords.

    A state is in at most log2(S) blocks that split cords, and then each transition to it marks one
    row at the most.
    """
    marks = 0

    def count_marks(parts: Any, elements: Any) -> None:
        nonlocal marks
        marks += len(elements)
        mark(parts, elements)

    mark = refinement.mark
    monkeypatch.setattr(refinement, "mark", count_marks)
    monkeypatch.setattr(lumping, "mark", count_marks)
    monkeypatch.setattr(lumping, "split_by_cord", refinement.split_by_cord.py_func)
    monkeypatch.setattr(api, "lump", lumping.lump.py_func)
    rows, states = mdp.R.size, mdp.num_states
    assert compute(mdp).max() > states / 2
    assert rows / 2 < marks <= 2 * rows * (np.log2(rows) + 1) + mdp.P.nnz * np.log2(states)
