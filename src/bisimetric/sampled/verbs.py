"""What both sampled distances share: a source, a run on it, and when it stops."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bisimetric.distance import Distance, Kind
from bisimetric.errors import InputError
from bisimetric.mdp import MDP, checked_discount
from bisimetric.sampled import files, samplers, sources
from bisimetric.sampled.run import Run
from bisimetric.sampled.samplers import Sampler
from bisimetric.sampled.stopping import Limits, finished
from bisimetric.transitions import DISCOUNT, Transitions


def sampled(
    kind: Kind,
    source: MDP | Transitions | Iterable[Transitions],
    policy: ArrayLike | None,
    discount: float | None,
    sampler: Sampler | None,
    key: int,
    limits: Limits,
) -> Distance:
    """A sampled distance of either kind."""
    given: dict[str, Any] = {"policy": policy, "discount": discount, "sampler": sampler, "key": key}
    stream: Iterator[Transitions] = iter(())
    arrived = 0
    if isinstance(source, MDP | Transitions) or not isinstance(source, Iterable):
        limits = limits.checked(kind, endless=False)
        run = Run(kind, source, **given)
        limits.refuse_endless(kind, run.sampler)
    else:
        limits = limits.checked(kind, endless=True)
        stream = _chunks(kind, source)
        first, arrived = _begun(kind, stream, limits.resume, **given)
        run = Run(kind, first, sampler=sampler, key=key)
    if limits.resume is not None:
        run.resume(limits.resume)
    return finished(run, limits, stream, arrived)


def _chunks(kind: Kind, stream: Iterable[Any]) -> Iterator[Transitions]:
    for number, each in enumerate(stream):
        if not isinstance(each, Transitions):
            raise InputError(
                f"sampled.{kind}: part {number} of the stream is {type(each).__name__} and must be "
                "Transitions; datasets.stream makes such a stream."
            )
        yield each


def _begun(
    kind: Kind,
    stream: Iterator[Transitions],
    resume: str | os.PathLike[str] | None,
    policy: ArrayLike | None,
    discount: float | None,
    sampler: Sampler | None,
    key: int,
) -> tuple[sources.Source, int]:
    """The source that a stream starts as, and how many transitions it brought."""
    chosen = samplers.checked(kind, sampler)
    if getattr(chosen, "weights", None) is not None:
        raise InputError(
            f"sampled.{kind}: a stream draws all that is different alike; leave the weights out."
        )
    if resume is not None:
        experience = files.saved_experience(resume)
        rate = DISCOUNT if discount is None else checked_discount(discount)
        followed = None if policy is None else np.asarray(policy)
        member = np.arange(len(experience.state))
        source = sources.of_experience(kind, experience, followed, rate, member, streaming=True)
        return source, 0
    for first in stream:
        source = sources.opened(kind, first, policy, discount, chosen, streaming=True)
        if len(source.known.rows.state):
            return source, len(first)
    raise InputError(
        f"sampled.{kind}: the stream is empty, or none of it follows the policy; give one with "
        "transitions."
    )
