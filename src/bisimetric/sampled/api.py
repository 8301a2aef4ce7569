"""What both sampled distances share: a source, a run on it, and when it stops.

d~ from pairs of transitions: equation 3 of Castro (2020).

d^pi from pairs of transitions: equation 3 of Castro (2020), actions taken from the policy.
"""

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
from bisimetric.sampled.limits import StoppingCriteria, run_until_stopped
from bisimetric.sampled.run import SampledRun
from bisimetric.sampled.samplers import Sampler
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


def bisimulation(
    source: MDP | Transitions | Iterable[Transitions],
    *,
    discount: float | None = None,
    sampler: Sampler | None = None,
    seed: int = 0,
    steps: int | None = None,
    seconds: float | None = None,
    tol: float | None = None,
    updates_per_transition: int = 1,
    reference: Distance | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> Distance:
    """The bisimulation metric d~ of a deterministic MDP, from samples of what it does.

    Starts at d = 0. A step takes two transitions with the same action, (s, a, r, s') and
    (t, a, r', t'), and sets

    d(s, t) = max(d(s, t), |r - r'| + discount * d(s', t'))

    so that d never exceeds d~, and, if all pairs are drawn for ever, reaches it almost surely
    (Castro 2020, section 5). Where the transitions determine a distance its error is proven;
    `coverage` says where, and `bounds(s, t)` how well. The other entries are lower bounds.

    Args:
        source: an MDP; or transitions with ids of states, kept as a replay memory that pairs are
            drawn from; or an iterable of such, that keep coming.
        discount: default: that of the MDP, and for data 0.99.
        sampler: which pairs: `Uniform` (the paper's, the default), `Trajectories`, `AllActions`
            or `Prioritised`.
        key: of the random numbers; the same key gives the same run.
        steps: stop after so many pairs, those before `resume` included.
        seconds: stop after so long.
        tol: stop when no known pair could still change any distance by more:
            max(|r - r'| + discount * d(s', t') - d(s, t)) / (1 - discount) <= tol, looked at every
            so often. The default, 1e-3, where there is no limit at all. `NotConverged` where
            another limit comes first. A stream has no default limit, and reaches `tol` only once
            it has shown all actions of all states that it lived in.
        updates: of a stream, how many pairs are drawn for each transition that arrives.
        truth: the exact distance, where it is known, for the progress bar to show the error.
        checkpoint: a file to keep the run in, each minute and at the end, also after Ctrl-C.
        resume: such a file to go on from.

    >>> from bisimetric import worlds
    >>> d = bisimulation(worlds.load("mirrored-rooms", discount=0.9), key=0)
    >>> round(d("1,5", "5,5"), 2), d.error <= 1e-3
    (11.55, True)
    """
    limits = StoppingCriteria(
        steps, seconds, tol, updates_per_transition, reference, checkpoint, resume
    )
    return compute_distance("bisimulation", source, None, discount, sampler, seed, limits)


def on_policy(
    source: MDP | Transitions | Iterable[Transitions],
    policy: ArrayLike | None = None,
    *,
    discount: float | None = None,
    sampler: Sampler | None = None,
    seed: int = 0,
    steps: int | None = None,
    seconds: float | None = None,
    tol: float | None = None,
    updates_per_transition: int = 1,
    reference: Distance | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> Distance:
    """The on-policy metric d^pi of a deterministic MDP and policy, from samples.

    Like `sampled.bisimulation`, but that a step takes any two transitions of the policy, whatever
    their actions, (s, r, s') and (t, r', t'):

    d(s, t) = max(d(s, t), |r - r'| + discount * d(s', t'))

    Since each state has one successor, the maximum is always the newer value. Two different
    outcomes in one state are refused: a policy that draws its actions needs `exact.on_policy`.

    Args:
        policy: (S,) actions. For an MDP the default is its own, or the only one there is. For
            data without one, all of it follows the policy; with one, steps that take another
            action are left out.

    The other arguments are those of `sampled.bisimulation`.

    >>> from bisimetric import worlds
    >>> d = on_policy(worlds.load("pessimism"), [0, 1, 0])
    >>> round(d("s", "t"), 2), round(d("s", "u"), 2)
    (0.0, 10.0)
    """
    limits = StoppingCriteria(
        steps, seconds, tol, updates_per_transition, reference, checkpoint, resume
    )
    return compute_distance("on_policy", source, policy, discount, sampler, seed, limits)
