"""MICo by a network."""

from __future__ import annotations

import os

from numpy.typing import ArrayLike

from bisimetric.distance import Distance
from bisimetric.learned.distance import LearnedDistance
from bisimetric.learned.paper.settings import Castro2020Config
from bisimetric.learned.sources import TrainingSource
from bisimetric.learned.verbs import learn_distance
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions


def mico(
    source: MDP | Transitions | TrainingSource,
    policy: ArrayLike | None = None,
    *,
    discount: float | None = None,
    updates: int = 100_000,
    seed: int = 0,
    config: Castro2020Config | None = None,
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
    """An approximation of MICo by a network psi (Castro et al. 2021): two states take their steps
    independently of each other, so that a state may be far from itself.

    T = |r - r'| + discount * beta * psi'(s', t')  for all pairs, a state and itself included.

    Where policy and world are deterministic it is d^pi. The recipe is that of `learned.paper`; the
    arguments are those of `learned.on_policy`.
    """
    return learn_distance(
        "mico",
        source,
        policy,
        discount=discount,
        updates=updates,
        seed=seed,
        config=config or Castro2020Config(),
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
