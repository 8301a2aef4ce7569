"""Learning d^pi of a game from what an agent made of it, with the paper's settings.

The paper collects and learns in turns: one update every 4 steps of the agent, once 10,000 are
stored. Here all steps are collected before, and update k draws from those that were there by then,
the first 10,000 + 4 k, so that learning is one compiled program.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

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
    Quality,
    fit,
    source_from_transitions,
)
from bisimetric.learned._fit import FitResult
from bisimetric.learned.castro2020 import Castro2020Config
from bisimetric.learned.config import RunOptions
from bisimetric.learned.evaluation import MIN_NORM, compute_distances
from bisimetric.learned.files import describe_run
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.networks.pair_network import PairNetwork
from bisimetric.learned.sources import TransitionSource
from bisimetric.learned.training import select_device
from bisimetric.paper.atari import exact_returns
from bisimetric.transitions import Transitions

KIND: LearnedKind = "on_policy"
DISCOUNT = 0.99
STEPS = 600_000
"""Of the agent."""

INITIAL_STEPS, STEPS_PER_UPDATE = 10_000, 4
"""Steps of the agent that are stored before the first update, and between two of them."""

PAPER_CONFIG = Castro2020Config(
    PairNetwork((16, 16), output="relu"),
    batch=128,
    learning_rate=7.5e-5,
    epsilon=1.5e-4,
    target_update_period=125,
    horizon_growth=0.99,
)
"""The target network is updated every 500 steps of the agent: 125 updates."""

LEARNING_RATES = {"Pong": 1e-3}
"""Games for which the paper found another learning rate better."""

NUM_RECORDS = 120
"""How often a run is measured."""

NUM_EVALUATION_STATES = 256
"""States that a network is judged by on the way."""


def get_config(game: str, config: Castro2020Config = PAPER_CONFIG) -> Castro2020Config:
    """The paper's settings for a game.

    >>> settings_for("Pong").learning_rate, settings_for("Asterix").learning_rate
    (0.001, 7.5e-05)
    """
    return dataclasses.replace(config, learning_rate=LEARNING_RATES.get(game, config.learning_rate))


def build_source(
    data: Transitions,
    *,
    terminal_state: bool = True,
    replay_growth: tuple[int, int] | None = (INITIAL_STEPS, STEPS_PER_UPDATE),
) -> TransitionSource:
    """What networks learn from: features as they are, in half precision, each state once.

    `ends=False` ignores that games end, as the published code did: the last step of a game leads
    to what was seen there, like any other.
    """
    shape = data.observations.shape[1:]
    features = int(np.prod(shape))
    if data.observations.ndim == 1:
        raise InputError(
            "paper.atari: the observations are ids of states and must be the features that an "
            "agent made of its frames, (steps, features)."
        )
    require_memory(
        f"paper.atari: the features of {len(data):,} steps, {features:,} numbers each, need",
        2.0 * 2 * len(data) * (features + 1),
        "collect fewer steps",
    )
    if not terminal_state:
        data = truncate_terminals(data)
    scale = FeatureScaling(
        np.zeros(features), np.ones(features), bool(data.terminated.any()), shape
    )
    return source_from_transitions(
        KIND, data, scaling=scale, half_precision=True, growth=replay_growth
    )


def truncate_terminals(data: Transitions) -> Transitions:
    """The same steps, cut where they ended."""
    nowhere = np.zeros(len(data), np.bool_)
    return dataclasses.replace(data, terminated=nowhere, truncated=data.truncated | data.terminated)


def evaluate_metric(
    metric: LearnedDistance, data: Transitions, num_samples: int = 5_000
) -> Quality:
    """How far a metric is from being one, and from its equation, on some of the steps."""
    some = data.sample(min(num_samples, len(data)), seed=0)
    return metric.quality(some if metric.scaling.has_terminal else truncate_terminals(some))


def learn(
    data: Transitions,
    *,
    config: Castro2020Config = PAPER_CONFIG,
    updates: int | None = None,
    seed: int = 0,
    discount: float = DISCOUNT,
    terminal_state: bool = True,
    replay_growth: tuple[int, int] | None = (INITIAL_STEPS, STEPS_PER_UPDATE),
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    device: str | None = None,
) -> LearnedDistance:
    """d^pi from features that an agent made of its frames, learned as in the paper.

    Args:
        data: steps of the agent in their order; observations are features.
        updates: default: one every 4 steps.
        ends: whether the end of a game is a state of its own; see `source_of`.
        growing: the steps there are at first, and how many more each update; None for all.
        checkpoint, resume: files to keep the run in, and to go on from; see `learned.fit`.

    `history` holds, beside the loss, what `judged` measures.
    """
    count = (
        max(1, len(data) // STEPS_PER_UPDATE)
        if updates is None
        else require_integer(KIND, "updates", updates, 1)
    )
    where = select_device(KIND, device)
    began = time.perf_counter()
    with jax.default_device(where):
        source = build_source(data, terminal_state=terminal_state, replay_growth=replay_growth)
        done = fit_networks(
            source,
            config=config,
            updates=count,
            seeds=[seed],
            discount=discount,
            measure=build_measure(data, source.scaling, config.network, discount),
            checkpoint=checkpoint,
            resume=resume,
        )
    made = {
        "seconds": round(time.perf_counter() - began, 3),
        "device": where.platform,
        "growing": None if replay_growth is None else list(replay_growth),
        "ends": terminal_state,
    }
    return build_distance(done, 0, {**describe_origin(data), **made})


def fit_networks(
    source: TransitionSource,
    *,
    config: Castro2020Config = PAPER_CONFIG,
    updates: int,
    seeds: Sequence[int] = (0,),
    learning_rates: Sequence[float] | None = None,
    discount: float = DISCOUNT,
    measure: Callable[[Any], dict[str, Array]] | None = None,
    num_records: int = NUM_RECORDS,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> FitResult:
    """Networks that learn side by side, one a key and learning rate: `learned.fit`."""
    # Whole periods between two records, so that one program is compiled for all of them.
    every = (
        max(1, updates // num_records // config.target_update_period) * config.target_update_period
    )
    return fit(
        KIND,
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
    """From parameters to the mean distance of some states, and how it fits their exact distances.

    `distance` is the mean over all pairs. Where the futures of the states were recorded,
    `correlation` is that with their exact distances (see `truth`), and `error` the mean error as a
    share of their mean.
    """
    rows, exact = sample_reference(data, discount, seed=seed)
    x = jnp.asarray(scaling(data.observations[rows]))

    def measure(parameters: Any) -> dict[str, Array]:
        d = compute_distances(network, parameters, x, x)
        found = {"distance": d.mean()}
        if exact is not None:
            known = jnp.asarray(exact, jnp.float32)
            one, other = d - d.mean(), known - known.mean()
            spread = jnp.linalg.norm(one) * jnp.linalg.norm(other)
            found["correlation"] = jnp.sum(one * other) / jnp.maximum(spread, MIN_NORM)
            found["error"] = jnp.abs(d - known).mean() / jnp.maximum(known.mean(), MIN_NORM)
        return found

    return measure


def sample_reference(
    data: Transitions, discount: float, *, num_samples: int = NUM_EVALUATION_STATES, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Some steps, and the exact distances of their states; None where too few futures are known."""
    ahead = exact_returns.compute_horizon(discount)
    rng = np.random.default_rng(seed)
    known = exact_returns.find_complete_steps(data.terminated, data.truncated, ahead)
    if len(known) < 2:
        return np.sort(rng.choice(len(data), min(num_samples, len(data)), replace=False)), None
    rows = np.sort(rng.choice(known, min(num_samples, len(known)), replace=False))
    future = exact_returns.gather_futures(data.rewards, data.terminated, rows, ahead)
    return rows, exact_returns.compute_distances(future, discount)


def describe_origin(data: Transitions) -> dict[str, Any]:
    """What a result tells of the data: the game, the agent, and how it was collected."""
    short = ("game", "agent", "clip")
    found = {name: each for name, each in data.metadata.items() if name in short}
    return {**found, "collected": data.metadata}


def build_distance(result: FitResult, index: int, metadata: dict[str, Any]) -> LearnedDistance:
    """One of the networks of a fit as a distance, with what is known of its making."""
    settings = result.config
    if result.learning_rates is not None:
        settings = dataclasses.replace(settings, learning_rate=result.learning_rates[index])  # type: ignore[type-var]
    about = {
        "method": "learned",
        **describe_run(KIND, result.discount, settings, result.seeds[index : index + 1]),
        "updates": int(result.state.step),
        **metadata,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
    }
    return LearnedDistance(
        KIND,
        result.discount,
        result.network,
        result.parameters(index),
        result.source.scaling,
        metadata=about,
        history={
            name: each if name == "step" else each[index] for name, each in result.history.items()
        },
    )
