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
from bisimetric.exact.table import given_policy
from bisimetric.learned import files, making, measures
from bisimetric.learned.distance import Learned
from bisimetric.learned.fitting import fit
from bisimetric.learned.losses import Kind
from bisimetric.learned.settings import Settings
from bisimetric.learned.sources import Source, States
from bisimetric.learned.training import Recipe
from bisimetric.mdp import MDP, checked_discount
from bisimetric.transitions import DISCOUNT, Transitions


def learned(
    kind: Kind,
    source: MDP | Transitions | Source,
    policy: ArrayLike | None,
    *,
    discount: float | None,
    steps: int,
    key: int,
    settings: Recipe | None,
    noise: float,
    most: float,
    truth: Distance | None,
    every: int,
    patience: int | None,
    checkpoint: str | os.PathLike[str] | None,
    resume: str | os.PathLike[str] | None,
    device: str | None,
    share: bool,
) -> Learned:
    """A learned distance of any kind; the arguments are those of `learned.bisimulation`."""
    settings = settings or Settings()
    if isinstance(source, States) and discount is None:
        raise InputError(f"learned.{kind}: a source has no discount of its own; give one.")
    mdp = source if isinstance(source, MDP) else None
    rate = mdp.discount if mdp is not None and discount is None else discount
    rate = DISCOUNT if rate is None else checked_discount(rate)
    where = chosen_device(kind, device)
    began = time.perf_counter()
    with jax.default_device(where):
        fed = making.source_of(kind, source, policy, noise, most)
        measure = None
        if truth is not None:
            if not isinstance(fed, States) or truth.values.shape != (len(fed.points),) * 2:
                raise InputError(
                    f"learned.{kind}: the truth must be a distance of the states of the MDP that "
                    "is learned from."
                )
            network = settings.network_of(fed, kind, rate)
            measure = measures.against(truth.values, network, fed.features())
        done = fit(
            kind,
            fed,
            discount=rate,
            steps=steps,
            keys=[key],
            settings=settings,
            every=every,
            measure=measure,
            patience=patience,
            checkpoint=checkpoint,
            resume=resume,
            share=share,
        )
    made = {
        "method": "learned",
        **files.told(kind, rate, settings, done.keys),
        "reach": settings.reach(fed, done.network),
        "steps": int(done.state.step),
        "seconds": round(time.perf_counter() - began, 3),
        "device": where.platform,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
    }
    if mdp is not None and kind != "bisimulation":
        made["policy"] = np.asarray(given_policy(kind, mdp, policy, how="learned")).tolist()
    names, points = None, None
    if isinstance(fed, States):
        names, points = None if mdp is None else mdp.names, np.asarray(fed.points)
    elif isinstance(source, Transitions) and making.listed_by_ids(source):
        names, points = source.names, np.eye(len(fed.scale.shift), dtype=np.float32)
    return Learned(
        kind,
        rate,
        done.network,
        done.parameters(0),
        fed.scale,
        None if mdp is None else mdp.replace(discount=rate),
        points,
        made,
        {name: each if name == "step" else each[0] for name, each in done.history.items()},
        names,
    )


def chosen_device(kind: Kind, device: str | None) -> Any:
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
