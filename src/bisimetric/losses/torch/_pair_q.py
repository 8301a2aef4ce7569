"""Pair Q-learning for d~, and n-step targets for d^pi; metrics by construction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bisimetric.errors import InputError
from bisimetric.losses._validation import (
    require_batch,
    require_discount,
    require_error,
    require_options,
    require_shape,
)
from bisimetric.losses.torch._distances import DistanceFunction, metric_distance
from bisimetric.losses.torch._import import torch
from bisimetric.losses.torch._pairs import append_row, build_pairs, compute_error, compute_mean

if TYPE_CHECKING:
    from torch import Tensor


def pair_q(
    embeddings: Tensor,
    next_embeddings: Tensor,
    rewards: Tensor,
    terminated: Tensor,
    actions: Tensor,
    *,
    discount: float,
    distance: DistanceFunction = metric_distance,
    next_distance: DistanceFunction | None = None,
    error: str = "squared",
    permutation: Tensor | None = None,
    absorbing: bool = True,
    terminal_embedding: Tensor | None = None,
) -> Tensor:
    """Compute the loss of pair Q-learning for the bisimulation metric d~.

    The twin of `bisimetric.losses.pair_q`: equal arguments and values, for tensors.
    """
    require_error("losses.pair_q", error)
    require_discount("losses.pair_q", discount)
    networks = next_embeddings if next_embeddings.ndim == 4 else next_embeddings[None]
    successors = torch.movedim(networks, 0, 1)
    require_batch(
        "losses.pair_q", embeddings, successors, rewards, terminated, axes=("b", "A", "k")
    )
    require_shape("losses.pair_q", "actions", actions, rewards.shape)
    require_options("losses.pair_q", embeddings, permutation, terminal_embedding)
    zeros = embeddings.new_zeros(embeddings.shape[-1])
    pairs = build_pairs(
        embeddings,
        successors,
        rewards,
        terminated,
        terminal=zeros if terminal_embedding is None else terminal_embedding,
        absorbing=absorbing,
        permutation=permutation,
    )
    values = (next_distance or distance)(pairs.next_x, pairs.next_y)
    best = evaluate_double_q(torch.movedim(values, (-2, -1), (0, 1)))
    best = torch.where(pairs.both_ended, 0.0, best)
    targets = (torch.abs(pairs.reward_x - pairs.reward_y) + discount * best).detach()
    # The terminal state takes the action of the other state.
    action = append_row(actions, torch.full_like(actions[0], -1)) if absorbing else actions
    action_x, action_y = action[pairs.row_x], action[pairs.row_y]
    same = (action_x == action_y) | (action_x < 0) | (action_y < 0)
    pair_action = torch.maximum(action_x, action_y).clamp(min=0)
    psi = torch.take_along_dim(distance(pairs.x, pairs.y), pair_action[..., None], dim=-1)[..., 0]
    return compute_mean(
        compute_error(psi - targets, error), pairs.weight * same.to(pairs.weight.dtype)
    )


def on_policy(
    embeddings: Tensor,
    next_embeddings: Tensor,
    rewards: Tensor,
    terminated: Tensor,
    *,
    discount: float,
    steps: Tensor | None = None,
    distance: DistanceFunction = metric_distance,
    next_distance: DistanceFunction | None = None,
    error: str = "squared",
    permutation: Tensor | None = None,
    absorbing: bool = True,
    terminal_embedding: Tensor | None = None,
) -> Tensor:
    """Compute the loss of the on-policy bisimulation metric d^pi with n-step targets.

    The twin of `bisimetric.losses.on_policy`: equal arguments and values, for tensors.
    """
    require_error("losses.on_policy", error)
    require_discount("losses.on_policy", discount)
    if rewards.ndim == 1:
        rewards, terminated = rewards[:, None], terminated[:, None]
        next_embeddings = next_embeddings[:, None]
    require_batch("losses.on_policy", embeddings, next_embeddings, rewards[:, 0], terminated[:, 0])
    length = rewards.shape[1]
    require_shape("losses.on_policy", "terminated", terminated, rewards.shape)
    require_options("losses.on_policy", embeddings, permutation, terminal_embedding)
    if next_embeddings.ndim != 3 or next_embeddings.shape[1] != length:
        raise InputError(
            f"has shape {tuple(next_embeddings.shape)} and must have shape (b, n, k) with n = "
            f"{length}, as the rewards",
            caller="losses.on_policy",
            argument="next_embeddings",
        )
    offsets = torch.arange(length, device=rewards.device)
    rate = embeddings.new_tensor(discount)
    recorded = torch.full_like(rewards[:, 0], length, dtype=torch.long) if steps is None else steps
    ended = torch.zeros_like(rewards, dtype=torch.bool)
    if absorbing:
        within = offsets < recorded[:, None]
        ended = torch.cumsum(terminated.bool() & within, dim=1) > 0
        before = torch.cat([torch.zeros_like(ended[:, :1]), ended[:, :-1]], dim=1)
        rewards = torch.where(before, 0.0, rewards)
        recorded = append_row(
            torch.where(ended[:, -1], length, recorded), recorded.new_full((), length)
        )
    zeros = embeddings.new_zeros(embeddings.shape[1])
    pairs = build_pairs(
        embeddings,
        next_embeddings,
        rewards,
        ended,
        terminal=zeros if terminal_embedding is None else terminal_embedding,
        absorbing=absorbing,
        permutation=permutation,
    )
    distance_after = next_distance or distance
    if steps is None:
        values = distance_after(pairs.next_x[..., -1, :], pairs.next_y[..., -1, :])
        bootstrap = torch.where(pairs.both_ended[..., -1], 0.0, values)
        m = torch.full_like(bootstrap, length, dtype=torch.long)
    else:
        m = torch.minimum(recorded[pairs.row_x], recorded[pairs.row_y])
        values = distance_after(pairs.next_x, pairs.next_y)
        values = torch.where(pairs.both_ended, 0.0, values)
        bootstrap = torch.take_along_dim(values, m[..., None] - 1, dim=-1)[..., 0]
    factors = rate**offsets
    gaps = torch.abs(pairs.reward_x - pairs.reward_y)
    total = torch.sum(torch.where(offsets < m[..., None], factors * gaps, 0.0), dim=-1)
    targets = (total + rate**m * bootstrap).detach()
    return compute_mean(compute_error(distance(pairs.x, pairs.y) - targets, error), pairs.weight)


def evaluate_double_q(values: Tensor) -> Tensor:
    """Return max_b, selected by one network and evaluated by the other: (2, A, ...) to (...).

    It is the mean over both assignments of the roles; with one network, its maximum.
    """
    selected = torch.argmax(values, dim=1, keepdim=True)
    evaluators = torch.roll(values, 1, 0)
    return torch.take_along_dim(evaluators, selected, dim=1)[:, 0].mean(dim=0)
