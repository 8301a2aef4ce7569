"""Pairs of the transitions of a batch, with an absorbing terminal state.

The terminal state becomes one more row of the batch, with reward 0 and itself as successor, where a
transition of the batch terminated; without one, all losses are those without a terminal state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bisimetric.losses.torch._distances import DistanceFunction
from bisimetric.losses.torch._import import torch

if TYPE_CHECKING:
    from torch import Tensor


class TensorPairs(NamedTuple):
    """Both sides of each pair; all pairs have two axes (n, n), those of a permutation one (n,).

    Attributes:
        x: (n, 1, ...) or (n, ...), embeddings of the first state.
        y: (1, n, ...) or (n, ...), embeddings of the second state.
        next_x: successors of the first state, without gradient.
        next_y: successors of the second state, without gradient.
        reward_x: rewards of the first transition.
        reward_y: rewards of the second transition.
        row_x: row of the first transition.
        row_y: row of the second transition.
        both_ended: whether both successors are the terminal state.
        weight: weight of a pair in the mean.
    """

    x: Tensor
    y: Tensor
    next_x: Tensor
    next_y: Tensor
    reward_x: Tensor
    reward_y: Tensor
    row_x: Tensor
    row_y: Tensor
    both_ended: Tensor
    weight: Tensor


def build_pairs(
    embeddings: Tensor,
    next_embeddings: Tensor,
    rewards: Tensor,
    terminated: Tensor,
    *,
    terminal: Tensor,
    absorbing: bool,
    permutation: Tensor | None = None,
    self_pairs: bool = True,
    next_terminal: Tensor | None = None,
    target_embeddings: Tensor | None = None,
) -> TensorPairs:
    """Pair the rows of a batch, all with all or each with the one that a permutation gives."""
    size = len(embeddings)
    second = embeddings if target_embeddings is None else target_embeddings.detach()
    successors = next_embeddings.detach()
    ended = torch.zeros_like(terminated, dtype=torch.bool)
    row_weight = embeddings.new_ones(size)
    if absorbing:
        next_terminal = (terminal if next_terminal is None else next_terminal).detach()
        ended = terminated.bool()
        mask = ended.reshape(*ended.shape, *(1,) * (successors.ndim - ended.ndim))
        successors = append_row(torch.where(mask, next_terminal, successors), next_terminal)
        embeddings, second = append_row(embeddings, terminal), append_row(second, terminal)
        rewards = append_row(rewards, rewards.new_zeros(()))
        row_weight = append_row(row_weight, torch.any(ended).to(row_weight.dtype))
        ended = append_row(ended, torch.ones_like(ended[0]))
        if permutation is not None:
            permutation = torch.cat([permutation, permutation[:1]])
    rows = torch.arange(len(embeddings), device=embeddings.device)

    def split(values: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        if permutation is None:
            return values[:, None], others[None, :]
        return values, others[permutation]

    row_x, row_y = split(rows, rows)
    weight_x, weight_y = split(row_weight, row_weight)
    # Of the terminal state and itself nothing is to be learned.
    excluded = (row_x == row_y) & ((row_x >= size) | (not self_pairs))
    ended_x, ended_y = split(ended, ended)
    return TensorPairs(
        *split(embeddings, second),
        *split(successors, successors),
        *split(rewards, rewards),
        row_x,
        row_y,
        ended_x & ended_y,
        torch.where(excluded, 0.0, weight_x * weight_y),
    )


def append_row(values: Tensor, row: Tensor) -> Tensor:
    """Return the values with one more row, broadcast to the shape of a row."""
    return torch.cat([values, torch.broadcast_to(row, values.shape[1:])[None]])


def compute_targets(
    pairs: TensorPairs, discount: float, distance: DistanceFunction, terminal_value: float = 0.0
) -> Tensor:
    """Return |r - r'| + discount * distance(successors), without gradient."""
    next_distance = torch.where(
        pairs.both_ended, terminal_value, distance(pairs.next_x, pairs.next_y)
    )
    return (torch.abs(pairs.reward_x - pairs.reward_y) + discount * next_distance).detach()


def compute_error(difference: Tensor, error: str) -> Tensor:
    """Return the Huber function of the difference, quadratic up to 1, or its square."""
    if error == "squared":
        return difference**2
    size = torch.abs(difference)
    return torch.where(size <= 1, difference**2 / 2, size - 0.5)


def compute_mean(values: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted mean; 0 where all weights are 0."""
    total = torch.sum(weight)
    return torch.sum(weight * values) / torch.where(total > 0, total, 1.0)
