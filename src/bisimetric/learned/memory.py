"""The memory that training takes, estimated before anything is allocated."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

import jax

from bisimetric.errors import TableTooLarge
from bisimetric.learned.losses import Kind
from bisimetric.learned.networks.pairs import AnyNetwork
from bisimetric.learned.sources import Source
from bisimetric.learned.training import Recipe
from bisimetric.memory import require_memory

FLOAT = 4
"""Bytes of a number of a network."""


def require_training_memory(
    kind: Kind, source: Source, settings: Recipe, network: Any, seeds: int
) -> None:
    """Raise TableTooLarge where training cannot fit: nothing has been allocated by then.

    The estimate is a lower bound: weights, target weights and Adam's two moments, before and after
    an update, with one gradient; the activations of one batch; and the pairs of one batch.

    Args:
        kind: which distance; named in the error.
        source: what is learned from.
        settings: how it is learned.
        network: the network for the source.
        seeds: how many networks are trained together.
    """
    features = source.scale.features
    weights, widths = count_weights(network, features)
    state = FLOAT * weights * (2 * 4 + 1) * seeds
    free = free_device_memory()
    require_memory(
        f"learned.{kind}: {_several(seeds, 'network')} of {weights:,} weights with the optimiser "
        "state" + (" need" if seeds > 1 else " needs"),
        state,
        "give fewer hidden units, copies or keys",
        free,
    )
    rows, pairs = settings.batch_size(source, network)
    batch = FLOAT * (rows * (features + widths) + pairs)
    require_memory(
        f"learned.{kind}: a batch of {settings.batch:,} needs",
        state + batch,
        "lower the batch of the Settings",
        free,
    )


@contextlib.contextmanager
def name_exhausted_memory(kind: Kind, batch: int) -> Iterator[None]:
    """Raise TableTooLarge where XLA runs out of memory, which an estimate may not foresee."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not re.search("out of memory|RESOURCE_EXHAUSTED", str(error), re.IGNORECASE):
            raise
        raise TableTooLarge(
            f"learned.{kind}: a batch of {batch:,} ran out of memory; lower the batch of the "
            "Settings."
        ) from None


def count_weights(network: Any, features: int) -> tuple[int, int]:
    """The weights of a network, and the sum of the widths of its layers.

    >>> from bisimetric.learned.networks.pairs import PairNetwork
    >>> count_weights(PairNetwork((5,)), 3)
    (41, 6)
    """
    copies = getattr(network, "copies", 1)
    # Copies are listed one by one, and may be too many for that.
    one = network if copies == 1 else dataclasses.replace(network, copies=1)
    shapes = [leaf.shape for leaf in jax.tree.leaves(_shapes(one, features))]
    widths = 0 if isinstance(network, AnyNetwork) else sum(s[0] for s in shapes if len(s) == 1)
    return copies * sum(math.prod(shape) for shape in shapes), copies * widths


def _shapes(network: Any, features: int) -> Any:
    return jax.eval_shape(lambda key: network.init(key, features), jax.random.key(0))


def free_device_memory() -> float | None:
    """What the default device has free; None for a processor, whose memory is the machine's."""
    told = jax.devices()[0].memory_stats() or {}
    return told["bytes_limit"] - told.get("bytes_in_use", 0) if "bytes_limit" in told else None


def _several(count: int, noun: str) -> str:
    return f"{count:,} {noun}s" if count > 1 else f"a {noun}"
