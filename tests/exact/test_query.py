"""Queries: a few pairs, from no more pairs than they reach, against tables and the equation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize

from bisimetric import MDP, ImplicitMDP, InputError, NotConverged, exact
from bisimetric.exact import QueryResult, query
from bisimetric.exact.queries import pair_graph
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps, stochastic_mdps

quick = settings(deadline=None, max_examples=scaled(100))
slow = settings(deadline=None, max_examples=scaled(40))
Kind = Literal["bisimulation", "on_policy", "lax"]
KINDS: tuple[Kind, ...] = ("bisimulation", "on_policy", "lax")


def all_pairs(mdp: MDP) -> list[tuple[int, int]]:
    return [(s, t) for s in range(mdp.num_states) for t in range(s + 1)]


def random_policy(mdp: MDP, seed: int) -> NDArray[np.float64]:
    """Probabilities, some of them 0, over the actions that each state has."""
    random = np.random.default_rng(seed)
    weights = random.integers(0, 3, mdp.R.shape) + 0.0
    if mdp.available is not None:
        weights = np.where(mdp.available, weights + 1, 0.0)
    weights[weights.sum(axis=1) == 0] = 1.0
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def policy_for(kind: Kind, mdp: MDP, seed: int = 0) -> NDArray[np.float64] | None:
    return random_policy(mdp, seed) if kind == "on_policy" else None


def table_of(answer: QueryResult, mdp: MDP) -> NDArray[np.float64]:
    return np.array([[answer(s, t) for t in range(mdp.num_states)] for s in range(mdp.num_states)])


def transport(d: NDArray[np.float64], p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """W1(d)(p, q) as the linear programme that it is."""
    p, q = p / p.sum(), q / q.sum()
    x, y = np.flatnonzero(p), np.flatnonzero(q)
    rows = np.kron(np.eye(len(x)), np.ones(len(y)))
    columns = np.kron(np.ones(len(x)), np.eye(len(y)))
    found = optimize.linprog(
        d[np.ix_(x, y)].ravel(),
        A_eq=np.vstack([rows, columns])[:-1],
        b_eq=np.concatenate([p[x], q[y]])[:-1],
        method="highs",
    )
    assert found.status == 0
    cost: Any = found.fun
    return float(cost)


def image(mdp: MDP, d: NDArray[np.float64], *, lax: bool) -> NDArray[np.float64]:
    """F(d), as it is written."""
    states, actions = mdp.R.shape
    P = mdp.P.toarray().reshape(states, actions, states)
    has = np.ones((states, actions), bool) if mdp.available is None else mdp.available
    farthest = np.ptp(mdp.R[has]) / (1 - mdp.discount)
    fresh = np.zeros_like(d)
    for s, t in all_pairs(mdp):
        if s == t:
            continue
        worth = np.full((actions, actions), np.nan)
        for a in range(actions):
            for b in range(actions) if lax else [a]:
                if has[s, a] and has[t, b]:
                    gap = abs(mdp.R[s, a] - mdp.R[t, b])
                    worth[a, b] = gap + mdp.discount * transport(d, P[s, a], P[t, b])
        if lax:
            worth = worth[np.ix_(has[s], has[t])]
            fresh[s, t] = max(worth.min(axis=1).max(), worth.min(axis=0).max())
        else:
            fresh[s, t] = np.nanmax(worth) if (has[s] == has[t]).all() else farthest
    return np.asarray(fresh + fresh.T)


def as_successors(mdp: MDP, *, known_range: bool = True) -> ImplicitMDP:
    """The MDP behind a function; its states are named, and its rows come in three forms."""
    has = np.ones_like(mdp.R, bool) if mdp.available is None else mdp.available

    def step(state: str, action: int) -> tuple[float, Any]:
        s = int(state[1:])
        row = s * mdp.num_actions + action
        entries = range(mdp.P.indptr[row], mdp.P.indptr[row + 1])
        reached = [(float(mdp.P.data[i]), f"s{mdp.P.indices[i]}") for i in entries]
        reward = float(mdp.R[s, action])
        if len(reached) == 1:
            return reward, reached[0][1]
        return reward, reached if action % 2 else {t: p for p, t in reached}

    def actions(state: str) -> list[int]:
        return np.flatnonzero(has[int(state[1:])]).tolist()

    low, high = float(mdp.R[has].min()), float(mdp.R[has].max())
    return ImplicitMDP(
        step,
        actions=actions if mdp.available is not None else range(mdp.num_actions),
        discount=mdp.discount,
        reward_range=(low, high) if known_range else None,
    )


# Against the tables and the equation.


@quick
@given(deterministic_mdps(), st.sampled_from(["bisimulation", "lax"]), st.data())
def test_pairs_of_a_deterministic_mdp_are_those_of_its_table(
    mdp: MDP, kind: Literal["bisimulation", "lax"], data: st.DataObject
) -> None:
    pairs = data.draw(st.lists(st.sampled_from(all_pairs(mdp)), min_size=1, max_size=3))
    d = exact.bisimulation(mdp) if kind == "bisimulation" else exact.lax(mdp)
    answer = query(mdp, pairs, kind=kind)
    assert answer.error <= 1e-6
    for (s, t), value in zip(pairs, answer.values, strict=True):
        assert abs(value - d(s, t)) <= answer.error + d.error


@quick
@given(deterministic_mdps(), st.integers(0, 99))
def test_pairs_on_policy_agree_with_the_matrix(mdp: MDP, seed: int) -> None:
    policy = np.random.default_rng(seed).integers(mdp.num_actions, size=mdp.num_states)
    d = exact.on_policy(mdp, policy)
    answer = query(mdp, all_pairs(mdp), kind="on_policy", policy=policy)
    np.testing.assert_allclose(table_of(answer, mdp), d.values, rtol=0, atol=2e-6)
    assert answer.error + d.error <= 2e-6


@slow
@given(
    stochastic_mdps(max_states=4, discounts=[0.0, 0.3, 0.9], available=True), st.sampled_from(KINDS)
)
def test_all_pairs_satisfy_the_equation(mdp: MDP, kind: Kind) -> None:
    policy = policy_for(kind, mdp)
    answer = query(mdp, all_pairs(mdp), kind=kind, policy=policy)
    d = table_of(answer, mdp)
    of = mdp if policy is None else mdp.apply_policy(policy)
    residual = np.abs(image(of, d, lax=kind == "lax") - d).max()
    slack = 1e-6 * (1 + d.max())  # of the linear programmes
    assert residual <= answer.error * (1 + mdp.discount) + slack
    assert answer.error <= 1e-6


@quick
@given(stochastic_mdps(available=True), st.sampled_from(KINDS), st.data())
def test_one_pair_agrees_with_all_pairs(mdp: MDP, kind: Kind, data: st.DataObject) -> None:
    policy = policy_for(kind, mdp)
    every = query(mdp, all_pairs(mdp), kind=kind, policy=policy, tol=1e-5)
    pair = data.draw(st.sampled_from(all_pairs(mdp)))
    one = query(mdp, [pair], kind=kind, policy=policy, tol=1e-5)
    assert abs(one(*pair) - every(*pair)) <= one.error + every.error
    assert one.num_explored <= every.num_explored


@quick
@given(
    stochastic_mdps(available=True),
    st.sampled_from(KINDS),
    st.sampled_from([1e-3, 0.1, 1.0, 30.0]),
)
def test_a_coarse_answer_lies_within_its_error(mdp: MDP, kind: Kind, tol: float) -> None:
    policy = policy_for(kind, mdp)
    fine = query(mdp, all_pairs(mdp), kind=kind, policy=policy, tol=1e-5)
    for pair in all_pairs(mdp):
        coarse = query(mdp, [pair], kind=kind, policy=policy, tol=tol)
        assert coarse.error <= tol
        assert abs(coarse(*pair) - fine(*pair)) <= coarse.error + fine.error


@quick
@given(stochastic_mdps(available=True), st.sampled_from(KINDS), st.booleans())
def test_an_implicit_mdp_gives_the_distances_of_its_explicit_one(
    mdp: MDP, kind: Kind, known_range: bool
) -> None:
    policy = policy_for(kind, mdp)
    of_mdp = query(mdp, all_pairs(mdp), kind=kind, policy=policy, tol=1e-5)
    source = as_successors(mdp, known_range=known_range or mdp.available is not None)

    def choose(state: str) -> dict[int, float]:
        assert policy is not None
        return dict(enumerate(policy[int(state[1:])].tolist()))

    pairs = [(f"s{s}", f"s{t}") for s, t in all_pairs(mdp)]
    of_function = query(
        source, pairs, kind=kind, policy=choose if kind == "on_policy" else None, tol=1e-5
    )
    difference = np.abs(of_mdp.values - of_function.values).max()
    assert difference <= of_mdp.error + of_function.error


@pytest.mark.parametrize("kind", ["bisimulation", "lax"])
def test_diverging_evaluations_do_no_harm(
    kind: Literal["bisimulation", "lax"], monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(2)
    n, R = random.integers(20, size=(20, 2)), random.random((20, 2))
    mdp = MDP.deterministic(n, R, discount=0.6)
    right = query(mdp, all_pairs(mdp), kind=kind)

    def diverge(chosen: Any, gap: Any, discount: float, d: NDArray[Any], *_: Any) -> None:
        d[: len(chosen)] = random.random(len(chosen)) * 9

    monkeypatch.setattr(pair_graph, "_evaluate_policy", diverge)
    answer = query(mdp, all_pairs(mdp), kind=kind)
    assert answer.metadata["evaluations"] > 1
    difference = np.abs(answer.values - right.values).max()
    assert difference <= answer.error + right.error


# States with different actions.


def test_different_action_sets_give_the_diameter_bound() -> None:
    def step(x: int, a: str) -> tuple[float, int]:
        return (1.0 if a == "win" else 0.0), x + 2

    def actions(x: int) -> list[str]:
        return ["stay", "win"] if x % 2 else ["stay"]

    source = ImplicitMDP(step, actions=actions, discount=0.5, reward_range=(0, 3))
    answer = query(source, [(0, 1), (1, 3)])
    assert answer(0, 1) == pytest.approx(6, abs=answer.error)
    assert answer(1, 3) == pytest.approx(0, abs=answer.error)
    laxer = query(source, [(0, 1)], kind="lax")
    assert laxer(0, 1) == pytest.approx(2, abs=laxer.error)
    unknown = ImplicitMDP(step, actions=actions, discount=0.5)
    with pytest.raises(InputError, match=r"states 1 and 0 have different actions.*reward_range"):
        query(unknown, [(0, 1)])


# The answer.


def make_named_mdp() -> MDP:
    return MDP.deterministic(
        [[1], [1], [2]], [[0], [1], [3]], discount=0.5, names=["a", "b", "c"], policy=[0, 0, 0]
    )


def test_a_result_takes_names_and_ids_in_either_order() -> None:
    answer = query(make_named_mdp(), [("a", "b"), (2, "b"), ("c", "c")])
    assert answer.pairs == (("a", "b"), (2, "b"), ("c", "c"))
    assert answer("b", "a") == answer(0, "b") == answer(0, 1) == answer.values[0]
    assert answer("c", 1) == answer.values[1] == pytest.approx(4, abs=answer.error)
    assert answer(2, 2) == 0
    assert not answer.values.flags.writeable
    assert {"method", "tol", "explored", "seconds", "bisimetric", "numpy"} <= set(answer.metadata)
    assert repr(answer).startswith("QueryResult(bisimulation, 3 pairs, largest 4, error <= ")
    with pytest.raises(InputError, match=r"\('a', 'c'\) is not in the result"):
        answer("a", "c")
    with pytest.raises(InputError, match="no state 'd'"):
        answer("a", "d")


def test_the_policy_of_the_mdp_is_the_default() -> None:
    assert query(make_named_mdp(), [("a", "b")], kind="on_policy")(0, 1) == pytest.approx(
        1, abs=1e-6
    )


def test_pairs_as_an_array() -> None:
    assert query(make_named_mdp(), np.array([[0, 1], [1, 2]]), kind="lax").pairs == ((0, 1), (1, 2))


def test_the_exception_holds_the_partial_result() -> None:
    with pytest.raises(NotConverged, match="pass a larger tol") as caught:
        query(make_named_mdp(), [(0, 1)], tol=1e-20)
    partial: Any = caught.value.partial
    assert partial(0, 1) == pytest.approx(1, abs=partial.error)


@pytest.mark.parametrize(
    ("pairs", "complaint"),
    [
        ([], "pairs is empty"),
        ("ab", r"pairs\[0\] is 'a' and must be two states"),
        ([(0, 1, 2)], r"pairs\[0\] is \(0, 1, 2\)"),
        ([(0, 9)], "no state 9"),
    ],
)
def test_invalid_pairs(pairs: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        query(make_named_mdp(), pairs)


two_actions = MDP.deterministic([[0, 1], [1, 0]], [[0, 0], [1, 1]], discount=0.5)


def endless() -> ImplicitMDP:
    return ImplicitMDP(lambda x, a: (x % 3, 2 * x + a), actions=(0, 1), discount=0.9)


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        (lambda: query(make_named_mdp(), [(0, 1)], kind="mico"), "kind is 'mico'"),  # type: ignore[arg-type]
        (lambda: query(3, [(0, 1)], kind="lax"), "mdp is of type int and must be an MDP"),  # type: ignore[arg-type]
        (lambda: query(make_named_mdp(), [(0, 1)], kind="lax", tol=0), "tol is 0"),
        (
            lambda: query(make_named_mdp(), [(0, 1)], kind="lax", policy=[0, 0, 0]),
            "policy is given, but kind is 'lax'",
        ),
        (lambda: query(make_named_mdp(), [(0, 1)], kind="lax", max_pairs=0), "max_pairs is 0"),
        (
            lambda: query(two_actions, [(0, 1)], kind="on_policy"),
            "no policy; pass one",
        ),
        (lambda: query(endless(), [(0, 1)], kind="on_policy"), "policy is missing"),
        (lambda: query(endless(), [([0], 1)], kind="lax"), r"state \[0\] must be hashable"),
    ],
)
def test_invalid_requests(request_: Callable[[], QueryResult], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        request_()


@pytest.mark.parametrize("discount", [0.99999, 0.999999, 0.9999999])
def test_lax_queries_converge_where_newton_steps_diverge(discount: float) -> None:
    # Value iteration alone would take some 1 / (1 - discount) sweeps.
    has = np.array([[1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 0, 1]], bool)
    mdp = MDP.deterministic(
        [[2, 2, 3], [3, 1, 3], [0, 2, 2], [0, 3, 1]],
        [[0.1, 1 / 3, 1 / 3], [0.2, 1 / 3, 0.1], [0.1, 0.1, 0.1], [1 / 3, 0.1, 0.3]],
        discount=discount,
        available=has,
    )
    d = exact.lax(mdp, tol=1.0)
    pairs = [(s, t) for s in range(4) for t in range(4)]
    found = query(mdp, pairs, kind="lax", tol=1.0)
    assert found.metadata["sweeps"] < 1000
    for s, t in pairs:
        assert abs(found(s, t) - d(s, t)) <= found.error + d.error < 0.1
