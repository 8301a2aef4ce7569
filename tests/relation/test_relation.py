"""Relations against slow readable references, against their definitions, and by their laws."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric import relation
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.relation import api, refinement

Labels = NDArray[np.int64]
Signature = Callable[[MDP, Any, int], Hashable]


def strict_signature(mdp: MDP, labels: Any, s: int) -> Hashable:
    return tuple((mdp.R[s, a], labels[mdp.next_state[s, a]]) for a in range(mdp.num_actions))


def lax_signature(mdp: MDP, labels: Any, s: int) -> Hashable:
    return frozenset((mdp.R[s, a], labels[mdp.next_state[s, a]]) for a in range(mdp.num_actions))


KINDS = {
    "bisimulation": (relation.bisimulation, strict_signature),
    "lax": (relation.lax, lax_signature),
}
both_kinds = pytest.mark.parametrize(("compute", "signature"), KINDS.values(), ids=KINDS)


def first_appearance(keys: Any) -> list[int]:
    number: dict[Hashable, int] = {}
    return [number.setdefault(key, len(number)) for key in keys]


def by_rounds(mdp: MDP, signature: Signature) -> list[int]:
    """Refine all states by their signatures until no class is split."""
    labels, classes = [0] * mdp.num_states, 1
    while True:
        labels = first_appearance(signature(mdp, labels, s) for s in range(mdp.num_states))
        if max(labels) + 1 == classes:
            return labels
        classes = max(labels) + 1


def by_pairs(mdp: MDP, lax: bool) -> list[int]:
    """Strike out pairs that break the definition until none is left."""
    states, actions = range(mdp.num_states), range(mdp.num_actions)
    alike = np.ones((mdp.num_states, mdp.num_states), bool)

    def match(s: int, a: int, t: int, b: int) -> bool:
        successors = mdp.next_state[s, a], mdp.next_state[t, b]
        return bool(mdp.R[s, a] == mdp.R[t, b] and alike[successors])

    def holds(s: int, t: int) -> bool:
        if not lax:
            return all(match(s, a, t, a) for a in actions)
        forth = all(any(match(s, a, t, b) for b in actions) for a in actions)
        return forth and all(any(match(s, a, t, b) for a in actions) for b in actions)

    while wrong := [(s, t) for s, t in product(states, states) if alike[s, t] and not holds(s, t)]:
        for pair in wrong:
            alike[pair] = False
    return first_appearance(int(np.argmax(alike[s])) for s in states)


def random_mdp(seed: int, states: int, actions: int, rewards: int) -> MDP:
    rng = np.random.default_rng(seed)
    shape = (states, actions)
    return MDP.deterministic(
        rng.integers(states, size=shape), rng.integers(rewards, size=shape), discount=0.9
    )


@st.composite
def mdps(draw: st.DrawFn, max_states: int = 7, max_actions: int = 3) -> MDP:
    """Deterministic MDPs with so few rewards that many states are bisimilar."""
    shape = draw(st.integers(1, max_states)), draw(st.integers(1, max_actions))
    size = shape[0] * shape[1]
    successors = draw(st.lists(st.integers(0, shape[0] - 1), min_size=size, max_size=size))
    reward = st.sampled_from(draw(st.sampled_from([(0.0,), (0.0, -0.0, 1.0), (-1.0, 0.5, 2.0)])))
    rewards = draw(st.lists(reward, min_size=size, max_size=size))
    return MDP.deterministic(
        np.reshape(successors, shape), np.reshape(rewards, shape), discount=0.9
    )


@both_kinds
@given(mdp=mdps())
@settings(deadline=None)
def test_agrees_with_both_oracles(
    compute: Callable[[MDP], Labels], signature: Signature, mdp: MDP
) -> None:
    labels = compute(mdp)
    assert labels.dtype == np.int64
    assert labels.tolist() == by_rounds(mdp, signature)
    assert labels.tolist() == by_pairs(mdp, lax=signature is lax_signature)


@both_kinds
@pytest.mark.parametrize("rewards", [1, 2, 5])
@pytest.mark.parametrize(("states", "actions"), [(2, 30), (40, 12), (400, 1), (300, 2), (200, 4)])
def test_agrees_with_rounds_on_larger_mdps(
    compute: Callable[[MDP], Labels], signature: Signature, states: int, actions: int, rewards: int
) -> None:
    for seed in range(3):
        mdp = random_mdp(seed, states, actions, rewards)
        assert compute(mdp).tolist() == by_rounds(mdp, signature)


@both_kinds
@given(mdp=mdps(max_states=12))
@settings(deadline=None)
def test_is_a_fixed_point_of_its_definition(
    compute: Callable[[MDP], Labels], signature: Signature, mdp: MDP
) -> None:
    labels = compute(mdp)
    signatures = [signature(mdp, labels, s) for s in range(mdp.num_states)]
    assert first_appearance(signatures) == labels.tolist()


@both_kinds
@given(mdp=mdps(), seed=st.integers(0, 1000))
@settings(deadline=None)
def test_relabelling_states_permutes_the_classes(
    compute: Callable[[MDP], Labels], signature: Signature, mdp: MDP, seed: int
) -> None:
    old = np.random.default_rng(seed).permutation(mdp.num_states)  # new state i is old[i]
    new = np.argsort(old)
    shuffled = MDP.deterministic(new[mdp.next_state[old]], mdp.R[old], discount=0.9)
    assert compute(shuffled).tolist() == first_appearance(compute(mdp)[old])


@given(mdp=mdps(), seed=st.integers(0, 1000))
@settings(deadline=None)
def test_reordering_the_actions_of_single_states_keeps_lax_classes(mdp: MDP, seed: int) -> None:
    order = np.random.default_rng(seed).random(mdp.R.shape).argsort(axis=1)
    next_state = np.take_along_axis(mdp.next_state, order, axis=1)
    shuffled = MDP.deterministic(next_state, np.take_along_axis(mdp.R, order, axis=1), discount=0.9)
    assert relation.lax(shuffled).tolist() == relation.lax(mdp).tolist()


@given(mdp=mdps())
@settings(deadline=None)
def test_every_bisimulation_class_lies_in_one_lax_class(mdp: MDP) -> None:
    strict, lax = relation.bisimulation(mdp), relation.lax(mdp)
    assert len(set(zip(strict, lax, strict=True))) == len(set(strict))


@pytest.mark.filterwarnings("ignore:relation:bisimetric.errors.NearTieWarning")
@pytest.mark.parametrize(
    ("next_state", "rewards", "strict", "lax"),
    [
        ([[0]], [[3]], [0], [0]),
        ([[0, 0]], [[0, 1]], [0], [0]),
        ([[1], [0], [1]], [[0.0], [-0.0], [0.0]], [0, 0, 0], [0, 0, 0]),
        ([[0], [1], [2]], [[0], [1], [0]], [0, 1, 0], [0, 1, 0]),
        ([[1, 1], [1, 1], [1, 1]], [[2, 3], [2, 3], [2, 3]], [0, 0, 0], [0, 0, 0]),
        ([[1], [2], [0]], [[0], [1], [2]], [0, 1, 2], [0, 1, 2]),
        ([[0], [1]], [[1.0], [1.0 + 2.0**-52]], [0, 1], [0, 1]),
        # The same sets, though one state has a pair twice: multiplicity does not matter.
        (
            [[0, 0, 1], [1, 0, 0]],
            [[5, 5, 6], [6, 5, 6]],
            [0, 1],
            [0, 0],
        ),
        # Reward and dynamics each have a match, but under different actions.
        (
            [[2, 3], [3, 2], [2, 2], [3, 3]],
            [[0, 1], [0, 1], [2, 2], [3, 3]],
            [0, 1, 2, 3],
            [0, 1, 2, 3],
        ),
        # Each action of state 1 has its match in state 0, but not the other way round.
        (
            [[2, 3], [2, 2], [2, 2], [3, 3]],
            [[0, 0], [0, 0], [2, 2], [3, 3]],
            [0, 1, 2, 3],
            [0, 1, 2, 3],
        ),
    ],
)
def test_planted_edge_cases(
    next_state: list[list[int]], rewards: list[list[float]], strict: list[int], lax: list[int]
) -> None:
    mdp = MDP.deterministic(next_state, rewards, discount=0.9)
    assert relation.bisimulation(mdp).tolist() == strict
    assert relation.lax(mdp).tolist() == lax


def test_figure_2_is_lax_bisimilar_only() -> None:
    # s -a[K]-> t, s -b-> u, t -b[K]-> s, t -a-> u, u loops.
    mdp = MDP.deterministic(
        [[1, 2], [2, 0], [2, 2]], [[1, 0], [0, 1], [0, 0]], discount=0.9, names="stu"
    )
    assert relation.lax(mdp).tolist() == [0, 0, 1]
    assert relation.bisimulation(mdp).tolist() == [0, 1, 2]


@given(mdp=mdps(), seed=st.integers(0, 1000))
@settings(deadline=None)
def test_on_policy_is_bisimulation_of_the_chosen_actions(mdp: MDP, seed: int) -> None:
    everyone = np.arange(mdp.num_states)
    policy = np.random.default_rng(seed).integers(mdp.num_actions, size=mdp.num_states)
    chain = MDP.deterministic(
        mdp.next_state[everyone, policy][:, None], mdp.R[everyone, policy][:, None], discount=0.9
    )
    expected = by_rounds(chain, strict_signature)
    assert relation.on_policy(mdp, policy).tolist() == expected
    assert relation.on_policy(mdp, np.eye(mdp.num_actions)[policy]).tolist() == expected


def test_on_policy_takes_a_mixed_policy_with_one_successor() -> None:
    mdp = MDP.deterministic([[2, 2], [2, 1], [2, 2]], [[0, 2], [1, 7], [0, 0]], discount=0.9)
    labels = relation.on_policy(mdp, [[0.5, 0.5], [1.0, 0.0], [0.3, 0.7]])
    assert labels.tolist() == [0, 0, 1]


@both_kinds
def test_a_deterministic_mdp_from_matrices(
    compute: Callable[[MDP], Labels], signature: Signature
) -> None:
    mdp = random_mdp(0, 30, 2, 2)
    dense = MDP(mdp.P.toarray().reshape(30, 2, 30), mdp.R, discount=0.9)
    assert compute(dense).tolist() == by_rounds(mdp, signature)


def chain(states: int, at_the_end: float) -> MDP:
    """Only the last state pays, so each round of plain refinement would split off one state."""
    place = np.arange(states)[:, None]
    rewards = np.where(place == states - 1, at_the_end, 0)
    return MDP.deterministic(np.minimum(place + 1, states - 1), rewards, discount=0.9)


@both_kinds
@pytest.mark.parametrize(
    "mdp",
    [chain(1000, 1.0), chain(1000, -1.0), random_mdp(0, 1000, 1, 2), random_mdp(0, 300, 4, 2)],
    ids=["chain", "negative chain", "1 action", "4 actions"],
)
def test_work_grows_like_edges_times_their_logarithm(
    compute: Callable[[MDP], Labels],
    signature: Signature,
    mdp: MDP,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An edge marks its source at most twice in log2(m) + 1 cords, and is marked log2(S) times."""
    marks = 0

    def count_marks(parts: Any, elements: Any) -> None:
        nonlocal marks
        marks += len(elements)
        mark(parts, elements)

    mark = refinement.mark
    monkeypatch.setattr(refinement, "mark", count_marks)
    monkeypatch.setattr(refinement, "split_by_cord", refinement.split_by_cord.py_func)
    monkeypatch.setattr(api, "refine", refinement.refine.py_func)
    compute(mdp)
    m, S = mdp.R.size, mdp.num_states
    assert m / 2 < marks <= m * (2 * (np.log2(m) + 1) + np.log2(S))


