"""Asynchronous dynamic programming: bounds on all distances, updated pair by pair in any order.

Comanici, Panangaden & Precup (2012), On-the-fly algorithms for bisimulation metrics.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

import bisimetric
from bisimetric import _memory
from bisimetric._progress import announce_compilation, convergence_fraction, show_progress
from bisimetric.distance import DistanceBounds
from bisimetric.errors import InputError, NotConverged, require_integer
from bisimetric.exact._interval_iteration import IntervalIteration
from bisimetric.exact._query import QueryKind
from bisimetric.exact._request import DEFAULT_TOL, validate_tol
from bisimetric.mdp import MDP, InducedChain, induce_chain, reject_observations
from bisimetric.mdp._validation import require_mdp, resolve_policy

Schedule = Literal["round_robin", "uniform", "widest"]

CALLER = "exact.asynchronous"
BLOCKS_PER_PASS = 16
"""Blocks into which the pairs are divided by default."""
MIN_PASSES = 4
"""Passes without any change after which rounding allows no more."""


def asynchronous(
    mdp: MDP,
    *,
    kind: QueryKind = "bisimulation",
    policy: ArrayLike | None = None,
    schedule: Schedule | Iterable[ArrayLike] = "widest",
    block_size: int | None = None,
    updates: int | None = None,
    tol: float | None = None,
    seed: int = 0,
    start: DistanceBounds | None = None,
) -> DistanceBounds:
    """Bound d~, d^pi or d_lax by asynchronous updates of chosen pairs, with an error at any time.

    A step chooses a set of pairs (a block) and updates only their entries, from the current ones:

        L(s, t) = max(L(s, t), F(L)(s, t)),    U(s, t) = min(U(s, t), F(U)(s, t))

    where F is the operator of the distance, and L and U start at 0 and at the diameter bound. F is
    monotone, so that L <= d <= U after every step, whichever pairs are updated. F is a contraction,
    so that both converge to d if every pair is updated infinitely often (Bertsekas 1983,
    Distributed asynchronous computation of fixed points, Mathematical Programming 27). Comanici et
    al. iterate L only; U is what makes the error known when the iteration stops early. Their other
    variant, which updates only the pairs reachable from some pairs of interest, is `exact.query`.

    Args:
        mdp: the MDP, without observations.
        kind: the distance: "bisimulation" (d~), "on_policy" (d^pi) or "lax" (d_lax).
        policy: for "on_policy": (S,) actions or (S, A) probabilities; default: the MDP's own.
        schedule: which pairs a step updates. "uniform": a random block; "round_robin": the blocks
            in turn; "widest": half of the block are the pairs with the widest bounds, and half are
            random. Or blocks of one's own: an iterable of arrays (n, 2) of ids of states; the
            iteration ends with it.
        block_size: pairs per step; default: a 16th of all pairs. 1 is Gauss-Seidel iteration, and
            all pairs are value iteration.
        updates: stop after this many updates of a pair.
        tol: stop when no pair of bounds differs by more than 2 tol, so that their middle has an
            error of at most `tol`. Default: 1e-6 if neither `updates` nor own blocks are given.
        seed: of the random blocks.
        start: bounds to continue from, of the same MDP, kind and policy.

    Returns:
        The bounds, which are certain. In `metadata`, "updates" is the number of updates.

    Raises:
        InputError: an argument has the wrong type or value, or the MDP has observations.
        NotConverged: `updates` or rounding end the iteration before `tol`; `partial` holds the
            bounds.
        InsufficientMemory: the bounds do not fit into memory.

    >>> from bisimetric import worlds
    >>> mdp = worlds.load("mirrored-rooms", discount=0.9)
    >>> d = asynchronous(mdp, updates=2_000, seed=0)
    >>> lower, upper = d.bounds("1,5", "5,5")
    >>> bool(lower <= 11.5532 <= upper), d.max_width < mdp.diameter_bound
    (True, True)
    >>> asynchronous(mdp, tol=1e-3).to_distance().error <= 1e-3
    True
    """
    start_time = time.perf_counter()
    dynamics, actions, chain = _resolve_dynamics(mdp, kind, policy)
    limit = None if updates is None else require_integer(CALLER, "updates", updates, 1)
    is_own = not isinstance(schedule, str)
    if tol is None and limit is None and not is_own:
        tol = DEFAULT_TOL
    tol = None if tol is None else validate_tol(CALLER, tol)
    _memory.require_memory(
        f"{CALLER}: {mdp.num_states:,} states need",
        64.0 * mdp.num_states**2,
        "compute some pairs with exact.query",
    )
    iteration = IntervalIteration(dynamics, lax=kind == "lax", chain=chain)
    if start is not None:
        _continue_from(iteration, start, mdp, kind)
    size = max(1, iteration.num_pairs // BLOCKS_PER_PASS)
    if block_size is not None:
        size = require_integer(CALLER, "block_size", block_size, 1)
    blocks = (
        _validate_blocks(schedule, mdp)
        if not isinstance(schedule, str)
        else _choose_blocks(schedule, iteration, min(size, max(1, iteration.num_pairs)), seed)
    )
    done = _iterate(iteration, blocks, tol, limit)
    metadata = {
        "method": "asynchronous interval iteration",
        "schedule": "own" if is_own else schedule,
        "updates": done,
        "tol": tol,
        "seconds": round(time.perf_counter() - start_time, 6),
        "bisimetric": bisimetric.__version__,
        "numpy": np.__version__,
    }
    if mdp.is_empirical:
        metadata["model"] = "empirical"
    bounds = DistanceBounds(iteration.lower, iteration.upper, kind, mdp, actions, metadata=metadata)
    if tol is not None and not bounds.max_width <= 2 * tol:
        raise NotConverged(
            f"{CALLER}: after {done:,} updates bounds differ by up to {bounds.max_width:.2g} and "
            f"not by 2 tol = {2 * tol:g}; pass a larger tol or more updates.",
            bounds,
        )
    return bounds


def _resolve_dynamics(
    mdp: MDP, kind: str, policy: ArrayLike | None
) -> tuple[MDP, NDArray[Any] | None, InducedChain | None]:
    """Return the MDP to iterate on, the policy, and the chain that it induces."""
    require_mdp(CALLER, mdp)
    reject_observations(CALLER, mdp)
    if kind not in get_args(QueryKind):
        raise InputError(
            f"is {kind!r} and must be one of {get_args(QueryKind)}", caller=CALLER, argument="kind"
        )
    if kind != "on_policy":
        if policy is not None:
            raise InputError(
                "is for kind='on_policy'", caller=CALLER, argument="policy", remedy="leave it out"
            )
        return mdp, None, None
    actions = resolve_policy("asynchronous", mdp, policy)
    chain = induce_chain(mdp, actions)
    return chain.mdp, actions, chain


def _continue_from(
    iteration: IntervalIteration, start: DistanceBounds, mdp: MDP, kind: str
) -> None:
    """Start from earlier bounds."""
    if not isinstance(start, DistanceBounds) or start.confidence != 1:
        raise InputError(
            "must be certain DistanceBounds", caller=CALLER, argument="start",
            remedy="pass the result of exact.asynchronous",
        )  # fmt: skip
    if start.kind != kind or start.lower.shape != iteration.lower.shape:
        raise InputError(
            f"is {start.kind} of {start.mdp.num_states} states and must be {kind} of "
            f"{mdp.num_states}", caller=CALLER, argument="start",
        )  # fmt: skip
    np.maximum(iteration.lower, start.lower, out=iteration.lower)
    np.minimum(iteration.upper, start.upper, out=iteration.upper)


def _choose_blocks(
    schedule: str, iteration: IntervalIteration, size: int, seed: int
) -> Iterator[NDArray[np.int64]]:
    """Return an endless iterator over blocks of indices of pairs."""
    pairs, rng = iteration.num_pairs, np.random.default_rng(seed)
    if schedule not in get_args(Schedule):
        raise InputError(
            f"is {schedule!r} and must be one of {get_args(Schedule)}, or blocks of pairs",
            caller=CALLER,
            argument="schedule",
        )
    return _yield_blocks(schedule, iteration, pairs, size, rng)


def _yield_blocks(
    schedule: str, iteration: IntervalIteration, pairs: int, size: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    for step in itertools.count():
        if schedule == "round_robin":
            yield np.arange(step * size, (step + 1) * size) % pairs
        elif schedule == "uniform" or (size == 1 and step % 2):
            yield rng.choice(pairs, size, replace=False)
        else:
            widest = max(1, size // 2)
            chosen = np.argpartition(-iteration.width(), widest - 1)[:widest]
            yield np.union1d(chosen, rng.choice(pairs, size - widest, replace=False))


def _validate_blocks(blocks: Iterable[ArrayLike], mdp: MDP) -> Iterator[NDArray[np.int64]]:
    """Yield the caller's blocks as indices of pairs."""
    for number, block in enumerate(blocks):
        pairs = np.asarray(block)
        valid = pairs.ndim == 2 and pairs.shape[1] == 2 and pairs.dtype.kind in "iu"
        if not valid or ((pairs < 0) | (pairs >= mdp.num_states)).any():
            raise InputError(
                f"{CALLER}: block {number} of schedule is {pairs.dtype} of shape {pairs.shape} and "
                f"must be (n, 2) ids of states from 0 to {mdp.num_states - 1}."
            )
        t, s = np.sort(pairs.astype(np.int64), axis=1).T
        different = s != t
        yield np.unique((s * (s - 1) // 2 + t)[different])


def _iterate(
    iteration: IntervalIteration,
    blocks: Iterator[NDArray[np.int64]],
    tol: float | None,
    limit: int | None,
) -> int:
    """Update block after block until a limit is reached; return the number of updates."""
    done, unchanged = 0, 0
    if iteration.num_pairs == 0:
        return done
    target = 0.0 if tol is None else 2 * tol
    widest = float(iteration.width().max())
    first = widest
    with announce_compilation("the kernels"):
        iteration.update(np.empty(0, np.int64))
    with show_progress(1.0, "bounds: digits of their width") as progress:
        while not (tol is not None and widest <= target):
            block = next(blocks, None)
            if block is None or (limit is not None and done >= limit):
                break
            if limit is not None:
                block = block[: limit - done]
            change = iteration.update(block)
            done += len(block)
            unchanged = 0 if change > 0 else unchanged + len(block)
            if unchanged >= MIN_PASSES * iteration.num_pairs:
                break
            if tol is not None:
                widest = float(iteration.width().max())
            fraction = 0.0 if limit is None else done / limit
            if tol is not None and math.isfinite(first):
                fraction = max(fraction, convergence_fraction(widest, target, first))
            progress.set_position(fraction, f"{done:,} updates")
    return done
