"""The theorems and lemmas of the paper as properties of random MDPs, and where they differ."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric import MDP, exact, planning, relation
from bisimetric.learned.losses import bisimulation_target
from tests.oracles import apply_bisimulation_operator
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps, stochastic_mdps

DISCOUNTS = [0.3, 0.9]


@st.composite
def mixed_policies(draw: st.DrawFn, mdp: MDP) -> NDArray[np.float64]:
    """Probabilities (S, A), multiples of 1/8, some of them 0; equal for some of the states."""
    rows = []
    for _ in range(mdp.num_states):
        weights = draw(st.lists(st.integers(0, 4), min_size=mdp.num_actions).filter(any))
        row = np.zeros(mdp.num_actions)
        for action, weight in enumerate(weights[: mdp.num_actions]):
            row[action] = weight
        rows.append(row / row.sum() if row.any() else np.eye(mdp.num_actions)[0])
    policy = np.array(rows)
    if draw(st.booleans()):
        policy[-1] = policy[0]
    return policy


@settings(max_examples=scaled(60), deadline=None)
@given(stochastic_mdps(discounts=DISCOUNTS), st.data())
def test_zero_set_of_d_pi_with_stochastic_transitions_and_mixed_policies(
    mdp: MDP, data: Any
) -> None:
    """Theorem 2: d^pi is 0 exactly between states of one class of the on-policy relation."""
    policy = data.draw(mixed_policies(mdp))
    d = exact.on_policy(mdp, policy, tol=1e-5)
    classes = relation.on_policy(mdp, policy)
    related = classes[:, None] == classes[None, :]
    assert (d.values[related] == 0).all()
    assert (d.values[~related] > 0).all()


@settings(max_examples=scaled(60), deadline=None)
@given(stochastic_mdps(discounts=DISCOUNTS), st.data())
def test_d_pi_bounds_values_of_mixed_policies(mdp: MDP, data: Any) -> None:
    """Theorem 3: |V^pi(s) - V^pi(t)| <= d^pi(s, t)."""
    policy = data.draw(mixed_policies(mdp))
    d, V = exact.on_policy(mdp, policy, tol=1e-6), planning.policy_values(mdp, policy, tol=1e-6)
    gaps = np.abs(V.values[:, None] - V.values[None, :])
    assert (gaps <= d.values + d.error + 2 * V.error).all()


@settings(max_examples=scaled(60), deadline=None)
@given(deterministic_mdps(discounts=[0.5, 0.9]), st.sampled_from([0.5, 0.1, 0.01]))
def test_iterations_for_an_accuracy_relative_to_the_largest_distance(
    mdp: MDP, delta: float
) -> None:
    """ceil(ln delta / ln gamma) sweeps reach delta times the largest distance."""
    sweeps = math.ceil(math.log(delta) / math.log(mdp.discount))
    d = np.zeros((mdp.num_states, mdp.num_states))
    for _ in range(sweeps):
        d = apply_bisimulation_operator(mdp, d)
    truth = exact.bisimulation(mdp, tol=1e-9)
    largest = truth.values.max()
    assert np.abs(d - truth.values).max() <= delta * largest + truth.error + 1e-9 * largest


def test_iterations_do_not_reach_an_absolute_accuracy() -> None:
    """The paper states the absolute accuracy delta; two absorbing states have more error."""
    discount, delta = 0.9, 0.01
    mdp = MDP.deterministic([[0], [1]], [[1.0], [0.0]], discount=discount)
    sweeps = math.ceil(math.log(delta) / math.log(discount))
    d = np.zeros((2, 2))
    for _ in range(sweeps):
        d = apply_bisimulation_operator(mdp, d)
    error = 1 / (1 - discount) - d[0, 1]
    assert error == pytest.approx(discount**sweeps / (1 - discount))
    assert error > 9 * delta


def sample_equation_3(mdp: MDP, steps: int, seed: int) -> list[tuple[int, int, int, Any, Any]]:
    """Return (s, t, a, d_{n-1}, d_n) of each step n of equation 3 with uniform samples."""
    rng = np.random.default_rng(seed)
    d = np.zeros((mdp.num_states, mdp.num_states))
    history = []
    for _ in range(steps):
        s, t = rng.integers(mdp.num_states, size=2).tolist()
        a = int(rng.integers(mdp.num_actions))
        after = d.copy()
        after[s, t] = max(d[s, t], compute_backup(mdp, d, s, t, a))
        history.append((s, t, a, d, after))
        d = after
    return history


def compute_backup(mdp: MDP, d: NDArray[np.float64], s: int, t: int, a: int) -> float:
    """Return |R(s, a) - R(t, a)| + gamma d(N(s, a), N(t, a))."""
    u, v = mdp.next_state[s, a], mdp.next_state[t, a]
    return float(abs(mdp.R[s, a] - mdp.R[t, a]) + mdp.discount * d[u, v])


@settings(max_examples=scaled(30), deadline=None)
@given(deterministic_mdps(max_states=4, discounts=[0.5, 0.9]), st.integers(0, 9))
def test_a_maximising_action_exists_at_some_step(mdp: MDP, seed: int) -> None:
    """The lemma on maximising actions: at the first sample of (s, t, a), d_n is its backup."""
    seen: set[tuple[int, int]] = set()
    for s, t, a, before, after in sample_equation_3(mdp, 200, seed):
        if (s, t) not in seen:
            assert after[s, t] == compute_backup(mdp, before, s, t, a)
            seen.add((s, t))


@settings(max_examples=scaled(30), deadline=None)
@given(deterministic_mdps(max_states=4, discounts=[0.5, 0.9]), st.integers(0, 9))
def test_sampled_distances_increase_and_stay_below(mdp: MDP, seed: int) -> None:
    """The monotonicity lemma: d_{n-1} <= d_n <= d~."""
    truth = exact.bisimulation(mdp, tol=1e-9)
    limit = truth.values + truth.error + 1e-12 * max(1.0, truth.values.max())
    for *_, before, after in sample_equation_3(mdp, 200, seed):
        assert (before <= after).all()
        assert (after <= limit).all()


def test_later_steps_may_have_no_maximising_action() -> None:
    """The proof of monotonicity uses one at *every* later step, which the lemma does not give.

    After the pair (0, 1) was sampled, its successors (2, 3) move apart; until (0, 1) is sampled
    again, its distance is the backup of no action. Monotonicity itself is true.
    """
    mdp = MDP.deterministic([[2], [3], [2], [3]], [[0.0], [0.0], [1.0], [0.0]], discount=0.5)
    d = np.zeros((4, 4))
    for s, t in ((0, 1), (2, 3)):
        d = d.copy()
        d[s, t] = max(d[s, t], compute_backup(mdp, d, s, t, 0))
    assert d[0, 1] == 0
    assert compute_backup(mdp, d, 0, 1, 0) == 0.5


def compute_paper_targets(mdp: MDP, psi: NDArray[np.float64], a: int) -> NDArray[np.float64]:
    """Return the target of the paper's loss for all pairs under action a, with beta = 1."""
    n, r = mdp.next_state[:, a], jnp.asarray(mdp.R[:, a])
    same, beta = jnp.eye(mdp.num_states, dtype=bool), jnp.ones(())
    gap, value = jnp.abs(r[:, None] - r[None, :]), jnp.asarray(psi)
    target = bisimulation_target(gap, value[np.ix_(n, n)], value, same, mdp.discount, beta)
    return np.asarray(target, np.float64)