@both_kinds
@pytest.mark.parametrize("at_the_end", [1.0, -1.0])
def test_every_state_of_a_long_chain_is_a_class(
    compute: Callable[[MDP], Labels], signature: Signature, at_the_end: float
) -> None:
    labels = compute(chain(200_000, at_the_end))
    assert np.array_equal(labels, np.arange(200_000))


def blown_up(small: MDP, states: int, order: Any, seed: int) -> tuple[MDP, Labels]:
    """An MDP whose state s acts like state `planted[s]` of `small`, and `planted`.

    Its action i is action `order[s, i]` of `small`; successors are drawn from their class.
    """
    rng = np.random.default_rng(seed)
    classes = np.arange(small.num_states)
    planted = rng.permutation(np.resize(classes, states))
    members = np.argsort(planted, kind="stable")
    start, count = np.searchsorted(planted[members], classes), np.bincount(planted)
    targets = np.take_along_axis(small.next_state[planted], order, axis=1)
    rewards = np.take_along_axis(small.R[planted], order, axis=1)
    next_state = members[start[targets] + rng.integers(count[targets])]
    return MDP.deterministic(next_state, rewards, discount=0.9), planted


def onto(shape: tuple[int, int], actions: int, seed: int) -> NDArray[np.int64]:
    """In each row every one of `actions` at least once, the rest repeated, in any order."""
    rng = np.random.default_rng(seed)
    every = np.broadcast_to(np.arange(actions), (shape[0], actions))
    repeated = rng.integers(actions, size=(shape[0], shape[1] - actions))
    return rng.permuted(np.hstack([every, repeated]), axis=1)


