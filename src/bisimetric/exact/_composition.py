"""Bounds on the distances of a parallel composition from those of its components."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bisimetric import _memory, worlds
from bisimetric._rounding import TINY, UNIT
from bisimetric.distance import Distance, DistanceBounds
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.worlds.composition import CompositionMode

CALLER = "exact.composition_bounds"


def composition_bounds(
    first: Distance, second: Distance, *, mode: CompositionMode = "synchronous"
) -> DistanceBounds:
    """Bound d~ of a parallel composition by the metrics of its two components.

    With d1 and d2 the metrics of the components and d that of `worlds.compose`,

        d((s, t), (s', t')) <= d1(s, s') + d2(t, t').

    The right-hand side e satisfies F(e) <= e, where F is the operator of d: rewards are added, and
    a coupling for each component gives one of their products. So d <= e (Bacci, Bacci, Larsen &
    Mardare 2013, Computing behavioral distances, compositionally, MFCS: the operators are safe).
    If both composed states have the same second component t,

        d((s, t), (s', t)) = d1(s, s')

    where the second component is deterministic, or stays ("interleaved"): then it never differs.
    With the triangle inequality d((s, t), (s', t')) >= d1(s, s') - d2(t, t') follows, and likewise
    with the components exchanged. Otherwise the lower bound is 0: reward differences may cancel.

    The bounds cost nothing but the two metrics. `exact.asynchronous(start=...)` tightens them to
    any `tol`, which is how Bacci et al. compute distances of compositions.

    Args:
        first: d~ of the first MDP, from `exact.bisimulation`.
        second: d~ of the second MDP.
        mode: the operator of `worlds.compose`: "synchronous", "product" or "interleaved".

    Returns:
        Bounds on the distances of `worlds.compose(first.mdp, second.mdp, mode=mode)`.

    Raises:
        InputError: a distance is not d~ or has no proven error, or the MDPs cannot be composed.
        InsufficientMemory: the bounds do not fit into memory.

    >>> from bisimetric import exact
    >>> grid = worlds.grid("g  ", discount=0.5)
    >>> d = exact.bisimulation(grid)
    >>> both = composition_bounds(d, d)
    >>> both
    DistanceBounds(bisimulation, 9 states, mean width 2, largest 4)
    >>> [round(bound, 6) for bound in both.bounds("0,0|0,1", "0,2|0,1")], round(d("0,0", "0,2"), 6)
    ([2.0, 2.0], 2.0)
    """
    for distance in (first, second):
        _validate(distance)
    size = first.mdp.num_states * second.mdp.num_states
    _memory.require_memory(
        f"{CALLER}: {size:,} states need", 48.0 * size**2, "compute pairs with exact.query"
    )
    mdp = worlds.compose(first.mdp, second.mdp, mode=mode)
    # Errors are added outward; a sum and a difference are rounded once.
    ends = [_enclose(distance) for distance in (first, second)]
    upper = _combine(ends[0][1], ends[1][1], 1.0) * (1 + 2 * UNIT)
    np.minimum(upper, mdp.diameter_bound * (1 + 8 * UNIT) + TINY, out=upper)
    lower = np.zeros_like(upper)
    if mode == "interleaved" or second.mdp.is_deterministic:
        np.maximum(lower, _combine(ends[0][0], ends[1][1], -1.0), out=lower)
    if mode == "interleaved" or first.mdp.is_deterministic:
        np.maximum(lower, -_combine(ends[0][1], ends[1][0], -1.0), out=lower)
    rounding = _bound_rounding(first.mdp, second.mdp, mdp)
    lower = np.maximum(lower * (1 - 4 * UNIT) - rounding, 0.0)
    upper = (upper + rounding) * (1 + 2 * UNIT)
    np.fill_diagonal(lower, 0.0)
    np.fill_diagonal(upper, 0.0)
    metadata = {"method": "composition", "mode": mode}
    return DistanceBounds(lower, upper, "bisimulation", mdp, metadata=metadata)


def _validate(distance: Distance) -> None:
    if not isinstance(distance, Distance) or distance.kind != "bisimulation":
        kind = getattr(distance, "kind", type(distance).__name__)
        raise InputError(f"{CALLER}: a distance is {kind} and must be exact.bisimulation.")
    if not np.isfinite(distance.error) or distance.coverage is not None:
        raise InputError(f"{CALLER}: a distance has no proven error; compute it with exact.")
    if "gap" in distance.metadata:
        raise InputError(f"{CALLER}: distances with gap=... are not supported.")


def _enclose(distance: Distance) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return lower and upper bounds on all distances, 0 on the diagonal."""
    states = np.arange(distance.mdp.num_states)
    return distance.bounds(states[:, None], states)


def _bound_rounding(first: MDP, second: MDP, composed: MDP) -> float:
    """Bound the difference of the metrics of the composition in float64 and of the exact one.

    Rewards are sums, rounded once. Probabilities are products of quotients: one rounding per term
    of a sum, one for the quotient, one for the product. If all entries of a row have a relative
    error of at most e, dividing by the sum leaves a total variation of at most e / (1 - e). See
    `exact.perturbation_bound` for what they change.
    """
    mass = 0.0
    if not (first.is_deterministic and second.is_deterministic):
        widths = (int(np.diff(mdp.P.indptr).max()) for mdp in (first, second))
        mass = (sum(widths) + 8) * UNIT
    reward = UNIT * float(np.abs(composed.R).max()) + TINY
    one_step = 2 * reward + 2 * composed.discount * mass * composed.diameter_bound
    return one_step / (1 - composed.discount) * (1 + 16 * UNIT)


def _combine(d1: NDArray[np.float64], d2: NDArray[np.float64], sign: float) -> NDArray[np.float64]:
    """Return d1(s, s') + sign * d2(t, t') for all pairs of composed states."""
    size = len(d1) * len(d2)
    combined = d1[:, None, :, None] + sign * d2[None, :, None, :]
    return np.ascontiguousarray(combined.reshape(size, size))
