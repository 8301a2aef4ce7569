"""What a part of a buffer teaches: the completed model, its policy, and the promise as a law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric import MDP, Distance, InputError, Transitions, exact, planning, uses, worlds
from bisimetric.uses.replay_policy import ReplayPolicy, solve_replay
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps, stochastic_mdps
from tests.uses.test_compress import steps_of

quick = settings(deadline=None, max_examples=scaled(60))


def every_step(mdp: MDP) -> Transitions:
    """One step of every state and action of a deterministic MDP."""
    states, actions = np.indices(mdp.R.shape).reshape(2, -1)
    there = mdp.next_state[states, actions]
    size: Any = {"num_states": mdp.num_states, "num_actions": mdp.num_actions}
    return Transitions(states, actions, mdp.R.ravel(), there, [False] * len(states), **size)


def slow_model(steps: Transitions, d: Distance, found: ReplayPolicy) -> None:
    """Every row of the model is that of the nearest state with a step of its action."""
    assert steps.states is not None
    for s in range(d.mdp.num_states):
        for a in range(d.mdp.num_actions):
            having = steps.states[steps.actions == a]
            if not len(having) or not found.model.action_mask[s, a]:
                continue
            least = d.values[s, having].min()
            assert found.nearest_distances[s, a] == least
            rows = []
            for t in np.unique(having[d.values[s, having] == least]):
                of = (steps.states == t) & (steps.actions == a)
                shares = np.bincount(steps.successors[of], minlength=d.mdp.num_states) / of.sum()
                rows.append((steps.rewards[of].mean(), shares))
            row = found.model.P[[s * d.mdp.num_actions + a]].toarray()[0]
            fits = [
                np.isclose(reward, found.model.R[s, a]) and np.allclose(shares, row)
                for reward, shares in rows
            ]
            assert any(fits)


@quick
@given(
    st.one_of(deterministic_mdps(), stochastic_mdps(available=True)),
    st.integers(1, 30),
    st.integers(0, 99),
)
def test_no_regret_exceeds_its_bound(mdp: MDP, number: int, seed: int) -> None:
    steps, d = steps_of(mdp, number, seed), exact.bisimulation(mdp)
    found = solve_replay(steps, d)
    slow_model(steps, d, found)
    V = planning.optimal_values(mdp, tol=1e-3)
    followed = planning.policy_values(mdp, found.policy, tol=1e-3)
    assert np.allclose(found.regret, V.values - followed.values, atol=V.error + followed.error)
    assert (found.regret <= found.regret_bound + V.error + followed.error).all()


@quick
@given(deterministic_mdps(), st.integers(1, 12), st.integers(0, 99))
def test_the_bound_is_finite_where_every_action_is_represented(
    mdp: MDP, number: int, seed: int
) -> None:
    d, steps = exact.bisimulation(mdp), every_step(mdp)
    coreset = uses.compress(steps, d, max(mdp.num_actions, min(number, len(steps))))
    found = solve_replay(coreset.transitions, d)
    assert np.isfinite(found.regret_bound).all()
    error = planning.optimal_values(mdp, tol=1e-3).error
    assert (found.regret <= found.regret_bound + 3 * error).all()
    # Twice the promise of values, over all steps to come, is a bound as well, and never better.
    most = 2 * (coreset.value_bound + error) / (1 - mdp.discount) ** 2
    assert (found.regret_bound <= most * (1 + 1e-6) + 1e-6).all()


def slow_promise(d: Distance, found: ReplayPolicy) -> NDArray[np.float64]:
    """The promise by loops, for steps that show a deterministic MDP as it is."""
    mdp, model = d.mdp, found.model
    states, actions = mdp.R.shape
    Q, E = np.zeros(mdp.R.shape), np.zeros(mdp.R.shape)
    for _ in range(3_000):
        V, W = Q.max(axis=1), E.max(axis=1)
        for s in range(states):
            for a in range(actions):
                there = model.next_state[s, a]
                Q[s, a] = model.R[s, a] + mdp.discount * V[there]
                E[s, a] = found.nearest_distances[s, a] + d.error + mdp.discount * W[there]
    regrets = np.zeros(states)
    for s, chosen in enumerate(found.policy):
        for a in set(range(actions)) - {chosen}:
            gap = Q[s, a] + E[s, a] - Q[s, chosen] + E[s, chosen]
            regrets[s] = max(regrets[s], gap)
    total = np.zeros(states)
    for _ in range(3_000):
        total = regrets + mdp.discount * total[mdp.next_state[np.arange(states), found.policy]]
    return total


@settings(deadline=None, max_examples=scaled(20))
@given(deterministic_mdps(max_states=4, discounts=[0.0, 0.5, 0.9]), st.integers(0, 99))
def test_the_bound_matches_its_definition(mdp: MDP, seed: int) -> None:
    d, steps = exact.bisimulation(mdp), every_step(mdp)
    number = np.random.default_rng(seed).integers(mdp.num_actions, len(steps) + 1)
    found = solve_replay(uses.compress(steps, d, int(number)).transitions, d)
    assert np.allclose(found.regret_bound, slow_promise(d, found), rtol=1e-6, atol=1e-6)


def test_the_bound_includes_the_error_of_the_empirical_model() -> None:
    # Action 1 of state 0 wins at 1 half the time, and was only seen to lose.
    P = np.zeros((3, 2, 3))
    P[0, 0, 2], P[0, 1, 1], P[0, 1, 2], P[1, :, 1], P[2, :, 2] = 1, 0.5, 0.5, 1, 1
    R = [[0.5, 0.0], [1.0, 1.0], [0.0, 0.0]]
    mdp = MDP(P, R, discount=0.9)
    steps = Transitions(
        [0, 0, 1, 1, 2, 2], [0, 1] * 3, np.ravel(R), [2, 2, 1, 1, 2, 2], [False] * 6
    )
    found = solve_replay(steps, exact.bisimulation(mdp))
    assert not found.nearest_distances.any()
    assert found.regret[0] == pytest.approx(4.5 - 0.5)
    assert found.regret_bound[0] >= 4.0
    # Half of P is elsewhere, which is worth half of the range of V*, here 10.
    assert found.regret_bound[0] == pytest.approx(0.0 + 0.9 * 10 / 2 - 0.5, abs=1e-6)


def test_all_transitions_give_the_optimal_policy() -> None:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    d = exact.bisimulation(mdp)
    found = solve_replay(every_step(mdp), d)
    assert not found.nearest_distances.any()
    assert found.regret.max() < 1e-9
    assert found.regret_bound.max() < 1e-6
    assert (found.model.P.toarray() == mdp.P.toarray()).all()
    assert (found.model.R == mdp.R).all()


def test_one_copy_of_duplicated_states_suffices() -> None:
    rooms = worlds.load("mirrored-rooms", discount=0.9)
    states = rooms.num_states
    there = np.vstack([rooms.next_state + states, rooms.next_state])
    twice = MDP.deterministic(there, np.vstack([rooms.R] * 2), discount=0.9)
    d = exact.bisimulation(twice)
    coreset = uses.compress(every_step(twice), d, rooms.R.size)
    assert coreset.radius == 0
    assert solve_replay(coreset.transitions, d).regret.max() < 1e-9


def test_the_terminal_state_stays_absorbing() -> None:
    steps = Transitions([0, 1, 1], [0, 0, 1], [0, 1, 5], [1, 0, 1], [False, True, False])
    d = exact.bisimulation(steps.to_mdp(discount=0.5, unseen="missing"))
    found = solve_replay(steps, d)
    assert found.model.P[[4, 5]].toarray().tolist() == [[0, 0, 1]] * 2
    assert not found.model.R[2].any()
    # State 0 was never left by action 1, and lacks it here as well.
    assert found.model.action_mask.tolist() == [[True, False], [True, True], [True, True]]
    # Without a step of action 1, state 1 has the other one; the end needs none.
    part = solve_replay(steps[:2], d)
    assert part.model.action_mask.tolist() == [[True, False], [True, False], [True, True]]
    assert part.policy.tolist()[:2] == [0, 0]
    assert np.isinf(part.regret_bound).all()
    assert part.regret[1] > 0


def test_bad_transitions_raise() -> None:
    mdp = worlds.load("pessimism")
    d = exact.bisimulation(mdp)
    ended = Transitions([0, 1], [0, 1], [0, 0], [1, 2], [False, True], num_states=3)
    with pytest.raises(InputError, match="have a terminal state and d does not"):
        solve_replay(ended, d)
    with pytest.raises(InputError, match="d is ndarray and must be a Distance"):
        solve_replay(ended, d.values)  # type: ignore[arg-type]
    assert np.isinf(solve_replay(every_step(mdp), exact.lax(mdp)).regret_bound).all()
