"""Learn d^pi of a game from the features of an agent, with any algorithm of the library.

Games and agents are deterministic unless actions are sampled or sticky. Then the exact distance of
two recorded frames is the discounted sum of the reward gaps after them. A network can be fitted to
these distances (`RECORDED_RETURNS`), or predict the rewards (`REWARD_SEQUENCE`). `PAPER_CONFIG` is
the paper's algorithm.

The paper interleaves collection and learning: one update every 4 agent steps once 10,000 are
stored. Here all steps are collected first, and update k samples from the first 10,000 + 4 k, so
that training is one compiled program.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

import bisimetric
from bisimetric._memory import require_memory
from bisimetric.errors import InputError, require_integer
from bisimetric.learned import (
    FeatureScaling,
    LearnedDistance,
    MetricNetwork,
    PairQConfig,
    PairTDConfig,
    Quality,
    RewardSequenceConfig,
    RewardSequenceNetwork,
    fit,
    reduced_mico,
    source_from_transitions,
)
from bisimetric.learned._fit import FitResult
from bisimetric.learned.castro2020 import Castro2020Config
from bisimetric.learned.config import RunOptions
from bisimetric.learned.evaluation import MIN_NORM, compute_distances
from bisimetric.learned.files import describe_run
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.networks.pair_network import PairNetwork
from bisimetric.learned.reward_sequence import MAX_REWARD_VALUES
from bisimetric.learned.sources import TransitionSource
from bisimetric.learned.training import Algorithm, select_device
from bisimetric.transitions import Transitions
from bisimetric_atari.paper import exact_returns

KIND: LearnedKind = "on_policy"
DISCOUNT = 0.99
STEPS = 600_000
"""Agent steps."""

INITIAL_STEPS, STEPS_PER_UPDATE = 10_000, 4
"""Agent steps before the first update, and per update."""

PAPER_CONFIG = Castro2020Config(
    PairNetwork((16, 16), output_activation="relu"),
    batch_size=128,
    learning_rate=7.5e-5,
    epsilon=1.5e-4,
    target_update_period=125,
    horizon_growth=0.99,
)
"""The target network is synchronised every 500 agent steps: 125 updates."""

LEARNING_RATES = {"Pong": 1e-3}
"""Learning rates of the paper that differ from its default, by game."""

RECORDED_RETURNS = PairQConfig(
    MetricNetwork((512, 512), num_groups=64, group_size=4, fourier_features=0),
    batch_size=256,
    target_update_period=500,
    num_networks=4,
    lookahead=math.inf,
)
"""Regression on the distances of recorded futures, by the mean of networks that are pseudometrics.

The mean of four generalises better to other games than one network; see the report on Atari.
"""

REWARD_SEQUENCE = RewardSequenceConfig(
    RewardSequenceNetwork((512, 512, 128), fourier_features=0), batch_size=256, num_networks=4
)
"""Prediction of the rewards after a state, by the mean of four networks.

