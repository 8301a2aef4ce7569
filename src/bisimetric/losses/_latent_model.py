"""Losses with a latent model of successors: DBC, normalised DBC, RAP and DeepMDP.

A Gaussian latent model predicts the mean and the standard deviation of the embedding of the
successor. W2 of two Gaussians with diagonal covariance is the Euclidean distance of their (mean,
standard deviation), concatenated.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from bisimetric.losses._distances import (
    DistanceFunction,
    euclidean_distance,
    l1_distance,
    rap_distance,
    safe_sqrt,
)
from bisimetric.losses._pairs import (
    Pairs,
    append_row,
    build_pairs,
    compute_error,
    compute_mean,
    compute_targets,
)
from bisimetric.losses._validation import (
    require_batch,
    require_discount,
    require_options,
    require_shape,
)


def dbc(
    embeddings: Array,
    next_embeddings: Array,
    rewards: Array,
    terminated: Array,
    *,
    discount: float,
    next_scales: Array | None = None,
    distance: DistanceFunction = l1_distance,
    next_distance: DistanceFunction = euclidean_distance,
    per_coordinate: bool = False,
    permutation: Array | None = None,
    absorbing: bool = True,
    terminal_embedding: Array | None = None,
) -> Array:
    """Compute the loss of DBC (Zhang et al. 2021).

        mean over pairs of (|x - y|_1 - |r_x - r_y| - discount * W2(P(x), P(y)))^2,

    W2 of the Gaussians that a latent model predicts. Fixed point: for deterministic dynamics and
    policies, and one distance for states and successors, `exact.on_policy`. Known bias: for
    stochastic dynamics W2 of one Gaussian per state, not W1 of the metric; L1 on the left and the
    Euclidean norm on the right, which is up to sqrt(k) times smaller; |r_x - r_y| of sampled
    rewards.

    Args:
        embeddings: (b, k), of the states.
        next_embeddings: (b, k), predicted means of the successors; no gradient flows.
        rewards: (b,).
        terminated: (b,) booleans. Truncation is not termination.
        discount: the discount, below 1.
        next_scales: (b, k), predicted standard deviations; default: zeros.
        distance: of embeddings (..., k) and (..., k), broadcast.
        next_distance: of (mean, standard deviation), (..., 2 k), or of means where `next_scales` is
            None.
        per_coordinate: compare coordinate by coordinate, Huber in place of absolute values, as the
            published code does; the distances are then ignored.
        permutation: (b,), the partner of each transition, random in the published code; default:
            all pairs.
        absorbing: whether episodes terminate in an absorbing state with reward 0, which is paired
            with others where a transition of the batch terminated. False ignores termination, as
            the published code does.
        terminal_embedding: (k,), of the terminal state; default: zeros.

    Returns:
        A scalar.

    Raises:
        InputError: when a shape or a number does not fit.

    >>> x, x_next = jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.array([[3.0, 0.0], [0.0, 4.0]])
    >>> loss = dbc(
    ...     x, x_next, jnp.array([0.0, 1.0]), jnp.array([False, False]), discount=0.5,
    ...     permutation=jnp.array([1, 0]),
    ... )
    >>> float(loss)
    2.25
    """
    pairs = _build_latent_pairs(
        "losses.dbc",
        embeddings,
        next_embeddings,
        next_scales,
        rewards,
        terminated,
        discount,
        permutation,
        absorbing,
        terminal_embedding,
    )
    if per_coordinate:
        gap = compute_error(pairs.reward_x - pairs.reward_y, "huber")[..., None]
        next_gap = _compute_coordinate_distances(pairs, embeddings.shape[1])
        next_gap = jnp.where(pairs.both_ended[..., None], 0.0, next_gap)
        targets = stop_gradient(gap + discount * next_gap)
        differences = compute_error(pairs.x - pairs.y, "huber") - targets
        return compute_mean(jnp.mean(differences**2, axis=-1), pairs.weight)
    targets = compute_targets(pairs, discount, next_distance)
    return compute_mean((distance(pairs.x, pairs.y) - targets) ** 2, pairs.weight)


def normalised_dbc(
    embeddings: Array,
    next_embeddings: Array,
    rewards: Array,
    terminated: Array,
    *,
    discount: float,
    reward_range: float,
    next_scales: Array | None = None,
    distance: DistanceFunction = euclidean_distance,
    next_distance: DistanceFunction = euclidean_distance,
    permutation: Array | None = None,
    absorbing: bool = True,
    terminal_embedding: Array | None = None,
) -> Array:
    """Compute the loss of DBC with bounded embeddings (Kemertas & Aumentado-Armstrong 2021).

    The norms of embeddings and predicted means are at most reward_range / (2 (1 - discount)), half
    the diameter bound, so that they neither grow with wrong targets nor exceed what the metric can
    be; otherwise as `dbc`, with Euclidean distances. Apply `normalise_embeddings` with the same
    bound wherever the embeddings are used. Fixed point and bias: as for `dbc`; one norm on both
    sides.

    Args:
        embeddings: (b, k), of the states.
        next_embeddings: (b, k), predicted means of the successors; no gradient flows.
        rewards: (b,).
        terminated: (b,) booleans. Truncation is not termination.
        discount: the discount, below 1.
        reward_range: largest reward less least reward.
        next_scales: (b, k), predicted standard deviations; default: zeros.
        distance: of embeddings (..., k) and (..., k), broadcast.
        next_distance: of (mean, standard deviation), (..., 2 k), or of means where `next_scales` is
            None.
        permutation: (b,), the partner of each transition, random in the published code; default:
            all pairs.
        absorbing: whether episodes terminate in an absorbing state with reward 0, which is paired
            with others where a transition of the batch terminated. False ignores termination, as
            the published code does.
        terminal_embedding: (k,), of the terminal state; default: zeros.

    Returns:
        A scalar.

    Raises:
        InputError: when a shape or a number does not fit.

    >>> x, x_next = jnp.array([[9.0, 0.0], [0.0, 0.0]]), jnp.array([[0.0, 0.0], [0.0, 0.0]])
    >>> ends = jnp.array([False, False])
    >>> loss = normalised_dbc(
    ...     x, x_next, jnp.array([0.0, 1.0]), ends, discount=0.75, reward_range=1.0,
    ...     permutation=jnp.array([1, 0]),
    ... )
    >>> float(loss)
    1.0
    """
    require_discount("losses.normalised_dbc", discount)
    max_norm = reward_range / (2 * (1 - discount))
    return dbc(
        normalise_embeddings(embeddings, max_norm),
        normalise_embeddings(next_embeddings, max_norm),
        rewards,
        terminated,
        discount=discount,
        next_scales=next_scales,
        distance=distance,
        next_distance=next_distance,
        permutation=permutation,
        absorbing=absorbing,
        terminal_embedding=terminal_embedding,
    )


def normalise_embeddings(embeddings: Array, max_norm: float) -> Array:
    """Scale down embeddings whose Euclidean norm is above a bound.

    Args:
        embeddings: (..., k).
        max_norm: the bound, above 0.

    Returns:
        (..., k).

    >>> normalise_embeddings(jnp.array([[6.0, 8.0], [0.3, 0.0]]), 5.0).tolist()
    [[3.0, 4.0], [0.30000001192092896, 0.0]]
    """
    norms = safe_sqrt(jnp.sum(embeddings**2, axis=-1, keepdims=True))
    return embeddings / jnp.maximum(norms / max_norm, 1.0)


def rap(
    embeddings: Array,
    next_embeddings: Array,
    rewards: Array,
    terminated: Array,
    *,
    discount: float,
    reward_variances: Array,
    next_scales: Array | None = None,
    distance: DistanceFunction = rap_distance,
    next_distance: DistanceFunction | None = None,
    per_coordinate: bool = False,
    squared: bool = True,
    permutation: Array | None = None,
    absorbing: bool = True,
    terminal_embedding: Array | None = None,
) -> Array:
    """Compute the loss of RAP (Chen & Pan 2022), which corrects reward gaps by their variance.

        mean over pairs of
            huber((d(x, y) - discount * d'(x', y'))^2 - ((r_x - r_y)^2 - var_x - var_y)),

    since E (r_x - r_y)^2 - var_x - var_y = (E r_x - E r_y)^2. Fixed point: for the mean successor
    of each state, d = |E r_x - E r_y| + discount * d'(x', y'): `exact.on_policy` for deterministic
    dynamics. Known bias: the square has a second root, d = discount * d' - |E r_x - E r_y|; mean
    successors ignore the variance of the dynamics.

    Args:
        embeddings: (b, k), of the states.
        next_embeddings: (b, k), predicted means of the successors; no gradient flows.
        rewards: (b,).
        terminated: (b,) booleans. Truncation is not termination.
        discount: the discount, below 1.
        reward_variances: (b,), predicted variance of the reward in each state, over actions and
            outcomes; no gradient flows.
        next_scales: (b, k), predicted standard deviations; used with `per_coordinate` only.
        distance: of embeddings (..., k) and (..., k), broadcast.
        next_distance: that of the successors; default: `distance`.
        per_coordinate: for the successors, the mean over coordinates of the Euclidean distance of
            (mean, standard deviation), as the published code does.
        squared: whether the loss compares squares; else huber(d - |..|^(1/2) - discount * d'), with
            negative differences counted as 0.
        permutation: (b,), the partner of each transition, random in the published code; default:
            all pairs.
        absorbing: whether episodes terminate in an absorbing state with reward 0, which is paired
            with others where a transition of the batch terminated. False ignores termination, as
            the published code does.
        terminal_embedding: (k,), of the terminal state; default: zeros.

    Returns:
        A scalar.

    Raises:
        InputError: when a shape or a number does not fit.

    >>> x, x_next = jnp.array([[1.0], [1.0]]), jnp.array([[0.0], [0.0]])
    >>> loss = rap(
    ...     x, x_next, jnp.array([0.0, 2.0]), jnp.array([False, False]), discount=0.5,
    ...     reward_variances=jnp.array([0.0, 0.5]), permutation=jnp.array([1, 0]),
    ... )
    >>> round(float(loss), 4)
    0.125
    """
    pairs = _build_latent_pairs(
        "losses.rap",
        embeddings,
        next_embeddings,
        next_scales if per_coordinate else None,
        rewards,
        terminated,
        discount,
        permutation,
        absorbing,
        terminal_embedding,
    )
    require_shape("losses.rap", "reward_variances", reward_variances, rewards.shape)
    variance = stop_gradient(reward_variances)
    if absorbing:
        variance = append_row(variance, jnp.zeros((), variance.dtype))
    variances = variance[pairs.row_x] + variance[pairs.row_y]
    gap = stop_gradient((pairs.reward_x - pairs.reward_y) ** 2 - variances)
    if per_coordinate:
        coordinates = _compute_coordinate_distances(pairs, embeddings.shape[1])
        next_value = jnp.mean(coordinates, axis=-1)
    else:
        next_value = (next_distance or distance)(pairs.next_x, pairs.next_y)
    next_value = stop_gradient(discount * jnp.where(pairs.both_ended, 0.0, next_value))
    difference = distance(pairs.x, pairs.y) - next_value
    if squared:
        return compute_mean(compute_error(difference**2 - gap, "huber"), pairs.weight)
    return compute_mean(compute_error(difference - safe_sqrt(gap), "huber"), pairs.weight)


def deepmdp_reward(predicted_rewards: Array, rewards: Array, *, squared: bool = False) -> Array:
    """Compute the reward loss of DeepMDP (Gelada et al. 2019), mean |R(phi(s), a) - r|.

    Fixed point: 0 where states of equal embedding have equal rewards for each action, such as one
    embedding per class of `relation.bisimulation`. Known bias: the median, not the mean, of random
    rewards; the mean with `squared`.

    Args:
        predicted_rewards: (b,), of the latent model.
        rewards: (b,).
        squared: whether to take squares in place of absolute values, as published code does.

    Returns:
        A scalar.

    Raises:
        InputError: when the shapes differ.

    >>> float(deepmdp_reward(jnp.array([1.0, 2.0]), jnp.array([1.0, 5.0])))
    1.5
    """
    require_shape("losses.deepmdp_reward", "rewards", rewards, predicted_rewards.shape)
    difference = predicted_rewards - rewards
    return jnp.mean(difference**2 if squared else jnp.abs(difference))


def deepmdp_transition(
    predicted_embeddings: Array,
    next_embeddings: Array,
    terminated: Array,
    *,
    predicted_scales: Array | None = None,
    absorbing: bool = True,
    terminal_embedding: Array | None = None,
) -> Array:
    """Compute the latent transition loss of DeepMDP (Gelada et al. 2019).

        mean |f(phi(s), a) - phi(s')|,

    W1 of the latent model f and the embedded successors, for deterministic ones. With predicted
    standard deviations it is the Gaussian negative log-likelihood, per coordinate and without its
    constant, as in published code. Fixed point: 0 where states of equal embedding have successors
    of equal embedding for each action, such as one embedding per class of `relation.bisimulation`.
    Known bias: a constant embedding has loss 0, too, so the loss needs the one of the rewards; for
    stochastic dynamics f is the geometric median of the successors.

    Args:
        predicted_embeddings: (b, k), of the latent model.
        next_embeddings: (b, k), of the successors. Gradients flow; stop them, or use the target
            network, to train the latent model alone.
        terminated: (b,) booleans. Truncation is not termination.
        predicted_scales: (b, k), predicted standard deviations.
        absorbing: whether a terminated transition leads to the terminal state; False ignores
            termination, as published code does.
        terminal_embedding: (k,), of the terminal state; default: zeros.

    Returns:
        A scalar.

    Raises:
        InputError: when a shape does not fit.

    >>> ends = jnp.array([False, True])
    >>> predicted = jnp.array([[1.0, 0.0], [3.0, 4.0]])
    >>> float(deepmdp_transition(predicted, jnp.ones((2, 2)), ends))
    3.0
    """
    caller = "losses.deepmdp_transition"
    require_batch(caller, predicted_embeddings, next_embeddings, terminated, terminated)
    require_options(caller, predicted_embeddings, terminal_embedding=terminal_embedding)
    if absorbing:
        zeros = jnp.zeros(next_embeddings.shape[1], next_embeddings.dtype)
        terminal = zeros if terminal_embedding is None else terminal_embedding
        next_embeddings = jnp.where(
            jnp.asarray(terminated, bool)[:, None], terminal, next_embeddings
        )
    if predicted_scales is None:
        return jnp.mean(euclidean_distance(predicted_embeddings, next_embeddings))
    standardised = (predicted_embeddings - next_embeddings) / predicted_scales
    return jnp.mean(standardised**2 / 2 + jnp.log(predicted_scales))


def _build_latent_pairs(
    caller: str,
    embeddings: Array,
    next_embeddings: Array,
    next_scales: Array | None,
    rewards: Array,
    terminated: Array,
    discount: float,
    permutation: Array | None,
    absorbing: bool,
    terminal_embedding: Array | None,
) -> Pairs:
    """Return pairs whose successors are (mean, standard deviation), or means without scales."""
    require_discount(caller, discount)
    require_batch(caller, embeddings, next_embeddings, rewards, terminated)
    require_options(caller, embeddings, permutation, terminal_embedding)
    zeros = jnp.zeros(embeddings.shape[1], embeddings.dtype)
    terminal = zeros if terminal_embedding is None else terminal_embedding
    next_terminal = terminal
    if next_scales is not None:
        require_shape(caller, "next_scales", next_scales, next_embeddings.shape)
        next_embeddings = jnp.concatenate([next_embeddings, next_scales], axis=-1)
        next_terminal = jnp.concatenate([terminal, zeros])
    return build_pairs(
        embeddings,
        next_embeddings,
        rewards,
        terminated,
        terminal=terminal,
        next_terminal=next_terminal,
        absorbing=absorbing,
        permutation=permutation,
    )


def _compute_coordinate_distances(pairs: Pairs, size: int) -> Array:
    """Return W2 of the Gaussians of each coordinate, (..., k)."""
    squares = (pairs.next_x - pairs.next_y) ** 2
    if squares.shape[-1] == size:
        return safe_sqrt(squares)
    return safe_sqrt(squares[..., :size] + squares[..., size:])
