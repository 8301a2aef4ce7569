"""Default hyperparameters, by the kind of distance, the data and the device."""

from __future__ import annotations

import math
from typing import Literal

from numpy.typing import ArrayLike

from bisimetric.learned.config import PairQConfig
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.model_based import ModelBasedConfig
from bisimetric.learned.networks.metric_networks import MAX_COORDINATES, MetricNetwork
from bisimetric.learned.repeated_states import covers_all_actions, describe_randomness
from bisimetric.learned.source_builders import has_id_observations
from bisimetric.learned.sources import TrainingSource, TransitionSource
from bisimetric.learned.training import select_device
from bisimetric.learned.transition_model import ModelSource
from bisimetric.mdp import MDP
from bisimetric.mdp._validation import resolve_policy
from bisimetric.transitions import Transitions

DEFAULT_UPDATES = 24_000
"""Gradient updates of pair Q-learning, unless the small configuration is the default."""

MODEL_UPDATES = 8_000
"""Gradient updates of model-based learning."""

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
    *,
    policy: ArrayLike | None = None,
) -> PairQConfig | ModelBasedConfig:
    """Return the hyperparameters that `learned.bisimulation` and `learned.on_policy` default to.

    They are those of `ModelBasedConfig()` for an MDP that is stochastic, has labels or
    observations, or lacks actions;
    for recorded data whose repeated states have different outcomes; and for d~ from recorded data
    of at most 1,000 states that hold every action in each of them. Ids of states must have every
    action in any case.

    Otherwise they are those of `PairQConfig()`, except for d^pi from recorded data on a CPU. There
    an update costs as much as its pairs, and d^pi has no maximum over actions to overestimate. So
    batches and embeddings are smaller, the learning rate is larger, and one network is trained.
    Observations of at most 8 numbers get a narrow, deep network with tanh activations and one
    octave of Fourier features: wider networks, ReLU and more octaves fit recorded data better and
    held-out data worse.

    Args:
        kind: "bisimulation" or "on_policy".
        source: what is learned from.
        device: "cpu" or "gpu"; None is the default device of JAX.
        policy: that of d^pi; see `learned.on_policy`.

    Returns:
        The configuration; `dataclasses.replace` changes some of its fields.

    Raises:
        InputError: when there is no such device.

    >>> data = Transitions([[0.0], [1.0]], [0, 0], [1.0, 0.0], [[1.0], [0.0]], [False, False])
    >>> choose_config("on_policy", data, "cpu").batch_size
    32
    >>> choose_config("bisimulation", data, "cpu") == PairQConfig()
    True
    >>> coin = MDP([[[0.5, 0.5]], [[0, 1]]], [[0], [1]], discount=0.5)
    >>> choose_config("bisimulation", coin).name
    'model-based'
    """
    if _needs_model(kind, source, policy):
        return ModelBasedConfig()
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


def choose_updates(config: PairQConfig | ModelBasedConfig) -> int:
    """Return the default number of updates of a configuration from `choose_config`.

    >>> choose_updates(PairQConfig()), choose_updates(COORDINATE_CONFIG)
    (24000, 20000)
    """
    if isinstance(config, ModelBasedConfig):
        return MODEL_UPDATES
    if config == PairQConfig():
        return DEFAULT_UPDATES
    return COORDINATE_UPDATES if config == COORDINATE_CONFIG else SMALL_UPDATES


def _needs_model(
    kind: LearnedKind, source: MDP | Transitions | TrainingSource, policy: ArrayLike | None
) -> bool:
    """Return whether pairs of sampled transitions are no targets, and a model can be estimated."""
    if isinstance(source, ModelSource):
        return True
    if isinstance(source, MDP):
        if source.has_labels or source.choice_labels is not None:
            return True
        if source.ground_distance is not None:
            return True
        if kind == "bisimulation":
            return not (source.is_deterministic and source.available is None)
        chain = source.apply_policy(resolve_policy(kind, source, policy, caller="learned"))
        return not chain.is_deterministic
    if not isinstance(source, Transitions) or kind not in ("bisimulation", "on_policy"):
        return False
    random = describe_randomness(kind, source, policy) is not None
    if random and not has_id_observations(source):
        return True
    if not random and (kind == "on_policy" or source.actions.ndim > 1):
        # Recorded episodes give n-step targets for d^pi.
        return False
    return covers_all_actions(kind, source, policy, ModelBasedConfig().max_states)


def _count_numbers(source: MDP | Transitions | TrainingSource) -> int:
    """Return the numbers of an observation, without the mark of the terminal state."""
    if isinstance(source, TransitionSource):
        return len(source.scaling.shift)
    if not isinstance(source, Transitions):
        return 0
    if source.observations.ndim == 1 and source.num_states is not None:
        return source.num_states
    return math.prod(source.observations.shape[1:])
