"""How pairs of transitions are chosen. All of them reach the same table, some of them sooner."""

from __future__ import annotations

import dataclasses
import hashlib
import numbers
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from bisimetric.errors import InputError

SamplerName = Literal["uniform", "trajectories", "all-actions", "prioritised"]


@dataclasses.dataclass(frozen=True, eq=False)
class Uniform:
    """The paper's: any transition, and any other with the same action.

    `weights` say how often each is drawn: (S, A) for an MDP, (n,) for n transitions, where equal
    ones add up. Without them, all different ones are drawn alike, however often they were seen.
    The theorem asks that all weights are above 0.
    """

    weights: ArrayLike | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Trajectories:
    """What an agent meets, in its order, each step with an earlier one of the same action.

    In an MDP a walk follows `policy`, (S,) actions or (S, A) probabilities, by default any
    action; it starts anew in any state with probability `restart` a step. A data set is read in
    its own order, again and again.
    """

    policy: ArrayLike | None = None
    restart: float = 0.01


@dataclasses.dataclass(frozen=True, eq=False)
class AllActions:
    """Any two states, all of their actions at once (Comanici, Panangaden & Precup 2012).

    Each action counts as one step. `weights` as in `Uniform`; a state has those of its actions.
    """

    weights: ArrayLike | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Prioritised:
    """The pairs that would rise, in proportion to how much they would.

    After an entry has changed, all pairs that lead to it are ranked anew by the change that it
    brings to them (prioritised sweeping, Moore & Atkeson 1993). A share `explore` of the draws
    takes any pair, so that all are drawn for ever.
    """

    explore: float = 0.1


Sampler = Uniform | Trajectories | AllActions | Prioritised
SAMPLERS: dict[SamplerName, type[Any]] = {
    "uniform": Uniform,
    "trajectories": Trajectories,
    "all-actions": AllActions,
    "prioritised": Prioritised,
}


def get_sampler_name(sampler: Sampler) -> SamplerName:
    """What a sampler is called, also on the command line.

    >>> name_of(AllActions())
    'all-actions'
    """
    return next(name for name, each in SAMPLERS.items() if isinstance(sampler, each))


def describe_sampler(sampler: Sampler) -> str:
    """A sampler in words, its options included; arrays by a fingerprint.

    >>> described(Trajectories(restart=0.1))
    'trajectories(restart=0.1)'
    """
    options = []
    for field in dataclasses.fields(sampler):
        value = getattr(sampler, field.name)
        if value is not None and not isinstance(value, numbers.Real):
            value = hashlib.sha256(np.asarray(value, np.float64).tobytes()).hexdigest()[:8]
        if value is not None:
            options.append(f"{field.name}={value}")
    return f"{get_sampler_name(sampler)}({', '.join(options)})"


def validate_sampler(kind: str, sampler: Sampler | None) -> Sampler:
    """The sampler, `Uniform()` where there is none, or a clear error."""
    if sampler is None:
        return Uniform()
    if not isinstance(sampler, Sampler):
        raise InputError(
            f"sampled.{kind}: sampler is {sampler!r} and must be one such as sampled.Uniform()."
        )
    for name in ("restart", "explore"):
        share = getattr(sampler, name, 1.0)
        if not (isinstance(share, numbers.Real) and 0 < float(share) <= 1):
            raise InputError(
                f"sampled.{kind}: {name} is {share!r} and must be above 0 and at most 1."
            )
    return sampler
