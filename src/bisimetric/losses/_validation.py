"""Checks of arguments that the JAX and the PyTorch losses share; they read shapes only."""

from __future__ import annotations

from typing import Any

from bisimetric.errors import InputError

ERRORS = ("huber", "squared")


def require_batch(
    caller: str,
    embeddings: Any,
    next_embeddings: Any,
    rewards: Any,
    terminated: Any,
    axes: tuple[str, ...] = ("b", "k"),
) -> None:
    """Raise unless the four arrays describe one batch of transitions.

    Args:
        caller: the loss, which begins the message.
        embeddings: (b, ...), with as many axes as `axes` has names.
        next_embeddings: (b, ...).
        rewards: (b,).
        terminated: (b,).
        axes: names of the axes of embeddings, for the message.

    Raises:
        InputError: when a shape does not fit.
    """
    shape = tuple(embeddings.shape)
    if len(shape) != len(axes):
        raise InputError(
            f"has shape {shape} and must have shape ({', '.join(axes)})",
            caller=caller,
            argument="embeddings",
        )
    following = tuple(next_embeddings.shape)
    if following[:1] != shape[:1] or following[-1:] != shape[-1:]:
        raise InputError(
            f"has shape {following} and must begin with the batch size {shape[0]} and end with the "
            f"{shape[-1]} coordinates of the embeddings",
            caller=caller,
            argument="next_embeddings",
        )
    for name, value in (("rewards", rewards), ("terminated", terminated)):
        require_shape(caller, name, value, shape[:1])


def require_options(
    caller: str,
    embeddings: Any,
    permutation: Any = None,
    terminal_embedding: Any = None,
    target_embeddings: Any = None,
) -> None:
    """Raise unless the optional arrays fit the embeddings; None is always right.

    Args:
        caller: the loss, which begins the message.
        embeddings: (b, ..., k).
        permutation: (b,).
        terminal_embedding: (k,), or the shape of one embedding.
        target_embeddings: (b, ..., k).

    Raises:
        InputError: when a shape does not fit.
    """
    shape = tuple(embeddings.shape)
    if permutation is not None:
        require_shape(caller, "permutation", permutation, shape[:1])
    if target_embeddings is not None:
        require_shape(caller, "target_embeddings", target_embeddings, shape)
    if terminal_embedding is not None and tuple(terminal_embedding.shape) != shape[-1:]:
        require_shape(caller, "terminal_embedding", terminal_embedding, shape[1:])


def require_shape(caller: str, name: str, value: Any, shape: tuple[int, ...]) -> None:
    """Raise unless an array has the shape.

    Args:
        caller: the loss, which begins the message.
        name: the argument.
        value: the array.
        shape: the shape that it must have.

    Raises:
        InputError: when it has another one.
    """
    if tuple(value.shape) != tuple(shape):
        raise InputError(
            f"has shape {tuple(value.shape)} and must have shape {tuple(shape)}",
            caller=caller,
            argument=name,
        )


def require_discount(caller: str, discount: Any) -> None:
    """Raise unless the discount is a number in [0, 1).

    Args:
        caller: the loss, which begins the message.
        discount: the discount.

    Raises:
        InputError: when it is out of range.

    >>> require_discount("losses.mico", 1.0)
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: losses.mico: discount is 1.0 and must be at least 0 and below 1.
    """
    if not 0 <= discount < 1:
        raise InputError(
            f"is {discount!r} and must be at least 0 and below 1",
            caller=caller,
            argument="discount",
        )


def require_error(caller: str, error: str) -> None:
    """Raise unless the name of the error function is known.

    Args:
        caller: the loss, which begins the message.
        error: the name.

    Raises:
        InputError: when it is unknown.
    """
    if error not in ERRORS:
        raise InputError(
            f"is {error!r} and must be one of {', '.join(ERRORS)}",
            caller=caller,
            argument="error",
        )
