"""d^pi by a network."""

from __future__ import annotations

import os

from numpy.typing import ArrayLike

from bisimetric.distance import Distance
from bisimetric.learned.distance import LearnedDistance
from bisimetric.learned.sources import TrainingSource
from bisimetric.learned.training import Algorithm
from bisimetric.learned.verbs import learn_distance
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions


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