The last hidden layer is narrow, since each of its units has 917 weights or more.
"""

AlgorithmName = Literal[
    "reward-sequence", "recorded-returns", "pair-q", "castro2020", "mico", "reduced-mico"
]
DEFAULT_ALGORITHM: AlgorithmName = "reward-sequence"
DEFAULT_UPDATES = {
    "reward-sequence": 20_000,
    "recorded-returns": 60_000,
    "pair-q": 24_000,
    "mico": 24_000,
}
"""Gradient updates by algorithm; castro2020 takes one per 4 agent steps."""

NUM_RECORDS = 120
"""Records per run."""

BLOCK_ROWS = 65_536
"""Rows whose moments are computed at once."""

NUM_EVALUATION_STATES = 256
"""States on which a network is evaluated during training."""


def get_config(game: str, config: Castro2020Config = PAPER_CONFIG) -> Castro2020Config:
    """Return the paper's hyperparameters for a game.

    >>> get_config("Pong").learning_rate, get_config("Asterix").learning_rate
    (0.001, 7.5e-05)
    """
    return dataclasses.replace(config, learning_rate=LEARNING_RATES.get(game, config.learning_rate))


def build_config(name: AlgorithmName, game: str) -> Algorithm:
    """Return the default hyperparameters of an algorithm.

    >>> build_config("recorded-returns", "Pong").lookahead
    inf
    """
    if name == "castro2020":
        return get_config(game)
    if name == "reward-sequence":
        return REWARD_SEQUENCE
    if name == "recorded-returns":
        return RECORDED_RETURNS
    if name == "pair-q":
        return dataclasses.replace(
            RECORDED_RETURNS, batch_size=128, num_networks=1, lookahead=10, target_update_period=25
        )
    return PairTDConfig(batch_size=128)


def choose_algorithm(data: Transitions) -> AlgorithmName:
    """Return the default algorithm for data.

    `reward-sequence` has the smallest relative errors in the included games, see the report on
    Atari. It is for few different rewards, such as clipped ones; `recorded-returns` is for all
    others. `mico` is consistent where actions are sampled or sticky.
    """
    if is_stochastic(data):
        return "mico"
    has_few_rewards = len(np.union1d(data.rewards, 0.0)) <= MAX_REWARD_VALUES
    return DEFAULT_ALGORITHM if has_few_rewards else "recorded-returns"


def count_updates(name: AlgorithmName, data: Transitions) -> int:
    """Return the default number of gradient updates of an algorithm."""
    if name == "castro2020":
        return max(1, len(data) // STEPS_PER_UPDATE)
    return DEFAULT_UPDATES[name.removeprefix("reduced-")]


def is_stochastic(data: Transitions) -> bool:
    """Return whether the metadata record sampled or sticky actions."""
    metadata = data.metadata
    return bool(metadata.get("sampled_actions") or metadata.get("repeat_action_probability"))


def build_source(
    data: Transitions,
    *,
    kind: LearnedKind = KIND,
    terminal_state: bool = True,
    replay_growth: tuple[int, int] | None = (INITIAL_STEPS, STEPS_PER_UPDATE),
    standardise: bool = False,
) -> TransitionSource:
    """Build the source of training pairs: features in half precision, each state once.

    `terminal_state=False` ignores terminations, as the published code did: the last step of a
    game leads to the final observation, like any other.
    """
    shape = data.observations.shape[1:]
    features = int(np.prod(shape))
    if data.observations.ndim == 1:
        raise InputError(
            "paper: the observations are state indices and must be the features of an agent, "
            "(steps, features)."
        )
    require_memory(
        f"paper: the features of {len(data):,} steps, {features:,} numbers per step, need",
        2.0 * 2 * len(data) * (features + 1),
        "collect fewer steps",
    )
    if not terminal_state:
        data = truncate_terminals(data)
    shift, width = np.zeros(features), np.ones(features)
    if standardise:
        shift, width = _compute_moments(data.observations.reshape(len(data), features))
    scaling = FeatureScaling(shift, width, bool(data.terminated.any()), shape)
    return source_from_transitions(
        kind, data, scaling=scaling, half_precision=True, growth=replay_growth
    )


def _compute_moments(x: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the mean and the standard deviation of each column; 1 for a constant one."""
    blocks = range(0, len(x), BLOCK_ROWS)
    mean = sum(x[i : i + BLOCK_ROWS].sum(axis=0, dtype=np.float64) for i in blocks) / len(x)
    squares = sum(((x[i : i + BLOCK_ROWS] - mean) ** 2).sum(axis=0) for i in blocks) / len(x)
    deviation = np.sqrt(np.asarray(squares, np.float64))
    return np.asarray(mean, np.float64), np.where(deviation > 0, deviation, 1.0)


def truncate_terminals(data: Transitions) -> Transitions:
    """Return the transitions with terminations as truncations."""
    none = np.zeros(len(data), np.bool_)
    return dataclasses.replace(data, terminated=none, truncated=data.truncated | data.terminated)


def evaluate_metric(
    metric: LearnedDistance, data: Transitions, num_samples: int = 5_000
) -> Quality:
    """Measure violations of the metric axioms and of the Bellman equation on sampled steps."""
    sample = data.sample(min(num_samples, len(data)), seed=0)
    return metric.quality(sample if metric.scaling.has_terminal else truncate_terminals(sample))


