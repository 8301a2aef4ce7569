"""What both sampled distances share: a source, a run on it, and when it stops."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bisimetric.distance import Distance, Kind
from bisimetric.errors import InputError
from bisimetric.mdp import MDP, validate_discount
from bisimetric.sampled import files, samplers, sources
from bisimetric.sampled.run import SampledRun
from bisimetric.sampled.samplers import Sampler
from bisimetric.sampled.stopping import StoppingCriteria, run_until_stopped
from bisimetric.transitions import DEFAULT_DISCOUNT, Transitions


def compute_distance(
    kind: Kind,
    source: MDP | Transitions | Iterable[Transitions],
    policy: ArrayLike | None,
    discount: float | None,
    sampler: Sampler | None,
    seed: int,
    criteria: StoppingCriteria,
) -> Distance:
    """A sampled distance of either kind."""
    given: dict[str, Any] = {
        "policy": policy,
        "discount": discount,
        "sampler": sampler,
        "key": seed,
    }
    stream: Iterator[Transitions] = iter(())
    arrived = 0
    if isinstance(source, MDP | Transitions) or not isinstance(source, Iterable):
        criteria = criteria.validate(kind, streaming=False)
        run = SampledRun(kind, source, **given)
        criteria.require_termination(kind, run.sampler)
    else:
        criteria = criteria.validate(kind, streaming=True)
        stream = _validate_stream(kind, source)
        first, arrived = _open_stream(kind, stream, criteria.resume, **given)
        run = SampledRun(kind, first, sampler=sampler, seed=seed)
    if criteria.resume is not None:
        run.resume(criteria.resume)
    return run_until_stopped(run, criteria, stream, arrived)


def _validate_stream(kind: Kind, stream: Iterable[Any]) -> Iterator[Transitions]:
    for number, each in enumerate(stream):
        if not isinstance(each, Transitions):
            raise InputError(
                f"sampled.{kind}: part {number} of the stream is {type(each).__name__} and must be "
                "Transitions; datasets.stream makes such a stream."
            )
        yield each


def _open_stream(
    kind: Kind,
    stream: Iterator[Transitions],
    resume: str | os.PathLike[str] | None,
    policy: ArrayLike | None,
    discount: float | None,
    sampler: Sampler | None,
    seed: int,
) -> tuple[sources.SampledSource, int]:
    """The source that a stream starts as, and how many transitions it brought."""
    chosen = samplers.validate_sampler(kind, sampler)
    if getattr(chosen, "weights", None) is not None:
        raise InputError(
            f"sampled.{kind}: a stream draws all that is different alike; leave the weights out."
        )
    if resume is not None:
        experience = files.read_data(resume)
        rate = DEFAULT_DISCOUNT if discount is None else validate_discount(discount)
        followed = None if policy is None else np.asarray(policy)
        member = np.arange(len(experience.state))
        source = sources.source_from_data(kind, experience, followed, rate, member, streaming=True)
        return source, 0
    for first in stream:
        source = sources.open_source(kind, first, policy, discount, chosen, streaming=True)
        if len(source.table.rows.state):
            return source, len(first)
    raise InputError(
        f"sampled.{kind}: the stream is empty, or none of it follows the policy; give one with "
        "transitions."
    )
