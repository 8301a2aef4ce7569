"""Losses on pairs of sampled transitions: MICo, its kernel form (reduced MICo, KSMe) and SimSR."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bisimetric.losses._validation import (
    require_batch,
    require_discount,
    require_error,
    require_options,
)
from bisimetric.losses.torch._distances import (
    DistanceFunction,
    cosine_distance,
    inner_product,
    mico_distance,
)
from bisimetric.losses.torch._import import torch
from bisimetric.losses.torch._pairs import build_pairs, compute_error, compute_mean, compute_targets

if TYPE_CHECKING:
    from torch import Tensor


def mico(
    embeddings: Tensor,
    next_embeddings: Tensor,
    rewards: Tensor,
    terminated: Tensor,
    *,
    discount: float,
    distance: DistanceFunction = mico_distance,
    next_distance: DistanceFunction | None = None,
    target_embeddings: Tensor | None = None,
    error: str = "huber",
    permutation: Tensor | None = None,
    self_pairs: bool = True,
    absorbing: bool = True,
    terminal_embedding: Tensor | None = None,
) -> Tensor:
    """Compute the loss of MICo (Castro et al. 2021).

    The twin of `bisimetric.losses.mico`: equal arguments and values, for tensors.
    """
    require_error("losses.mico", error)
    require_discount("losses.mico", discount)
    require_batch("losses.mico", embeddings, next_embeddings, rewards, terminated)
    require_options("losses.mico", embeddings, permutation, terminal_embedding, target_embeddings)
    zeros = embeddings.new_zeros(embeddings.shape[1])
    pairs = build_pairs(
        embeddings,
        next_embeddings,
        rewards,
        terminated,
        terminal=zeros if terminal_embedding is None else terminal_embedding,
        absorbing=absorbing,
        permutation=permutation,
        self_pairs=self_pairs,
        target_embeddings=target_embeddings,
    )
    targets = compute_targets(pairs, discount, next_distance or distance)
    return compute_mean(compute_error(distance(pairs.x, pairs.y) - targets, error), pairs.weight)


def reduced_mico(
    embeddings: Tensor,
    next_embeddings: Tensor,
    rewards: Tensor,
    terminated: Tensor,
    *,
    discount: float,
    reward_range: float = 2.0,
    kernel: DistanceFunction = inner_product,
    next_kernel: DistanceFunction | None = None,
    target_embeddings: Tensor | None = None,
    error: str = "huber",
    permutation: Tensor | None = None,
    self_pairs: bool = True,
    absorbing: bool = True,
    terminal_embedding: Tensor | None = None,
) -> Tensor:
    """Compute the loss of KSMe (Castro et al. 2023), whose kernel gives reduced MICo.

    The twin of `bisimetric.losses.reduced_mico`: equal arguments and values, for tensors.
    """
    require_error("losses.reduced_mico", error)
    require_discount("losses.reduced_mico", discount)
    require_batch("losses.reduced_mico", embeddings, next_embeddings, rewards, terminated)
    require_options(
        "losses.reduced_mico", embeddings, permutation, terminal_embedding, target_embeddings
    )
    horizon = 1 / (1 - discount)
    if terminal_embedding is None:
        size = embeddings.shape[1]
        terminal_embedding = embeddings.new_full((size,), (horizon / size) ** 0.5)
    pairs = build_pairs(
        embeddings,
        next_embeddings,
        rewards,
        terminated,
        terminal=terminal_embedding,
        absorbing=absorbing,
        permutation=permutation,
        self_pairs=self_pairs,
        target_embeddings=target_embeddings,
    )
    similarity = (next_kernel or kernel)(pairs.next_x, pairs.next_y)
    similarity = torch.where(pairs.both_ended, horizon, similarity)
    gap = torch.abs(pairs.reward_x - pairs.reward_y) / reward_range
    targets = (1 - gap + discount * similarity).detach()
    return compute_mean(compute_error(kernel(pairs.x, pairs.y) - targets, error), pairs.weight)


def simsr(
    embeddings: Tensor,
    next_embeddings: Tensor,
    rewards: Tensor,
    terminated: Tensor,
    *,
    discount: float,
    distance: DistanceFunction = cosine_distance,
    next_distance: DistanceFunction | None = None,
    error: str = "huber",
    permutation: Tensor | None = None,
    self_pairs: bool = True,
    absorbing: bool = True,
    terminal_embedding: Tensor | None = None,
) -> Tensor:
    """Compute the loss of SimSR (Zang et al. 2022).

    The twin of `bisimetric.losses.simsr`: equal arguments and values, for tensors.
    """
    require_error("losses.simsr", error)
    require_discount("losses.simsr", discount)
    require_batch("losses.simsr", embeddings, next_embeddings, rewards, terminated)
    require_options("losses.simsr", embeddings, permutation, terminal_embedding)
    if terminal_embedding is None:
        size = embeddings.shape[1]
        terminal_embedding = embeddings.new_full((size,), size**-0.5)
    pairs = build_pairs(
        embeddings,
        next_embeddings,
        rewards,
        terminated,
        terminal=terminal_embedding,
        absorbing=absorbing,
        permutation=permutation,
        self_pairs=self_pairs,
    )
    targets = compute_targets(pairs, discount, next_distance or distance)
    return compute_mean(compute_error(distance(pairs.x, pairs.y) - targets, error), pairs.weight)