def learn(
    data: Transitions,
    *,
    config: Algorithm = PAPER_CONFIG,
    updates: int | None = None,
    seed: int = 0,
    discount: float = DISCOUNT,
    terminal_state: bool = True,
    replay_growth: tuple[int, int] | None = (INITIAL_STEPS, STEPS_PER_UPDATE),
    reduce: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    device: str | None = None,
) -> LearnedDistance:
    """Learn a distance from the features of an agent; by default with the paper's algorithm.

    `history` of the result holds the loss and the values of `build_measure`.

    Args:
        data: transitions of the agent in their order; observations are its features.
        config: the algorithm, its network and hyperparameters: `PAPER_CONFIG`, `REWARD_SEQUENCE`,
            `RECORDED_RETURNS`, or any `Castro2020Config`, `RewardSequenceConfig`, `PairQConfig`
            (d^pi) or `PairTDConfig` (MICo).
        updates: gradient updates; default: one per 4 agent steps.
        seed: of weights and batches.
        discount: per agent step.
        terminal_state: whether the end of a game is an absorbing terminal state.
        replay_growth: for a `Castro2020Config`, the transitions available at the first update, and
            how many more per update; None for all of them.
        reduce: whether to return reduced MICo, for a `PairTDConfig`.
        checkpoint: file for checkpoints.
        resume: checkpoint to continue from.
        device: platform such as "cpu" or "gpu"; default: that of JAX.

    Returns:
        The learned distance.

    Raises:
        InputError: if the observations are no features, or an argument is out of range.
        Diverged: if the loss is no longer finite, or all distances are 0.
        InsufficientMemory: if the features do not fit into memory.
    """
    num_updates = (
        max(1, len(data) // STEPS_PER_UPDATE)
        if updates is None
        else require_integer("paper", "updates", updates, 1)
    )
    kind: LearnedKind = "mico" if isinstance(config, PairTDConfig) else KIND
    is_paper = isinstance(config, Castro2020Config)
    if not is_paper:
        replay_growth = None
    jax_device = select_device(kind, device)
    start_time = time.perf_counter()
    with jax.default_device(jax_device):
        source = build_source(
            data,
            kind=kind,
            terminal_state=terminal_state,
            replay_growth=replay_growth,
            standardise=not is_paper,
        )
        network = config.build_network(source, kind, discount)
        result = fit_networks(
            source,
            kind=kind,
            config=config,
            updates=num_updates,
            seeds=[seed],
            discount=discount,
            measure=build_measure(data, source.scaling, network, discount),
            checkpoint=checkpoint,
            resume=resume,
        )
    details = {
        "seconds": round(time.perf_counter() - start_time, 3),
        "device": jax_device.platform,
        "growing": None if replay_growth is None else list(replay_growth),
        "ends": terminal_state,
    }
    distance = build_distance(result, 0, {**describe_origin(data), **details}, kind)
    return reduced_mico(distance) if reduce else distance


def fit_networks(
    source: TransitionSource,
    *,
    kind: LearnedKind = KIND,
    config: Algorithm = PAPER_CONFIG,
    updates: int,
    seeds: Sequence[int] = (0,),
    learning_rates: Sequence[float] | None = None,
    discount: float = DISCOUNT,
    measure: Callable[[Any], dict[str, Array]] | None = None,
    num_records: int = NUM_RECORDS,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> FitResult:
    """Train networks in parallel, one per seed and learning rate, with `learned.fit`."""
    # Multiples of the target update period, so that one compiled program serves all intervals.
    every = (
        max(1, updates // num_records // config.target_update_period) * config.target_update_period
    )
    return fit(
        kind,
        source,
        discount=discount,
        updates=updates,
        seeds=seeds,
        learning_rates=learning_rates,
        config=config,
        measure=measure,
        options=RunOptions(log_every=every, checkpoint=checkpoint, resume=resume),
    )


def build_measure(
    data: Transitions,
    scaling: FeatureScaling,
    network: Any,
    discount: float = DISCOUNT,
    seed: int = 0,
) -> Callable[[Any], dict[str, Array]]:
    """Return a function from parameters to measures on sampled states.

    `distance` is the mean distance of all pairs. Where the futures of the states are recorded,
    `correlation` is the correlation with their exact distances (see `exact_returns`), and `error`
    the mean absolute error relative to their mean.
    """
    rows, exact = sample_reference(data, discount, seed=seed)
    x = jnp.asarray(scaling(data.observations[rows]))

    def measure(parameters: Any) -> dict[str, Array]:
        d = compute_distances(network, parameters, x, x)
        measures = {"distance": d.mean()}
        if exact is not None:
            reference = jnp.asarray(exact, jnp.float32)
            a, b = d - d.mean(), reference - reference.mean()
            norms = jnp.linalg.norm(a) * jnp.linalg.norm(b)
            measures["correlation"] = jnp.sum(a * b) / jnp.maximum(norms, MIN_NORM)
            error = jnp.abs(d - reference).mean()
            measures["error"] = error / jnp.maximum(reference.mean(), MIN_NORM)
        return measures

    return measure


def sample_reference(
    data: Transitions, discount: float, *, num_samples: int = NUM_EVALUATION_STATES, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Sample steps; return their exact distances too.

    These are None if too few futures are recorded, or actions are sampled or sticky.
    """
    horizon = exact_returns.compute_horizon(discount)
    rng = np.random.default_rng(seed)
    complete = exact_returns.find_complete_steps(data.terminated, data.truncated, horizon)
    if len(complete) < 2 or is_stochastic(data):
        return np.sort(rng.choice(len(data), min(num_samples, len(data)), replace=False)), None
    rows = np.sort(rng.choice(complete, min(num_samples, len(complete)), replace=False))
    futures = exact_returns.gather_futures(data.rewards, data.terminated, rows, horizon)
    return rows, exact_returns.compute_distances(futures, discount)


def describe_origin(data: Transitions) -> dict[str, Any]:
    """Return game, agent and reward clipping of the data, and all its metadata."""
    keys = {"game": "game", "agent": "agent", "clip_rewards": "clip"}
    origin = {key: data.metadata[name] for name, key in keys.items() if name in data.metadata}
    return {**origin, "collected": data.metadata}


def build_distance(
    result: FitResult, index: int, metadata: dict[str, Any], kind: LearnedKind = KIND
) -> LearnedDistance:
    """Build the distance of one network of a fit, with its metadata and history."""
    config = result.config
    if result.learning_rates is not None:
        config = dataclasses.replace(config, learning_rate=result.learning_rates[index])  # type: ignore[type-var]
    header = {
        "method": "learned",
        **describe_run(kind, result.discount, config, result.seeds[index : index + 1]),
        "updates": int(result.state.step),
        **metadata,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
    }
    return LearnedDistance(
        kind,
        result.discount,
        result.network,
        result.parameters(index),
        result.source.scaling,
        metadata=header,
        history={
            name: curve if name == "step" else curve[index]
            for name, curve in result.history.items()
        },
    )
