"""With one-hot embeddings and full batches, each loss reaches its exact matrix."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bisimetric import MDP, exact, losses, relation
from tests.losses.tabular import (
    TABLE_TOLERANCE,
    Chain,
    FullBatch,
    build_chain,
    build_deterministic,
    iterate,
    lookup,
)

DISCOUNT = 0.8
STOCHASTIC: Chain = ([[1, 2], [0], [2, 3, 3], [0, 1]], [1.0, -0.5, 0.25, 2.0])
DETERMINISTIC: Chain = ([[1], [2], [0], [3]], [1.0, -0.5, 0.25, 2.0])
EPISODIC: Chain = ([[1, 2], [3], [0, 3], [3]], [1.0, -0.5, 0.25, 0.0])
EPISODIC_PATH: Chain = ([[1], [2], [3], [3]], [1.0, -0.5, 0.25, 0.0])
"""State 3 is absorbing with reward 0."""


def solve(name: str, batch: FullBatch, discount: float = DISCOUNT, **options: Any) -> Any:
    """Return the fixed point of a loss with a free table."""

    def loss(table: Any, target: Any) -> Any:
        distances = {"distance": lookup(table), "next_distance": lookup(target)}
        if name == "reduced_mico":
            distances = {"kernel": lookup(table), "next_kernel": lookup(target)}
        return getattr(losses, name)(
            batch.one_hot(batch.state),
            batch.one_hot(batch.next_state),
            jnp.asarray(batch.reward),
            jnp.asarray(batch.terminated),
            discount=discount,
            terminal_embedding=batch.terminal_embedding,
            **distances,
            **options,
        )

    return iterate(loss, batch.size, discount)


@pytest.mark.parametrize("name", ["mico", "simsr"])
@pytest.mark.parametrize(("chain", "terminal"), [(STOCHASTIC, None), (EPISODIC, 3)])
def test_pair_td_reaches_mico(name: str, chain: Chain, terminal: int | None) -> None:
    mdp, batch = build_chain(chain, DISCOUNT, terminal)
    U = exact.mico(mdp, tol=1e-9)
    table = solve(name, batch, error="squared")
    np.testing.assert_allclose(table, U.values, atol=TABLE_TOLERANCE)


@pytest.mark.parametrize(("chain", "terminal"), [(STOCHASTIC, None), (EPISODIC, 3)])
def test_the_kernel_reaches_reduced_mico(chain: Chain, terminal: int | None) -> None:
    mdp, batch = build_chain(chain, DISCOUNT, terminal)
    reward_range = 2.5
    K = solve("reduced_mico", batch, error="squared", reward_range=reward_range)
    if terminal is not None:
        # The self-similarity of the terminal state is known, and not trained.
        K = K.copy()
        K[terminal, terminal] = 1 / (1 - DISCOUNT)
    U = exact.mico(mdp, tol=1e-9).values
    np.testing.assert_allclose(K, 1 / (1 - DISCOUNT) - U / reward_range, atol=TABLE_TOLERANCE)
    own = np.diagonal(K)
    reduced = reward_range / 2 * (own[:, None] + own[None, :] - 2 * K)
    expected = exact.reduced_mico(mdp, tol=1e-9).values
    np.testing.assert_allclose(reduced, expected, atol=10 * TABLE_TOLERANCE)


@pytest.mark.parametrize("name", ["dbc", "normalised_dbc", "on_policy", "mico"])
@pytest.mark.parametrize(("chain", "terminal"), [(DETERMINISTIC, None), (EPISODIC_PATH, 3)])
def test_deterministic_chains_reach_d_pi(name: str, chain: Chain, terminal: int | None) -> None:
    mdp, batch = build_chain(chain, DISCOUNT, terminal)
    options: dict[str, Any] = {"error": "squared"} if name == "mico" else {}
    if name == "normalised_dbc":
        # A norm bound above 1 leaves one-hot embeddings as they are.
        options["reward_range"] = 2.5
    table = solve(name, batch, **options)
    np.testing.assert_allclose(table, exact.on_policy(mdp).values, atol=TABLE_TOLERANCE)


def test_dbc_of_a_stochastic_chain_is_not_d_pi() -> None:
    """Sampled successors in place of a latent model give MICo, above d^pi."""
    mdp, batch = build_chain(STOCHASTIC, DISCOUNT)
    table = solve("dbc", batch)
    np.testing.assert_allclose(table, exact.mico(mdp, tol=1e-9).values, atol=TABLE_TOLERANCE)
    assert (table - exact.on_policy(mdp).values).max() > 0.1


@pytest.mark.parametrize(("chain", "terminal"), [(DETERMINISTIC, None), (EPISODIC_PATH, 3)])
@pytest.mark.parametrize("truncated", [False, True])
def test_n_step_targets_reach_d_pi(chain: Chain, terminal: int | None, truncated: bool) -> None:
    mdp, batch = build_chain(chain, DISCOUNT, terminal)
    n, successor, reward = 3, [e[0] for e in chain[0]], np.array(chain[1])
    path = [np.array(batch.state)]
    for _ in range(n):
        path.append(np.array([successor[s] for s in path[-1]]))
    states, nexts = path[0], np.stack(path[1:], axis=1)
    rewards = reward[np.stack(path[:-1], axis=1)]
    ended = nexts == (-1 if terminal is None else terminal)
    # What follows a termination is ignored.
    late = np.pad(ended[:, :-1], ((0, 0), (1, 0)))
    rewards[late] = 99.0
    steps = jnp.asarray(1 + np.arange(len(states)) % n) if truncated else None
    if truncated:
        # So is what follows the recorded steps, where no termination is among them.
        open_ended = ~(ended & (np.arange(n) < np.asarray(steps)[:, None])).any(axis=1)
        rewards[open_ended[:, None] & (np.arange(n) >= np.asarray(steps)[:, None])] = -77.0
        ended = ended & (np.arange(n) < np.asarray(steps)[:, None])

    def loss(table: Any, target: Any) -> Any:
        return losses.on_policy(
            batch.one_hot(states),
            batch.one_hot(nexts),
            jnp.asarray(rewards),
            jnp.asarray(ended),
            discount=DISCOUNT,
            steps=steps,
            distance=lookup(table),
            next_distance=lookup(target),
            terminal_embedding=batch.terminal_embedding,
        )

    table = iterate(loss, batch.size, DISCOUNT)
    np.testing.assert_allclose(table, exact.on_policy(mdp).values, atol=TABLE_TOLERANCE)


@pytest.mark.parametrize("terminal", [None, 3])
@pytest.mark.parametrize("num_networks", [1, 2])
def test_pair_q_reaches_d_tilde(terminal: int | None, num_networks: int) -> None:
    successors = [[1, 2], [0, 3], [2, 0], [3, 3]]
    rewards = [[1.0, 0.0], [-0.5, 0.5], [0.25, 2.0], [0.0, 0.0]]
    mdp, batch = build_deterministic(successors, rewards, DISCOUNT, terminal)
    size, num_actions = batch.size, 2

    def embed(states: Any) -> Any:
        """One-hot vectors of (state, action), for each action."""
        rows = np.asarray(states)[..., None] * num_actions + np.arange(num_actions)
        return jnp.eye(size * num_actions)[rows]

    def loss(table: Any, target: Any) -> Any:
        following = embed(batch.next_state)
        return losses.pair_q(
            embed(batch.state),
            following if num_networks == 1 else jnp.stack([following] * 2),
            jnp.asarray(batch.reward),
            jnp.asarray(batch.terminated),
            jnp.asarray(batch.action),
            discount=DISCOUNT,
            distance=lookup(table),
            next_distance=lookup(target),
            terminal_embedding=None if terminal is None else embed(terminal),
        )

    table = iterate(loss, size * num_actions, DISCOUNT).reshape(size, num_actions, size, -1)
    psi = np.stack([table[:, a, :, a] for a in range(num_actions)])
    np.testing.assert_allclose(psi.max(axis=0), exact.bisimulation(mdp).values, atol=1e-6)


def test_rap_is_stationary_at_d_pi_for_random_rewards() -> None:
    """The variances correct the gaps of sampled rewards, on average over their outcomes."""
    states, successor = np.arange(4), [1, 2, 0, 3]
    # Deviations stay within the quadratic part of the Huber function.
    mean, scale = np.array([1.0, -0.5, 0.25, 2.0]), 0.05
    mdp = MDP(np.eye(4)[successor][:, None], mean[:, None], discount=DISCOUNT)
    exact_values = exact.on_policy(mdp, tol=1e-12).values
    others = states[::-1]

    def compute_slope(table: Any, variance: float) -> Any:
        d = jnp.asarray(exact_values)

        def loss(table: Any, noise: Any) -> Any:
            return losses.rap(
                jnp.eye(4)[np.concatenate([states, others])],
                jnp.eye(4)[np.concatenate([np.take(successor, e) for e in (states, others)])],
                jnp.asarray(np.concatenate([mean + noise[0], mean[others] + noise[1]])),
                jnp.zeros(8, bool),
                discount=DISCOUNT,
                reward_variances=jnp.full(8, variance),
                distance=lookup(table),
                next_distance=lookup(d),
                permutation=jnp.asarray(np.concatenate([4 + states, states])),
            )

        outcomes = [(x, y) for x in (-scale, scale) for y in (-scale, scale)]
        return sum(jax.grad(loss)(table, pair) for pair in outcomes) / len(outcomes)

    with jax.enable_x64(True):
        d = jnp.asarray(exact_values)
        following = DISCOUNT * d[np.ix_(successor, successor)]
        np.testing.assert_allclose(compute_slope(d, scale**2), 0, atol=1e-9)
        assert np.abs(compute_slope(d, 0.0)).max() > 1e-4
        assert np.abs(compute_slope(d + 0.1, scale**2)).max() > 1e-2
        # The second root of the square, a known bias.
        second = following - (d - following)
        np.testing.assert_allclose(compute_slope(second, scale**2), 0, atol=1e-9)


def test_deepmdp_is_zero_on_bisimulation_classes() -> None:
    successors = [[1, 2], [3, 0], [3, 0], [3, 3]]
    rewards = [[1.0, 1.0], [0.5, 0.0], [0.5, 0.0], [0.0, 0.0]]
    mdp, batch = build_deterministic(successors, rewards, DISCOUNT)
    classes = relation.bisimulation(mdp)
    assert classes[1] == classes[2]
    embed = jnp.eye(classes.max() + 1)[classes]
    first = {(classes[s], a): (successors[s][a], rewards[s][a]) for s in range(4) for a in (0, 1)}
    pairs = [first[classes[s], a] for s, a in zip(batch.state, batch.action, strict=True)]
    predicted = embed[np.array([t for t, _ in pairs])]
    following = embed[batch.next_state]
    ends = jnp.zeros(len(pairs), bool)
    assert float(losses.deepmdp_transition(predicted, following, ends)) == 0
    predicted_rewards = jnp.asarray([r for _, r in pairs])
    assert float(losses.deepmdp_reward(predicted_rewards, jnp.asarray(batch.reward))) == 0
    # One embedding for states that are not bisimilar cannot fit.
    wrong = predicted[jnp.array([2, 3, 0, 1, 4, 5, 6, 7])]
    assert float(losses.deepmdp_transition(wrong, following, ends)) > 0


def test_ignoring_termination_changes_the_fixed_point() -> None:
    """Published behaviour: the successor of a terminated transition is bootstrapped from."""
    mdp, batch = build_chain(EPISODIC_PATH, DISCOUNT, 3)
    # A replay buffer records the first state of the next episode as the successor.
    batch = batch._replace(next_state=np.where(batch.terminated, 0, batch.next_state))
    expected = exact.on_policy(mdp).values
    absorbing = solve("on_policy", batch)
    np.testing.assert_allclose(absorbing, expected, atol=TABLE_TOLERANCE)
    published = solve("on_policy", batch, absorbing=False)
    assert np.abs(published - expected)[:3, :3].max() > 0.1


def test_metric_distance_embeds_a_metric() -> None:
    """Kuratowski: with x_i = d(., i) the maximum norm is d, so the loss is 0 at the fixed point."""
    mdp, batch = build_chain(DETERMINISTIC, DISCOUNT)
    embedding = jnp.asarray(exact.on_policy(mdp, tol=1e-9).values)
    distance = functools.partial(losses.metric_distance, group_size=4)
    value = losses.on_policy(
        embedding[batch.state],
        embedding[batch.next_state],
        jnp.asarray(batch.reward),
        jnp.asarray(batch.terminated),
        discount=DISCOUNT,
        distance=distance,
    )
    assert float(value) < 1e-10
