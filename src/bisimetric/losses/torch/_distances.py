"""Distances of embeddings: functions of (..., k) and (..., k) that reduce the last axis.

Leading axes are broadcast: `distance(x[:, None], y[None, :])` compares all x with all y.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bisimetric.errors import InputError
from bisimetric.losses.torch._import import torch

if TYPE_CHECKING:
    from torch import Tensor


DistanceFunction = Callable[[Any, Any], Any]

MIN_NORM = 1e-12
"""Added to a squared norm before dividing by the norm: the zero vector stays 0."""


def l1_distance(x: Tensor, y: Tensor) -> Tensor:
    """Compute the L1 distance sum_i |x_i - y_i|.

    The twin of `bisimetric.losses.l1_distance`: equal arguments and values, for tensors.
    """
    return torch.sum(torch.abs(x - y), dim=-1)


def euclidean_distance(x: Tensor, y: Tensor) -> Tensor:
    """Compute the Euclidean distance, with gradient 0 where x = y.

    The twin of `bisimetric.losses.euclidean_distance`: equal arguments and values, for tensors.
    """
    return safe_sqrt(torch.sum((x - y) ** 2, dim=-1))


def metric_distance(x: Tensor, y: Tensor, group_size: int = 1) -> Tensor:
    """Compute the mean over groups of coordinates of the largest difference in a group.

    The twin of `bisimetric.losses.metric_distance`: equal arguments and values, for tensors.
    """
    size = x.shape[-1]
    if group_size < 1 or size % group_size:
        raise InputError(
            f"is {group_size} and must divide the {size} coordinates of the embeddings",
            caller="losses.metric_distance",
            argument="group_size",
        )
    difference = torch.abs(x - y)
    groups = difference.reshape(*difference.shape[:-1], size // group_size, group_size)
    return torch.mean(torch.amax(groups, dim=-1), dim=-1)


def mico_distance(x: Tensor, y: Tensor, beta: float = 0.1) -> Tensor:
    """Compute MICo's parametrisation (|x|^2 + |y|^2) / 2 + beta * angle(x, y).

    The twin of `bisimetric.losses.mico_distance`: equal arguments and values, for tensors.
    """
    norms = torch.sum(x**2, dim=-1) + torch.sum(y**2, dim=-1)
    return norms / 2 + beta * compute_angle(x, y)


def rap_distance(x: Tensor, y: Tensor, beta: float = 1e-6) -> Tensor:
    """Compute RAP's parametrisation |x|^2 + |y|^2 + beta * angle(x, y).

    The twin of `bisimetric.losses.rap_distance`: equal arguments and values, for tensors.
    """
    norms = torch.sum(x**2, dim=-1) + torch.sum(y**2, dim=-1)
    return norms + beta * compute_angle(x, y)


def cosine_distance(x: Tensor, y: Tensor) -> Tensor:
    """Compute SimSR's distance 1 - cos(x, y), between 0 and 2.

    The twin of `bisimetric.losses.cosine_distance`: equal arguments and values, for tensors.
    """
    return 1 - torch.sum(normalise(x) * normalise(y), dim=-1)


def inner_product(x: Tensor, y: Tensor) -> Tensor:
    """Compute the kernel sum_i x_i y_i.

    The twin of `bisimetric.losses.inner_product`: equal arguments and values, for tensors.
    """
    return torch.sum(x * y, dim=-1)


def compute_angle(x: Tensor, y: Tensor) -> Tensor:
    """Return the angle of x and y by Kahan's formula, which keeps small angles, unlike arccos."""
    u, v = normalise(x), normalise(y)
    return 2 * torch.atan2(euclidean_distance(u, v), euclidean_distance(u, -v))


def normalise(x: Tensor) -> Tensor:
    """Return x / |x|; the zero vector stays 0."""
    return x / torch.sqrt(torch.sum(x**2, dim=-1, keepdim=True) + MIN_NORM)


def safe_sqrt(z: Tensor) -> Tensor:
    """Return the square root; at 0 the gradient is 0."""
    positive = z > 0
    return torch.where(positive, torch.sqrt(torch.where(positive, z, 1.0)), 0.0)
