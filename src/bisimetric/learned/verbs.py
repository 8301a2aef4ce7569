"""What the learned distances share: a source, a fit, and the network that comes out."""

from __future__ import annotations

import os
import time
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

import bisimetric
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.exact.table import resolve_policy
from bisimetric.learned import files, making, measures
from bisimetric.learned.distance import LearnedDistance
from bisimetric.learned.fitting import fit
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.settings import PairQConfig
from bisimetric.learned.sources import StateSource, TrainingSource
from bisimetric.learned.training import Algorithm
from bisimetric.mdp import MDP, validate_discount
from bisimetric.transitions import DEFAULT_DISCOUNT, Transitions


def learn_distance(
    kind: LearnedKind,
    source: MDP | Transitions | TrainingSource,
    policy: ArrayLike | None,
    *,
    discount: float | None,
    updates: int,
    seed: int,
    config: Algorithm | None,
    noise: float,
    noise_clip: float,
    reference: Distance | None,
    log_every: int,
    patience: int | None,
    checkpoint: str | os.PathLike[str] | None,
    resume: str | os.PathLike[str] | None,
    device: str | None,
    data_parallel: bool,
) -> LearnedDistance:
    """A learned distance of any kind; the arguments are those of `learned.bisimulation`."""
    config = config or PairQConfig()
    if isinstance(source, StateSource) and discount is None:
        raise InputError(f"learned.{kind}: a source has no discount of its own; give one.")
    mdp = source if isinstance(source, MDP) else None
    rate = mdp.discount if mdp is not None and discount is None else discount
    rate = DEFAULT_DISCOUNT if rate is None else validate_discount(rate)
    where = select_device(kind, device)
    began = time.perf_counter()
    with jax.default_device(where):
        fed = making.build_source(kind, source, policy, noise, noise_clip)
        measure = None
        if reference is not None:
            if not isinstance(fed, StateSource) or reference.values.shape != (len(fed.points),) * 2:
                raise InputError(
                    f"learned.{kind}: the truth must be a distance of the states of the MDP that "
                    "is learned from."
                )
            network = config.build_network(fed, kind, rate)
            measure = measures.build_reference_measure(
                reference.values, network, fed.compute_features()
            )
        done = fit(
            kind,
            fed,
            discount=rate,
            updates=updates,
            seeds=[seed],
            config=config,
            log_every=log_every,
            measure=measure,
            patience=patience,
            checkpoint=checkpoint,
            resume=resume,
            data_parallel=data_parallel,
        )
    made = {
        "method": "learned",
        **files.describe_run(kind, rate, config, done.seeds),
        "reach": config.effective_lookahead(fed, done.network),
        "steps": int(done.state.step),
        "seconds": round(time.perf_counter() - began, 3),
        "device": where.platform,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
    }
    if mdp is not None and kind != "bisimulation":
        made["policy"] = np.asarray(resolve_policy(kind, mdp, policy, caller="learned")).tolist()
    names, points = None, None
    if isinstance(fed, StateSource):
        names, points = None if mdp is None else mdp.names, np.asarray(fed.points)
    elif isinstance(source, Transitions) and making.has_id_observations(source):
        names, points = source.names, np.eye(len(fed.scaling.shift), dtype=np.float32)
    return LearnedDistance(
        kind,
        rate,
        done.network,
        done.parameters(0),
        fed.scaling,
        None if mdp is None else mdp.replace(discount=rate),
        points,
        made,
        {name: each if name == "step" else each[0] for name, each in done.history.items()},
        names,
    )


def select_device(kind: LearnedKind, device: str | None) -> Any:
    """The device by its kind, "cpu" or "gpu"; the default where none is asked for."""
    if device is None:
        return jax.devices()[0]
    try:
        return jax.devices(device)[0]
    except (RuntimeError, TypeError, AttributeError):
        have = ", ".join(sorted({each.platform for each in jax.devices()}))
        raise InputError(
            f"learned.{kind}: device {device!r} is not there, only {have}; leave it out, or "
            "pip install 'bisimetric[gpu]'."
        ) from None
