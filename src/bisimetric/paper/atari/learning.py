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
from bisimetric.errors import InputError, whole
from bisimetric.learned import Learned, Quality, Scale, fit, of_transitions
from bisimetric.learned.distance import symmetric
from bisimetric.learned.files import told
from bisimetric.learned.fitting import Fit
from bisimetric.learned.losses import Kind
from bisimetric.learned.measures import SMALL
from bisimetric.learned.networks.pairs import PairNetwork
from bisimetric.learned.paper import Settings
from bisimetric.learned.sources import Record
from bisimetric.learned.verbs import chosen_device
from bisimetric.memory import require_memory
from bisimetric.paper.atari import truth
from bisimetric.transitions import Transitions

KIND: Kind = "on_policy"
DISCOUNT = 0.99
STEPS = 600_000
"""Of the agent."""

FIRST, EACH = 10_000, 4
"""Steps of the agent that are stored before the first update, and between two of them."""

PAPER = Settings(
    PairNetwork((16, 16), output="relu"),
    batch=128,
    learning_rate=7.5e-5,
    epsilon=1.5e-4,
    period=125,
    rate=0.99,
)
"""The target network is updated every 500 steps of the agent: 125 updates."""

OTHER_RATES = {"Pong": 1e-3}
"""Games for which the paper found another learning rate better."""

RECORDS = 120
"""How often a run is measured."""

JUDGED = 256
"""States that a network is judged by on the way."""


def settings_for(game: str, settings: Settings = PAPER) -> Settings:
    """The paper's settings for a game.

    >>> settings_for("Pong").learning_rate, settings_for("Asterix").learning_rate
    (0.001, 7.5e-05)
    """
    return dataclasses.replace(
        settings, learning_rate=OTHER_RATES.get(game, settings.learning_rate)
    )


def source_of(
    data: Transitions, *, ends: bool = True, growing: tuple[int, int] | None = (FIRST, EACH)
) -> Record:
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
    if not ends:
        data = without_ends(data)
    scale = Scale(np.zeros(features), np.ones(features), bool(data.terminated.any()), shape)
    return of_transitions(KIND, data, scale=scale, half=True, growing=growing)


def without_ends(data: Transitions) -> Transitions:
    """The same steps, cut where they ended."""
    nowhere = np.zeros(len(data), np.bool_)
    return dataclasses.replace(data, terminated=nowhere, truncated=data.truncated | data.terminated)


def judged_by(metric: Learned, data: Transitions, count: int = 5_000) -> Quality:
    """How far a metric is from being one, and from its equation, on some of the steps."""
    some = data.sample(min(count, len(data)), key=0)
    return metric.quality(some if metric.scale.ends else without_ends(some))


def learn(
    data: Transitions,
    *,
    settings: Settings = PAPER,
    updates: int | None = None,
    key: int = 0,
    discount: float = DISCOUNT,
    ends: bool = True,
    growing: tuple[int, int] | None = (FIRST, EACH),
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    device: str | None = None,
) -> Learned:
    """d^pi from features that an agent made of its frames, learned as in the paper.

    Args:
        data: steps of the agent in their order; observations are features.
        updates: default: one every 4 steps.
        ends: whether the end of a game is a state of its own; see `source_of`.
        growing: the steps there are at first, and how many more each update; None for all.
        checkpoint, resume: files to keep the run in, and to go on from; see `learned.fit`.

    `history` holds, beside the loss, what `judged` measures.
    """
    count = max(1, len(data) // EACH) if updates is None else whole(KIND, "updates", updates, 1)
    where = chosen_device(KIND, device)
    began = time.perf_counter()
    with jax.default_device(where):
        source = source_of(data, ends=ends, growing=growing)
        done = fitted(
            source,
            settings=settings,
            updates=count,
            keys=[key],
            discount=discount,
            measure=judged(data, source.scale, settings.network, discount),
            checkpoint=checkpoint,
            resume=resume,
        )
    made = {
        "seconds": round(time.perf_counter() - began, 3),
        "device": where.platform,
        "growing": None if growing is None else list(growing),
        "ends": ends,
    }
    return network(done, 0, {**origin(data), **made})


def fitted(
    source: Record,
    *,
    settings: Settings = PAPER,
    updates: int,
    keys: Sequence[int] = (0,),
    learning_rates: Sequence[float] | None = None,
    discount: float = DISCOUNT,
    measure: Callable[[Any], dict[str, Array]] | None = None,
    records: int = RECORDS,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> Fit:
    """Networks that learn side by side, one a key and learning rate: `learned.fit`."""
    # Whole periods between two records, so that one program is compiled for all of them.
    every = max(1, updates // records // settings.period) * settings.period
    return fit(
        KIND,
        source,
        discount=discount,
        steps=updates,
        keys=keys,
        learning_rates=learning_rates,
        settings=settings,
        every=every,
        measure=measure,
        checkpoint=checkpoint,
        resume=resume,
    )


def judged(
    data: Transitions, scale: Scale, psi: Any, discount: float = DISCOUNT, key: int = 0
) -> Callable[[Any], dict[str, Array]]:
    """From parameters to the mean distance of some states, and how it fits their exact distances.

    `distance` is the mean over all pairs. Where the futures of the states were recorded,
    `correlation` is that with their exact distances (see `truth`), and `error` the mean error as a
    share of their mean.
    """
    rows, exact = some_truth(data, discount, key=key)
    x = jnp.asarray(scale(data.observations[rows]))

    def measured(parameters: Any) -> dict[str, Array]:
        d = symmetric(psi, parameters, x, x)
        found = {"distance": d.mean()}
        if exact is not None:
            known = jnp.asarray(exact, jnp.float32)
            one, other = d - d.mean(), known - known.mean()
            spread = jnp.linalg.norm(one) * jnp.linalg.norm(other)
            found["correlation"] = jnp.sum(one * other) / jnp.maximum(spread, SMALL)
            found["error"] = jnp.abs(d - known).mean() / jnp.maximum(known.mean(), SMALL)
        return found

    return measured


def some_truth(
    data: Transitions, discount: float, *, count: int = JUDGED, key: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Some steps, and the exact distances of their states; None where too few futures are known."""
    ahead = truth.horizon(discount)
    rng = np.random.default_rng(key)
    known = truth.known(data.terminated, data.truncated, ahead)
    if len(known) < 2:
        return np.sort(rng.choice(len(data), min(count, len(data)), replace=False)), None
    rows = np.sort(rng.choice(known, min(count, len(known)), replace=False))
    future = truth.futures(data.rewards, data.terminated, rows, ahead)
    return rows, truth.distances(future, discount)


def origin(data: Transitions) -> dict[str, Any]:
    """What a result tells of the data: the game, the agent, and how it was collected."""
    short = ("game", "agent", "clip")
    found = {name: each for name, each in data.made.items() if name in short}
    return {**found, "collected": data.made}


def network(done: Fit, which: int, made: dict[str, Any]) -> Learned:
    """One of the networks of a fit as a distance, with what is known of its making."""
    settings = done.settings
    if done.learning_rates is not None:
        settings = dataclasses.replace(settings, learning_rate=done.learning_rates[which])  # type: ignore[type-var]
    about = {
        "method": "learned",
        **told(KIND, done.discount, settings, done.keys[which : which + 1]),
        "steps": int(done.state.step),
        **made,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
    }
    return Learned(
        KIND,
        done.discount,
        done.network,
        done.parameters(which),
        done.source.scale,
        made=about,
        history={
            name: each if name == "step" else each[which] for name, each in done.history.items()
        },
    )
