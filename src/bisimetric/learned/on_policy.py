"""d^pi by a network."""

from __future__ import annotations

import os

from numpy.typing import ArrayLike

from bisimetric.distance import Distance
from bisimetric.learned.distance import Learned
from bisimetric.learned.sources import Source
from bisimetric.learned.training import Recipe
from bisimetric.learned.verbs import learned
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions


def on_policy(
    source: MDP | Transitions | Source,
    policy: ArrayLike | None = None,
    *,
    discount: float | None = None,
    steps: int = 24_000,
    key: int = 0,
    settings: Recipe | None = None,
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
    """An approximation of the on-policy metric d^pi by a network psi.

    Like `learned.bisimulation`, but that all pairs of a batch are compared, whatever their
    actions, which are those of the policy, so that there is nothing to choose:

    psi(s, t) moves towards |r - r'| + discount * psi'(s', t')

    Args:
        policy: (S,) actions. For an MDP the default is its own, or the only one there is. For data
            without one, all of it follows the policy; with one, other steps are left out.

    The other arguments are those of `learned.bisimulation`.
    """
    return learned(
        "on_policy",
        source,
        policy,
        discount=discount,
        steps=steps,
        key=key,
        settings=settings,
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
