"""d~ and d^pi from sampled pairs of transitions: equation 3 of Castro (2020)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bisimetric.distance import Distance, Kind
from bisimetric.errors import InputError
from bisimetric.exact.gaps import GapFunction
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
    gap: ArrayLike | GapFunction | None = None,
) -> Distance:
    """Compute a sampled distance of either kind."""
    options: dict[str, Any] = {"policy": policy, "discount": discount, "sampler": sampler}
    stream: Iterator[Transitions] = iter(())
    arrived = 0
    if isinstance(source, MDP | Transitions) or not isinstance(source, Iterable):
        criteria = criteria.validate(kind, streaming=False)
        run = SampledRun(kind, source, seed=seed, gap=gap, **options)
        criteria.require_termination(kind, run.sampler)
    else:
        criteria = criteria.validate(kind, streaming=True)
        if gap is not None:
            raise InputError(
                "is that of known states, and a stream adds states",
                caller=f"sampled.{kind}",
                argument="gap",
                remedy="pass an MDP or Transitions",
            )
        stream = _validate_stream(kind, source)
        first, arrived = _open_stream(kind, stream, criteria.resume, **options)
        run = SampledRun(kind, first, sampler=sampler, seed=seed)
    if criteria.resume is not None:
        run.resume(criteria.resume)
    return run_until_stopped(run, criteria, stream, arrived)


def _validate_stream(kind: Kind, stream: Iterable[Any]) -> Iterator[Transitions]:
    for number, chunk in enumerate(stream):
        if not isinstance(chunk, Transitions):
            raise InputError(
                f"sampled.{kind}: item {number} of the stream is {type(chunk).__name__} and must "
                "be Transitions; datasets.stream yields them."
            )
        yield chunk


def _open_stream(
    kind: Kind,
    stream: Iterator[Transitions],
    resume: str | os.PathLike[str] | None,
    policy: ArrayLike | None,
    discount: float | None,
    sampler: Sampler | None,
) -> tuple[sources.SampledSource, int]:
    """Return the initial source of a stream, and the number of transitions it consumed."""
    chosen = samplers.validate_sampler(kind, sampler)
    if getattr(chosen, "weights", None) is not None:
        raise InputError(
            f"sampled.{kind}: a stream samples distinct transitions uniformly; omit the sampler's "
            "weights."
        )
    if resume is not None:
        data = files.read_data(resume)
        discount = DEFAULT_DISCOUNT if discount is None else validate_discount(discount)
        actions = None if policy is None else np.asarray(policy)
        member = np.arange(len(data.state))
        source = sources.source_from_data(kind, data, actions, discount, member, streaming=True)
        return source, 0
    for first in stream:
        source = sources.open_source(kind, first, policy, discount, chosen, streaming=True)
        if len(source.table.rows.state):
            return source, len(first)
    raise InputError(
        f"sampled.{kind}: the stream is empty, or none of its transitions follows the policy; pass "
        "a stream with transitions."
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
    gap: ArrayLike | GapFunction | None = None,
) -> Distance:
    """Compute the bisimulation metric d~ of a deterministic MDP from sampled transitions.

    Starts at d = 0. A step samples two transitions with the same action, (s, a, r, s') and
    (t, a, r', t'), and sets

    d(s, t) = max(d(s, t), |r - r'| + discount * d(s', t'))

    so that d never exceeds d~, and converges to it almost surely if all pairs are sampled
    infinitely often (Castro 2020, section 5). Where the transitions determine a distance, its error
    is proven: see `Distance.coverage` and `Distance.bounds`. The other entries are lower bounds.

    Args:
        source: an MDP; or `Transitions` with state ids, used as a replay buffer; or an iterable of
            them, a stream.
        discount: discount factor; default: the MDP's, or 0.99 for data.
        sampler: which pairs to sample: `Uniform` (the paper's, the default), `Trajectories`,
            `AllActions` or `Prioritised`.
        seed: seed of the random numbers.
        steps: stop after this many pairs, including those before `resume`.
        seconds: stop after this time.
        tol: stop when no known pair could change any distance by more:
            max(|r - r'| + discount * d(s', t') - d(s, t)) / (1 - discount) <= tol, evaluated
            periodically. Default: 1e-3 if no limit is given at all. A stream has no default limit,
            and reaches `tol` only once it contains all actions of all states that it visits.
        updates_per_transition: for a stream, pairs to sample per arriving transition.
        reference: the exact distance, if known; the progress bar then shows the error.
        checkpoint: file to write the run to, every minute and at the end, also after Ctrl-C.
        resume: checkpoint file to resume from.
        gap: immediate costs in place of |r - r'|: (S, S), (S, S, A), or a function gap(s, a, t, b)
            of arrays, see `exact.gaps`; not for a stream. Each must be a pseudometric. Then d~ does
            not bound values.

    Returns:
        The distance with its `coverage`; `metadata` has the sampler, seed and number of steps.

    Raises:
        InputError: if an argument is invalid, the MDP or the data are stochastic, no two states
            share an action, or no limit would stop the run.
        NotConverged: if another limit is reached before `tol`; it holds the partial distance.
        InsufficientMemory: if the distance matrix does not fit into memory.

    >>> from bisimetric import worlds
    >>> d = bisimulation(worlds.load("mirrored-rooms", discount=0.9), seed=0)
    >>> round(d("1,5", "5,5"), 2), d.error <= 1e-3
    (11.55, True)
    """
    criteria = StoppingCriteria(
        steps, seconds, tol, updates_per_transition, reference, checkpoint, resume
    )
    return compute_distance("bisimulation", source, None, discount, sampler, seed, criteria, gap)


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
    gap: ArrayLike | GapFunction | None = None,
) -> Distance:
    """Compute the on-policy metric d^pi of a deterministic MDP and policy from sampled transitions.

    Starts at d = 0. A step samples any two transitions of the policy, (s, r, s') and (t, r', t'),
    whatever their actions, and sets

    d(s, t) = max(d(s, t), |r - r'| + discount * d(s', t'))

    Each state has one successor, so the maximum is always the newer value. See
    `sampled.bisimulation` for convergence and proven errors.

    Args:
        source: an MDP; or `Transitions` with state ids, used as a replay buffer; or an iterable of
            them, a stream.
        policy: (S,) actions. Default for an MDP: its own policy, or the only one if there is one
            action. For data, only steps that take the policy's action are used; default: all.
        discount: discount factor; default: the MDP's, or 0.99 for data.
        sampler: which pairs to sample: `Uniform` (the paper's, the default), `Trajectories`,
            `AllActions` or `Prioritised`.
        seed: seed of the random numbers.
        steps: stop after this many pairs, including those before `resume`.
        seconds: stop after this time.
        tol: stop when no known pair could change any distance by more; default: 1e-3 if no limit is
            given at all, and none for a stream.
        updates_per_transition: for a stream, pairs to sample per arriving transition.
        reference: the exact distance, if known; the progress bar then shows the error.
        checkpoint: file to write the run to, every minute and at the end, also after Ctrl-C.
        resume: checkpoint file to resume from.
        gap: immediate costs in place of |r - r'|: (S, S), or a function gap(s, a, t, b) of arrays,
            see `exact.gaps`; not for a stream. It must be a pseudometric. Then d^pi does not bound
            values.

    Returns:
        The distance with its `coverage`; `metadata` has the sampler, seed and number of steps.

    Raises:
        InputError: if an argument is invalid, the policy is stochastic, a state has two different
            outcomes in the data (use `exact.on_policy`), or no limit would stop the run.
        NotConverged: if another limit is reached before `tol`; it holds the partial distance.
        InsufficientMemory: if the distance matrix does not fit into memory.

    >>> from bisimetric import worlds
    >>> d = on_policy(worlds.load("pessimism"), [0, 1, 0])
    >>> round(d("s", "t"), 2), round(d("s", "u"), 2)
    (0.0, 10.0)
    """
    criteria = StoppingCriteria(
        steps, seconds, tol, updates_per_transition, reference, checkpoint, resume
    )
    return compute_distance("on_policy", source, policy, discount, sampler, seed, criteria, gap)
