"""d~ by a network."""

from __future__ import annotations

import os

from bisimetric.distance import Distance
from bisimetric.learned.distance import LearnedDistance
from bisimetric.learned.sources import TrainingSource
from bisimetric.learned.training import Algorithm
from bisimetric.learned.verbs import learn_distance
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions


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