@settings(max_examples=scaled(15), deadline=None)
@given(
    deterministic_mdps(max_states=3, max_actions=2, discounts=[0.5, 0.9]),
    st.sampled_from([0.0, 1.0, 64.0]),
)
def test_the_paper_target_has_many_fixed_points(mdp: MDP, shift: float) -> None:
    """d~ plus any constant between distinct states is a fixed point of the max target.

    The operator of d~ has one: the shift shrinks under it.
    """
    d = exact.bisimulation(mdp, tol=1e-9)
    psi = d.values + shift * ~np.eye(mdp.num_states, dtype=bool)
    scale = max(1.0, psi.max())
    for a in range(mdp.num_actions):
        found = compute_paper_targets(mdp, psi, a)
        np.testing.assert_allclose(found, psi, atol=1e-5 * scale)
    if shift:
        after = apply_bisimulation_operator(mdp, psi)
        excess = (after - d.values).max()
        assert excess <= mdp.discount * shift + 2 * d.error + 1e-9 * scale


def test_two_states_whose_distance_only_increases() -> None:
    """Two bisimilar absorbing states: d~ is 0, and every overestimate persists."""
    mdp = MDP.deterministic([[0], [1]], [[0.0], [0.0]], discount=0.9)
    assert exact.bisimulation(mdp).values.max() == 0
    psi = np.array([[0.0, 5.0], [5.0, 0.0]])
    np.testing.assert_array_equal(compute_paper_targets(mdp, psi, 0), psi)
    np.testing.assert_allclose(apply_bisimulation_operator(mdp, psi), 0.9 * psi)
