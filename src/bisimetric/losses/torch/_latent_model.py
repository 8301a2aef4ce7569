"""Losses with a latent model of successors: DBC, normalised DBC, RAP and DeepMDP.

A Gaussian latent model predicts the mean and the standard deviation of the embedding of the
successor. W2 of two Gaussians with diagonal covariance is the Euclidean distance of their (mean,
standard deviation), concatenated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bisimetric.losses._validation import (
    require_batch,
    require_discount,
    require_options,
    require_shape,
)
from bisimetric.losses.torch._distances import (
    DistanceFunction,
    euclidean_distance,
    l1_distance,
    rap_distance,
    safe_sqrt,
)
from bisimetric.losses.torch._import import torch
from bisimetric.losses.torch._pairs import (
    TensorPairs,
    append_row,
    build_pairs,
    compute_error,
    compute_mean,
    compute_targets,
)

if TYPE_CHECKING:
    from torch import Tensor


def dbc(
    embeddings: Tensor,
    next_embeddings: Tensor,
    rewards: Tensor,
    terminated: Tensor,
    *,
    discount: float,
    next_scales: Tensor | None = None,
    distance: DistanceFunction = l1_distance,
    next_distance: DistanceFunction = euclidean_distance,
    per_coordinate: bool = False,
    permutation: Tensor | None = None,
    absorbing: bool = True,
    terminal_embedding: Tensor | None = None,
) -> Tensor:
    """Compute the loss of DBC (Zhang et al. 2021).

    The twin of `bisimetric.losses.dbc`: equal arguments and values, for tensors.
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
        next_gap = torch.where(pairs.both_ended[..., None], 0.0, next_gap)
        targets = (gap + discount * next_gap).detach()
        differences = compute_error(pairs.x - pairs.y, "huber") - targets
        return compute_mean(torch.mean(differences**2, dim=-1), pairs.weight)
    targets = compute_targets(pairs, discount, next_distance)
    return compute_mean((distance(pairs.x, pairs.y) - targets) ** 2, pairs.weight)


def normalised_dbc(
    embeddings: Tensor,
    next_embeddings: Tensor,
    rewards: Tensor,
    terminated: Tensor,
    *,
    discount: float,
    reward_range: float,
    next_scales: Tensor | None = None,
    distance: DistanceFunction = euclidean_distance,
    next_distance: DistanceFunction = euclidean_distance,
    permutation: Tensor | None = None,
    absorbing: bool = True,
    terminal_embedding: Tensor | None = None,
) -> Tensor:
    """Compute the loss of DBC with bounded embeddings (Kemertas & Aumentado-Armstrong 2021).

    The twin of `bisimetric.losses.normalised_dbc`: equal arguments and values, for tensors.
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


def normalise_embeddings(embeddings: Tensor, max_norm: float) -> Tensor:
    """Scale down embeddings whose Euclidean norm is above a bound.

    The twin of `bisimetric.losses.normalise_embeddings`: equal arguments and values, for tensors.
    """
    norms = safe_sqrt(torch.sum(embeddings**2, dim=-1, keepdim=True))
    return embeddings / torch.maximum(norms / max_norm, torch.ones_like(norms))


def rap(
    embeddings: Tensor,
    next_embeddings: Tensor,
    rewards: Tensor,
    terminated: Tensor,
    *,
    discount: float,
    reward_variances: Tensor,
    next_scales: Tensor | None = None,
    distance: DistanceFunction = rap_distance,
    next_distance: DistanceFunction | None = None,
    per_coordinate: bool = False,
    squared: bool = True,
    permutation: Tensor | None = None,
    absorbing: bool = True,
    terminal_embedding: Tensor | None = None,
) -> Tensor:
    """Compute the loss of RAP (Chen & Pan 2022), which corrects reward gaps by their variance.

    The twin of `bisimetric.losses.rap`: equal arguments and values, for tensors.
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
    variance = reward_variances.detach()
    if absorbing:
        variance = append_row(variance, variance.new_zeros(()))
    variances = variance[pairs.row_x] + variance[pairs.row_y]
    gap = ((pairs.reward_x - pairs.reward_y) ** 2 - variances).detach()
    if per_coordinate:
        coordinates = _compute_coordinate_distances(pairs, embeddings.shape[1])
        next_value = torch.mean(coordinates, dim=-1)
    else:
        next_value = (next_distance or distance)(pairs.next_x, pairs.next_y)
    next_value = (discount * torch.where(pairs.both_ended, 0.0, next_value)).detach()
    difference = distance(pairs.x, pairs.y) - next_value
    if squared:
        return compute_mean(compute_error(difference**2 - gap, "huber"), pairs.weight)
    return compute_mean(compute_error(difference - safe_sqrt(gap), "huber"), pairs.weight)


