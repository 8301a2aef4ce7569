"""The memory that training takes, estimated before anything is allocated."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

import jax

from bisimetric.errors import InsufficientMemory
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.networks.pairs import FunctionalNetwork
from bisimetric.learned.sources import TrainingSource
from bisimetric.learned.training import Algorithm
from bisimetric.memory import require_memory

BYTES_PER_FLOAT = 4
"""Bytes of a number of a network."""


def require_training_memory(
    kind: LearnedKind, source: TrainingSource, config: Algorithm, network: Any, num_seeds: int
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
    features = source.scaling.num_features
    weights, widths = count_weights(network, features)
    state = BYTES_PER_FLOAT * weights * (2 * 4 + 1) * num_seeds
    free = get_free_device_memory()
    require_memory(
        f"learned.{kind}: {_pluralise(num_seeds, 'network')} of {weights:,} weights with the optimiser "
        "state" + (" need" if num_seeds > 1 else " needs"),
        state,
        "give fewer hidden units, copies or keys",
        free,
    )
    rows, pairs = config.estimate_batch_memory(source, network)
    batch = BYTES_PER_FLOAT * (rows * (features + widths) + pairs)
    require_memory(
        f"learned.{kind}: a batch of {config.batch:,} needs",
        state + batch,
        "lower the batch of the Settings",
        free,
    )


@contextlib.contextmanager
def report_exhausted_memory(kind: LearnedKind, batch: int) -> Iterator[None]:
    """Raise TableTooLarge where XLA runs out of memory, which an estimate may not foresee."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not re.search("out of memory|RESOURCE_EXHAUSTED", str(error), re.IGNORECASE):
            raise
        raise InsufficientMemory(
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
    shapes = [leaf.shape for leaf in jax.tree.leaves(_compute_shapes(one, features))]
    widths = (
        0 if isinstance(network, FunctionalNetwork) else sum(s[0] for s in shapes if len(s) == 1)
    )
    return copies * sum(math.prod(shape) for shape in shapes), copies * widths


def _compute_shapes(network: Any, features: int) -> Any:
    return jax.eval_shape(lambda key: network.init(key, features), jax.random.key(0))


def get_free_device_memory() -> float | None:
    """What the default device has free; None for a processor, whose memory is the machine's."""
    told = jax.devices()[0].memory_stats() or {}
    return told["bytes_limit"] - told.get("bytes_in_use", 0) if "bytes_limit" in told else None


def _pluralise(number: int, noun: str) -> str:
    return f"{number:,} {noun}s" if number > 1 else f"a {noun}"
