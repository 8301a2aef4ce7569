"""Default hyperparameters, by the kind of distance, the data and the device."""

from __future__ import annotations

import math
from typing import Literal

from bisimetric.learned.config import PairQConfig
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.networks.metric_networks import MAX_COORDINATES, MetricNetwork
from bisimetric.learned.sources import TrainingSource, TransitionSource
from bisimetric.learned.training import select_device
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions

DEFAULT_UPDATES = 24_000
"""Gradient updates of pair Q-learning, unless the small configuration is the default."""

SMALL_UPDATES = 8_000
"""Gradient updates with the small configuration."""

COORDINATE_UPDATES = 20_000
"""Gradient updates with the small configuration for coordinates."""

COORDINATE_CONFIG = PairQConfig(
    MetricNetwork((64, 64, 64, 64), num_groups=16, fourier_features=1, activation="tanh"),
    batch_size=32,
    learning_rate=3e-3,
    num_networks=1,
)
"""The small configuration for observations of at most `MAX_COORDINATES` numbers."""


def choose_config(
    kind: LearnedKind,
    source: MDP | Transitions | TrainingSource,
    device: Literal["cpu", "gpu"] | None = None,
) -> PairQConfig:
    """Return the hyperparameters that `learned.bisimulation` and `learned.on_policy` default to.

    They are those of `PairQConfig()`, except for d^pi from recorded data on a CPU. There an update
    costs as much as its pairs, and d^pi has no maximum over actions to overestimate. So batches
    and embeddings are smaller, the learning rate is larger, and one network is trained.
    Observations of at most 8 numbers get a narrow, deep network with tanh activations and one
    octave of Fourier features: wider networks, ReLU and more octaves fit recorded data better and
    held-out data worse.

    Args:
        kind: "bisimulation" or "on_policy".
        source: what is learned from.
        device: "cpu" or "gpu"; None is the default device of JAX.

    Returns:
        The configuration; `dataclasses.replace` changes some of its fields.

    Raises:
        InputError: when there is no such device.

    >>> data = Transitions([[0.0], [1.0]], [0, 0], [1.0, 0.0], [[1.0], [0.0]], [False, False])
    >>> choose_config("on_policy", data, "cpu").batch_size
    32
    >>> choose_config("bisimulation", data, "cpu") == PairQConfig()
    True
    """
    recorded = isinstance(source, Transitions | TransitionSource)
    if kind != "on_policy" or not recorded or select_device(kind, device).platform != "cpu":
        return PairQConfig()
    if _count_numbers(source) <= MAX_COORDINATES:
        return COORDINATE_CONFIG
    return PairQConfig(
        MetricNetwork((256, 256), num_groups=16, fourier_features=0),
        batch_size=64,
        learning_rate=3e-3,
        num_networks=1,
    )


def choose_updates(config: PairQConfig) -> int:
    """Return the default number of updates of a configuration from `choose_config`.

    >>> choose_updates(PairQConfig()), choose_updates(COORDINATE_CONFIG)
    (24000, 20000)
    """
    if config == PairQConfig():
        return DEFAULT_UPDATES
    return COORDINATE_UPDATES if config == COORDINATE_CONFIG else SMALL_UPDATES


def _count_numbers(source: MDP | Transitions | TrainingSource) -> int:
    """Return the numbers of an observation, without the mark of the terminal state."""
    if isinstance(source, TransitionSource):
        return len(source.scaling.shift)
    if not isinstance(source, Transitions):
        return 0
    if source.observations.ndim == 1 and source.num_states is not None:
        return source.num_states
    return math.prod(source.observations.shape[1:])