def deepmdp_reward(predicted_rewards: Tensor, rewards: Tensor, *, squared: bool = False) -> Tensor:
    """Compute the reward loss of DeepMDP (Gelada et al. 2019), mean |R(phi(s), a) - r|.

    The twin of `bisimetric.losses.deepmdp_reward`: equal arguments and values, for tensors.
    """
    require_shape("losses.deepmdp_reward", "rewards", rewards, predicted_rewards.shape)
    difference = predicted_rewards - rewards
    return torch.mean(difference**2 if squared else torch.abs(difference))


def deepmdp_transition(
    predicted_embeddings: Tensor,
    next_embeddings: Tensor,
    terminated: Tensor,
    *,
    predicted_scales: Tensor | None = None,
    absorbing: bool = True,
    terminal_embedding: Tensor | None = None,
) -> Tensor:
    """Compute the latent transition loss of DeepMDP (Gelada et al. 2019).

    The twin of `bisimetric.losses.deepmdp_transition`: equal arguments and values, for tensors.
    """
    caller = "losses.deepmdp_transition"
    require_batch(caller, predicted_embeddings, next_embeddings, terminated, terminated)
    require_options(caller, predicted_embeddings, terminal_embedding=terminal_embedding)
    if absorbing:
        zeros = next_embeddings.new_zeros(next_embeddings.shape[1])
        terminal = zeros if terminal_embedding is None else terminal_embedding
        next_embeddings = torch.where(terminated.bool()[:, None], terminal, next_embeddings)
    if predicted_scales is None:
        return torch.mean(euclidean_distance(predicted_embeddings, next_embeddings))
    standardised = (predicted_embeddings - next_embeddings) / predicted_scales
    return torch.mean(standardised**2 / 2 + torch.log(predicted_scales))


def _build_latent_pairs(
    caller: str,
    embeddings: Tensor,
    next_embeddings: Tensor,
    next_scales: Tensor | None,
    rewards: Tensor,
    terminated: Tensor,
    discount: float,
    permutation: Tensor | None,
    absorbing: bool,
    terminal_embedding: Tensor | None,
) -> TensorPairs:
    """Return pairs whose successors are (mean, standard deviation), or means without scales."""
    require_discount(caller, discount)
    require_batch(caller, embeddings, next_embeddings, rewards, terminated)
    require_options(caller, embeddings, permutation, terminal_embedding)
    zeros = embeddings.new_zeros(embeddings.shape[1])
    terminal = zeros if terminal_embedding is None else terminal_embedding
    next_terminal = terminal
    if next_scales is not None:
        require_shape(caller, "next_scales", next_scales, next_embeddings.shape)
        next_embeddings = torch.cat([next_embeddings, next_scales], dim=-1)
        next_terminal = torch.cat([terminal, zeros])
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


def _compute_coordinate_distances(pairs: TensorPairs, size: int) -> Tensor:
    """Return W2 of the Gaussians of each coordinate, (..., k)."""
    squares = (pairs.next_x - pairs.next_y) ** 2
    if squares.shape[-1] == size:
        return safe_sqrt(squares)
    return safe_sqrt(squares[..., :size] + squares[..., size:])
