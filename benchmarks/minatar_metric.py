"""Returns of an agent, and the error of its learned distances against recorded futures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from minatar_losses import Protocol


def evaluate_returns(
    trainer: Any, params: Any, options: Any, key: Any, protocol: Protocol, epsilon: Any
) -> Any:
    """Return the mean undiscounted return of episodes of the epsilon-greedy policy."""
    game = trainer.game
    reset_key, key = jax.random.split(key)
    keys = jax.random.split(reset_key, protocol.episodes)
    observations, envs = jax.vmap(game.reset, (0, None))(keys, options.distractors)

    def step(carry: Any, key: Any) -> tuple[Any, None]:
        envs, observations, alive, total = carry
        act_key, step_key = jax.random.split(key)
        actions = trainer.select_actions(
            params, observations, options, act_key, jnp.asarray(epsilon)
        )
        keys = jax.random.split(step_key, protocol.episodes)
        observations, envs, _, rewards, terminated, truncated = jax.vmap(
            game.step, (0, 0, 0, None)
        )(keys, envs, actions, options.distractors)
        total = total + jnp.where(alive, rewards, 0.0)
        return (envs, observations, alive & ~(terminated | truncated), total), None

    alive, total = jnp.ones(protocol.episodes, bool), jnp.zeros(protocol.episodes)
    keys = jax.random.split(key, protocol.max_length)
    return jax.lax.scan(step, (envs, observations, alive, total), keys)[0][3].mean()


def record_futures(
    trainer: Any, params: Any, options: Any, envs: Any, observations: Any, key: Any, horizon: int
) -> Any:
    """Return the rewards (horizon, states, futures) of the epsilon-greedy policy from states.

    Future i of every state uses the same random numbers, for the game, the distractors and the
    exploration. After a termination rewards are 0.

    Args:
        trainer: the game and the network.
        params: of the network.
        options: of the agent.
        envs: (states, futures, ...), the states.
        observations: (states, futures, ...).
        key: of all random numbers.
        horizon: steps of a future.
    """
    game, config = trainer.game, trainer.config
    states, futures = observations.shape[:2]

    def step_once(key: Any, env: Any, observation: Any, values: Any) -> Any:
        explore_key, action_key, game_key, noise_key = jax.random.split(key, 4)
        action = jax.random.randint(action_key, (), 0, game.num_actions)
        explore = jax.random.uniform(explore_key) < config.epsilon
        action = jnp.where(explore, action, jnp.argmax(values))
        shown, state, reward, terminated, _ = game.env.step_env(
            game_key, env.game, action, game.params
        )
        planes = game.draw_planes(noise_key, env.planes)
        observation = game.observe(shown, planes, options.distractors)
        return env._replace(game=state, planes=planes), observation, reward, terminated

    over_futures = jax.vmap(step_once)
    over_states = jax.vmap(over_futures, (None, 0, 0, 0))

    def step(carry: Any, key: Any) -> tuple[Any, Any]:
        from jax_pqn_minatar import apply_linear, encode

        envs, observations, alive = carry
        flat = observations.reshape(states * futures, *observations.shape[2:])
        values = apply_linear(params["q"], encode(params, flat, options.layer_norm))
        values = values.reshape(states, futures, -1)
        envs, observations, rewards, terminated = over_states(
            jax.random.split(key, futures), envs, observations, values
        )
        return (envs, observations, alive & ~terminated), jnp.where(alive, rewards, 0.0)

    alive = jnp.ones((states, futures), bool)
    return jax.lax.scan(step, (envs, observations, alive), jax.random.split(key, horizon))[1]


def estimate_distances(rewards: Any, discount: float) -> tuple[Any, Any, Any]:
    """Estimate three distances of states from recorded futures.

    Independent coupling: E sum_k discount^k |r_k - r'_k| of independent futures, the fixed point of
    all three losses (for sampled rewards). Common random numbers: the same of futures with the same
    random numbers, also a coupling. Values: |E sum_k discount^k (r_k - r'_k)|. For d^pi they are an
    upper bound, an upper bound, and a lower bound.

    Args:
        rewards: (horizon, states, futures).
        discount: the discount.

    Returns:
        Three arrays (states, states): values, common random numbers, independent coupling.
    """
    horizon, states, futures = rewards.shape
    factors = discount ** jnp.arange(horizon)
    values = jnp.einsum("k,ksf->s", factors, rewards) / futures

    def add(total: Any, each: Any) -> tuple[Any, None]:
        factor, reward = each
        shared = jnp.abs(reward[:, None] - reward[None]).mean(-1)
        everything = jnp.abs(reward[:, None, :, None] - reward[None, :, None, :]).mean((-1, -2))
        # Futures with the same number are not independent.
        independent = (everything * futures - shared) / (futures - 1)
        return (total[0] + factor * shared, total[1] + factor * independent), None

    zeros = jnp.zeros((states, states))
    (common, independent), _ = jax.lax.scan(add, (zeros, zeros), (factors, rewards))
    return jnp.abs(values[:, None] - values[None]), common, independent


def correlate_ranks(x: Any, y: Any) -> Any:
    """Return Spearman's rank correlation of two vectors; NaN where one of them is constant."""

    def rank(values: Any) -> Any:
        """Equal values have the mean of their ranks."""
        ordered = jnp.sort(values)
        below, above = (jnp.searchsorted(ordered, values, side=each) for each in ("left", "right"))
        return (below + above) / 2

    return jnp.corrcoef(rank(x), rank(y))[0, 1]


def evaluate_metric(trainer: Any, state: Any, options: Any, key: Any, protocol: Protocol) -> Any:
    """Compare the learned distance, and that of the features, with the estimates.

    Returns:
        Means of the three estimates over pairs of states; the mean error of the learned distance
        against the independent coupling, and its mean distance from the interval [values, common
        random numbers] that contains d^pi; rank correlations with the independent coupling of the
        learned and of the Euclidean distance of features; and the latter distance of one state
        with other distractors, relative to its mean over pairs.
    """
    from jax_pqn_minatar import apply_linear, encode, measure_distance

    game, config, params = trainer.game, trainer.config, state.params
    future_key, noise_key = jax.random.split(key)

    def repeat(x: Any) -> Any:
        x = x[: protocol.states]
        return jnp.broadcast_to(x[:, None], (len(x), protocol.futures, *x.shape[1:]))

    envs = jax.tree.map(repeat, state.envs)
    rewards = record_futures(
        trainer, params, options, envs, repeat(state.observations), future_key, protocol.horizon
    )
    first, second = np.triu_indices(protocol.states, 1)
    values, common, independent = (
        each[first, second] for each in estimate_distances(rewards, config.discount)
    )
    observations = state.observations[: protocol.states]
    features = encode(params, observations, options.layer_norm)
    z = apply_linear(params["metric"], features)
    learned = jnp.zeros(len(first))
    for name in config.losses:
        distance = measure_distance(name, config, z[first], z[second])
        learned += jnp.where(options.weights[name] > 0, distance, 0.0)
    euclidean = jnp.linalg.norm(features[first] - features[second], axis=1)
    planes = jax.random.bernoulli(noise_key, 0.2, state.envs.planes[: protocol.states].shape)
    real = observations[..., : -planes.shape[-1]]
    others = encode(params, game.observe(real, planes, options.distractors), options.layer_norm)
    outside = jnp.maximum(values - learned, 0) + jnp.maximum(learned - common, 0)
    return {
        "values": values.mean(),
        "common": common.mean(),
        "independent": independent.mean(),
        "learned": learned.mean(),
        "error": jnp.abs(learned - independent).mean(),
        "outside": outside.mean(),
        "rank_correlation": correlate_ranks(learned, independent),
        "feature_correlation": correlate_ranks(euclidean, independent),
        "noise": jnp.linalg.norm(features - others, axis=1).mean()
        / jnp.maximum(euclidean.mean(), 1e-9),
    }
