"""What the learned distances share: a source, a fit, and the network that comes out.

d~ by a network.

d^pi by a network.
"""

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
from bisimetric.learned import build_sources, evaluation, files
from bisimetric.learned._fit import fit
from bisimetric.learned.config import PairQConfig
from bisimetric.learned.learned_distance import LearnedDistance
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.sources import StateSource, TrainingSource
from bisimetric.learned.training import Algorithm
from bisimetric.mdp import MDP, validate_discount
from bisimetric.mdp._validation import resolve_policy
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
        fed = build_sources.build_source(kind, source, policy, noise, noise_clip)
        measure = None
        if reference is not None:
            if not isinstance(fed, StateSource) or reference.values.shape != (len(fed.points),) * 2:
                raise InputError(
                    f"learned.{kind}: the truth must be a distance of the states of the MDP that "
                    "is learned from."
                )
            network = config.build_network(fed, kind, rate)
            measure = evaluation.build_reference_measure(
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
    elif isinstance(source, Transitions) and build_sources.has_id_observations(source):
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


def bisimulation(
    source: MDP | Transitions | TrainingSource,
    *,
    discount: float | None = None,
    updates: int = 24_000,
    seed: int = 0,
    config: Algorithm | None = None,
    noise: float = 0.0,
    noise_clip: float = 0.3,
    reference: Distance | None = None,
    log_every: int = 500,
    patience: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    device: str | None = None,
    data_parallel: bool = False,
) -> LearnedDistance:
    """An approximation of the bisimulation metric d~ by a network psi.

    d~ is the optimal value of two copies of the world that are walked together (Ferns & Precup
    2014). A step draws a batch of transitions and, for all pairs with the same action a, moves

    psi_a(s, t) towards |r - r'| + discount * max_b psi'_b(s', t'),

    psi' the network as it was `period` steps ago at most; d(s, t) = max_a psi_a(s, t). For an MDP
    of up to some hundred states, without noise, a target takes ten steps of the world before it
    asks psi'; see `Settings.ahead`. Two networks learn side by side: one chooses b, the other tells
    its value. The default network is a pseudometric by construction. The end of an episode is a
    state like any other. Nothing is proven of how far it is from d~: see `Learned.quality`.
    `learned.paper` learns as Castro (2020) does.

    Args:
        source: a deterministic MDP, whose states are its features, else their positions, else one
            feature each; or transitions, whose observations are standardised.
        discount: default: that of the MDP, and for data 0.99.
        steps: how many, those before `resume` included.
        key: of the weights and the batches; the same key gives the same run.
        settings: the network and how it learns; see `Settings`.
        noise: for an MDP, the standard deviation of what is added to the features of a state and
            its successor alike, at most `most`: a world of continuous states.
        truth: the exact distance, to measure errors against; they go into `history`.
        every: steps between two records of the history.
        patience: stop when the loss has not become smaller in so many records, once the horizon is
            nearly whole.
        checkpoint: a file to keep the run in, each minute and at the end.
        resume: such a file to go on from.
        device: "cpu" or "gpu"; default: the best there is.
        share: whether all devices of that kind take a batch each; every step follows their mean.

    >>> from bisimetric import worlds
    >>> from bisimetric.learned import MetricNetwork, Settings
    >>> quick = Settings(MetricNetwork((16,), groups=4, size=2), batch=32, warm_up=100)
    >>> mdp = worlds.load("pessimism", discount=0.5)
    >>> d = bisimulation(mdp, steps=1_000, key=1, settings=quick)
    >>> round(d("s", "t"), 1)
    2.0
    """
    return learn_distance(
        "bisimulation",
        source,
        None,
        discount=discount,
        updates=updates,
        seed=seed,
        config=config,
        noise=noise,
        noise_clip=noise_clip,
        reference=reference,
        log_every=log_every,
        patience=patience,
        checkpoint=checkpoint,
        resume=resume,
        device=device,
        data_parallel=data_parallel,
    )


def on_policy(
    source: MDP | Transitions | TrainingSource,
    policy: ArrayLike | None = None,
    *,
    discount: float | None = None,
    updates: int = 24_000,
    seed: int = 0,
    config: Algorithm | None = None,
    noise: float = 0.0,
    noise_clip: float = 0.3,
    reference: Distance | None = None,
    log_every: int = 500,
    patience: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    device: str | None = None,
    data_parallel: bool = False,
) -> LearnedDistance:
    """An approximation of the on-policy metric d^pi by a network psi.

    Like `learned.bisimulation`, but that all pairs of a batch are compared, whatever their
    actions, which are those of the policy, so that there is nothing to choose:

    psi(s, t) moves towards |r - r'| + discount * psi'(s', t')

    Args:
        policy: (S,) actions. For an MDP the default is its own, or the only one there is. For data
            without one, all of it follows the policy; with one, other steps are left out.

    The other arguments are those of `learned.bisimulation`.
    """
    return learn_distance(
        "on_policy",
        source,
        policy,
        discount=discount,
        updates=updates,
        seed=seed,
        config=config,
        noise=noise,
        noise_clip=noise_clip,
        reference=reference,
        log_every=log_every,
        patience=patience,
        checkpoint=checkpoint,
        resume=resume,
        device=device,
        data_parallel=data_parallel,
    )
