"""MICo by a network."""

from __future__ import annotations

import os

from numpy.typing import ArrayLike

from bisimetric.distance import Distance
from bisimetric.learned.distance import Learned
from bisimetric.learned.paper.settings import Settings
from bisimetric.learned.sources import Source
from bisimetric.learned.verbs import learned
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions


def mico(
    source: MDP | Transitions | Source,
    policy: ArrayLike | None = None,
    *,
    discount: float | None = None,
    steps: int = 100_000,
    key: int = 0,
    settings: Settings | None = None,
    noise: float = 0.0,
    most: float = 0.3,
    truth: Distance | None = None,
    every: int = 500,
    patience: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    device: str | None = None,
    share: bool = False,
) -> Learned:
    """An approximation of MICo by a network psi (Castro et al. 2021): two states take their steps
    independently of each other, so that a state may be far from itself.

    T = |r - r'| + discount * beta * psi'(s', t')  for all pairs, a state and itself included.

    Where policy and world are deterministic it is d^pi. The recipe is that of `learned.paper`; the
    arguments are those of `learned.on_policy`.
    """
    return learned(
        "mico",
        source,
        policy,
        discount=discount,
        steps=steps,
        key=key,
        settings=settings or Settings(),
        noise=noise,
        most=most,
        truth=truth,
        every=every,
        patience=patience,
        checkpoint=checkpoint,
        resume=resume,
        device=device,
        share=share,
    )