def test_a_planted_quotient_is_recovered() -> None:
    small = random_mdp(1, 300, 4, 2)
    mdp, planted = blown_up(small, 100_000, np.tile(np.arange(4), (100_000, 1)), seed=0)
    expected = np.array(by_rounds(small, strict_signature))[planted]
    assert relation.bisimulation(mdp).tolist() == first_appearance(expected)


@pytest.mark.parametrize(("classes", "states"), [(300, 100_000), *((6, n) for n in range(12, 60))])
def test_a_planted_lax_quotient_is_recovered(classes: int, states: int) -> None:
    """States of a class have the same set of actions, each as often as it happens."""
    small = random_mdp(states, classes, 3, 2)
    mdp, planted = blown_up(small, states, onto((states, 6), 3, states), seed=states)
    expected = np.array(by_rounds(small, lax_signature))[planted]
    assert relation.lax(mdp).tolist() == first_appearance(expected)


def test_a_policy_of_a_wrong_shape_raises() -> None:
    mdp = MDP.deterministic([[0, 1], [1, 1]], np.zeros((2, 2)), discount=0.9)
    with pytest.raises(InputError, match="policy has shape"):
        relation.on_policy(mdp, [0, 1, 0])


@pytest.mark.parametrize("tol", [-1e-20, np.nan, np.inf, 1.0])
def test_an_invalid_tol_raises(tol: float) -> None:
    mdp = MDP.deterministic([[0], [1]], np.zeros((2, 1)), discount=0.9)
    with pytest.raises(InputError, match=f"tol is {tol} and must be at least 0 and below 1"):
        relation.bisimulation(mdp, tol=tol)
    with pytest.raises(InputError, match="tol is"):
        relation.lax(mdp, tol=tol)
    with pytest.raises(InputError, match="tol is"):
        relation.on_policy(mdp, [0, 0], tol=tol)
