"""d^pi between the recorded steps of a deterministic policy in a deterministic environment."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

import bisimetric
from bisimetric._memory import require_memory
from bisimetric._progress import announce_compilation
from bisimetric._rounding import TINY, UNIT
from bisimetric._text import pluralise
from bisimetric.distance import Distance
from bisimetric.errors import InputError, NotConverged, StochasticDataWarning
from bisimetric.exact._request import (
    bound_error,
    describe_shortfall,
    resolve_tol,
    validate_dtype,
)
from bisimetric.exact.deterministic.diagonal_kernels import (
    CONTINUES,
    TERMINATED,
    UNRECORDED,
    fill_distances,
)
from bisimetric.implicit_mdp import validate_reward_range
from bisimetric.mdp import DEFAULT_DISCOUNT, MDP, TERMINAL, validate_discount
from bisimetric.transitions import Transitions

CALLER = "exact.recorded"
BYTES_PER_STEP = 500
"""Memory per step besides the matrix: names, the chain and the recursion."""
MAX_COMPARED_BYTES = 2**24
"""Observations that are compared at a time."""


def recorded(
    transitions: Transitions,
    *,
    discount: float = DEFAULT_DISCOUNT,
    tol: float | None = None,
    normalised_tol: float | None = None,
    reward_range: tuple[float, float] | None = None,
    dtype: DTypeLike = "float64",
) -> Distance:
    """Compute d^pi between recorded steps, from the futures that were recorded with them.

        d^pi(i, j) = |r_i - r_j| + discount * d^pi(i + 1, j + 1)

    for steps i and j of a deterministic policy in a deterministic environment; i + 1 is the next
    step of the episode. A terminated step leads to the absorbing terminal state, which pays 0.
    States need no ids and no model: the observations are only checked for contradictions.

    Where an episode was truncated, or the recording stops, the future is unrecorded. If all
    rewards lie in `reward_range`, such a tail is a distance between 0 and the diameter bound
    D = range / (1 - discount). Half of D is taken, so that a pair with k recorded steps before the
    tail has an error of at most discount^k * D / 2. `error` is the largest of these plus rounding.
    It holds for the environment that was recorded, not only for an empirical model of it.

    Recorded rewards do not bound unrecorded ones. So `reward_range` is required if a tail is part
    of the error.

    Args:
        transitions: the recorded steps, in the order in which they were taken.
        discount: in [0, 1).
        tol: bound on the error of every entry. Steps with too short a recorded future are left
            out. Default: all steps, with the error that their recorded futures allow.
        normalised_tol: in place of `tol`, a bound on the error of (1 - discount) d, which does not
            grow with the horizon: for discounts near 1.
        reward_range: (low, high) of all rewards that the policy can collect, with 0 if an episode
            can terminate. 0 is added where one did.
        dtype: of the distance matrix, float64 or float32.

    Returns:
        The distance matrix with its proven error, in units of reward. Its states are the steps in
        recorded order, named `episode 0, step 0` and so on, and, if an episode terminated, the
        terminal state `end`. In `metadata`, "step_ranges" lists the steps of the matrix as
        ranges [first, last + 1] of indices of `transitions`, "left_out" counts the others, and
        "without_successor" lists the states whose successor is not in the matrix. In `mdp`, which
        holds the steps as a chain, these have a self-loop.

    Raises:
        InputError: an argument has the wrong type or value, `reward_range` is missing, no step
            has a long enough recorded future for `tol`, steps of an episode are not consecutive,
            or a state id has two actions, rewards or successors.
        NotConverged: rounding does not allow `tol`; `partial` holds the distance that was proven.
        InsufficientMemory: the matrix does not fit into memory.

    Warns:
        StochasticDataWarning: equal observations without ids have different actions, rewards or
            successors. The error holds if they belong to different states.

    >>> steps = Transitions([0, 1, 2, 0], [0] * 4, [0, 1, 4, 0], [1, 2, 3, 1], [0, 0, 1, 0])
    >>> d = recorded(steps, discount=0.5, tol=1.0, reward_range=(0, 4))
    >>> d
    Distance(on_policy, 4 states, largest 5.5, error <= ...e-15)
    >>> d("episode 0, step 0", "episode 0, step 1"), d.metadata["step_ranges"]
    (3.5, [[0, 3]])
    """
    start_time = time.perf_counter()
    if not isinstance(transitions, Transitions):
        raise InputError(
            f"{CALLER}: transitions are {type(transitions).__name__} and must be Transitions; see "
            "datasets, or exact.on_policy for an MDP."
        )
    matrix_dtype = validate_dtype(CALLER, dtype)
    discount = validate_discount(discount)
    tol = resolve_tol(CALLER, tol, normalised_tol, discount)
    _require_consecutive(transitions)
    ending = _classify_endings(transitions)
    bounds = _bound_tails(transitions, ending, discount, reward_range, matrix_dtype)
    kept = np.ones(len(transitions), np.bool_)
    if tol is not None:
        kept = _select_steps(bounds, tol, discount, matrix_dtype)
    states = int(kept.sum() + transitions.terminated.any())
    require_memory(
        f"{CALLER}: {states:,} steps need",
        states**2 * matrix_dtype.itemsize + BYTES_PER_STEP * len(transitions),
        "try dtype='float32', or fewer steps, such as transitions[:10_000]",
    )
    _check_determinism(transitions)
    chain = _build_chain(transitions, ending, kept, discount)
    values = np.empty((states, states), matrix_dtype)
    with announce_compilation("the kernels"):
        largest = fill_distances(
            values, transitions.rewards, ending, discount, bounds.half_diameter, chain.segments
        )
    tail_error = float(bounds.tail_error[kept].max())
    error = tail_error + _bound_rounding(largest, discount, matrix_dtype)
    error *= 1 + 4 * UNIT
    metadata = {
        "method": "recursion along recorded steps",
        "step_ranges": _merge_ranges(chain.segments),
        "recorded_steps": len(transitions),
        "left_out": int(len(transitions) - kept.sum()),
        "without_successor": chain.without_successor,
        "reward_range": bounds.reward_range,
        "tail_error": tail_error,
        "dtype": str(matrix_dtype),
        "tol": tol,
        "seconds": round(time.perf_counter() - start_time, 6),
        "bisimetric": bisimetric.__version__,
        "numpy": np.__version__,
    }
    distance = Distance(values, error, "on_policy", chain.mdp, np.zeros(states, np.int64), metadata)
    if tol is not None and not error <= tol:
        shortfall = describe_shortfall(matrix_dtype, error, tol, normalised_tol, discount)
        raise NotConverged(f"{CALLER}: {shortfall}", distance)
    return distance


@dataclasses.dataclass(frozen=True)
class TailBounds:
    """What the recorded futures prove.

    Attributes:
        horizon: (n,) recorded steps from each step on, itself included; infinite where the
            episode terminated.
        tail_error: (n,) a bound on the error that an unrecorded tail adds; 0 without one.
        half_diameter: half of the diameter bound, rounded up.
        reward_range: of all rewards, 0 included where an episode terminated; None if unknown.
    """

    horizon: NDArray[np.float64]
    tail_error: NDArray[np.float64]
    half_diameter: float
    reward_range: list[float] | None


@dataclasses.dataclass(frozen=True)
class StepChain:
    """The steps of a matrix as a chain; see `recorded` and `fill_distances`."""

    mdp: MDP
    segments: NDArray[np.int64]
    without_successor: list[int]


def _classify_endings(transitions: Transitions) -> NDArray[np.uint8]:
    """Return what follows each step, (n,)."""
    unrecorded = transitions.truncated.copy()
    unrecorded[-1] = True
    ending = np.where(unrecorded, UNRECORDED, CONTINUES)
    return np.where(transitions.terminated, TERMINATED, ending).astype(np.uint8)


def _bound_tails(
    transitions: Transitions,
    ending: NDArray[np.uint8],
    discount: float,
    reward_range: Any,
    dtype: np.dtype[Any],
) -> TailBounds:
    """Bound what the unrecorded future of each step adds to its distances."""
    ends = np.flatnonzero(ending != CONTINUES)
    own_end = ends[np.searchsorted(ends, np.arange(len(ending)))]
    horizon = (own_end - np.arange(len(ending)) + 1).astype(np.float64)
    horizon[ending[own_end] == TERMINATED] = np.inf
    low, high = float(transitions.rewards.min()), float(transitions.rewards.max())
    has_terminal = bool(transitions.terminated.any())
    has_tail = discount > 0 and bool(np.isfinite(horizon).any())
    if reward_range is not None:
        given = validate_reward_range(reward_range, CALLER)
        if low < given[0] or high > given[1]:
            raise InputError(
                f"is ({given[0]:g}, {given[1]:g}) and rewards from {low:g} to {high:g} were "
                "recorded",
                caller=CALLER,
                argument="reward_range",
                remedy="give the range of all rewards",
            )
        low, high = given
    elif has_tail:
        stops = int((ending == UNRECORDED).sum())
        raise InputError(
            f"is missing: {pluralise(stops, 'episode')} did not terminate, and recorded rewards, "
            f"here from {low:g} to {high:g}, do not bound the unrecorded ones",
            caller=CALLER,
            argument="reward_range",
            remedy="give the range of all rewards, with 0 if an episode can terminate",
        )
    if has_terminal:
        low, high = min(low, 0.0), max(high, 0.0)
    # A difference, 1 - discount and a quotient: three roundings.
    diameter = (high - low) / (1 - discount) * (1 + 8 * UNIT) + 2 * TINY
    if not diameter < float(np.finfo(dtype).max):
        raise InputError(
            f"{CALLER}: rewards from {low:g} to {high:g} make distances that {dtype} cannot hold; "
            "scale the rewards down."
        )
    finite = np.isfinite(horizon)
    tail_error = np.zeros(len(horizon))
    if discount > 0:
        powers = bound_powers(discount, int(horizon[finite].max(initial=0)))
        bounds = powers[horizon[finite].astype(np.int64)] * (diameter / 2)
        tail_error[finite] = bounds * (1 + 4 * UNIT) + 4 * TINY
    known_range = [low, high] if reward_range is not None else None
    return TailBounds(horizon, tail_error, diameter / 2, known_range)


def bound_powers(discount: float, largest_exponent: int) -> NDArray[np.float64]:
    """Return upper bounds on discount^k for k from 0 to `largest_exponent`.

    A product of k factors has k roundings, each of at most a unit roundoff, or TINY below the
    normal numbers.

    >>> bound_powers(0.5, 3).round(9).tolist()
    [1.0, 0.5, 0.25, 0.125]
    """
    exponents = np.arange(largest_exponent + 1)
    factors = np.where(exponents == 0, 1.0, discount)
    with np.errstate(under="ignore"):
        products = np.multiply.accumulate(factors)
        bounds = products * (1 + (2 * exponents + 4) * UNIT) + (exponents + 1) * TINY
    # Powers decrease, so that a bound holds for larger exponents, too.
    return np.minimum.accumulate(bounds)


def _bound_rounding(largest: float, discount: float, dtype: np.dtype[Any]) -> float:
    """Bound the rounding of the recursion, in float64, and of storing its values."""
    error = bound_error(0.0, largest, discount)
    if dtype == np.float32:
        # Half a unit in the last place, or half of the smallest number above 0.
        error += 2.0**-24 * largest + 2.0**-150
    return error * (1 + 4 * UNIT)


def _select_steps(
    bounds: TailBounds, tol: float, discount: float, dtype: np.dtype[Any]
) -> NDArray[np.bool_]:
    """Return which steps have a recorded future that allows an error of `tol`."""
    rounding = _bound_rounding(2 * bounds.half_diameter, discount, dtype)
    # If rounding alone exceeds tol, the distance is computed and reported as not converged.
    allowed = max(tol - rounding, tol / 2) * (1 - 8 * UNIT)
    kept: NDArray[np.bool_] = bounds.tail_error <= allowed
    if kept.any():
        return kept
    longest, least = int(bounds.horizon.max()), float(bounds.tail_error.min())
    needed = math.log(allowed / bounds.half_diameter) / math.log(discount)
    raise InputError(
        f"is {tol:g}, which needs about {math.ceil(needed):,} recorded steps of an episode or "
        f"its termination at discount {discount:g}, and the longest has {longest:,} and did not "
        "terminate",
        caller=CALLER,
        argument="tol",
        remedy=f"record longer episodes, or allow {(least + rounding) * 1.01:.3g} or a smaller "
        "discount",
    )


def _build_chain(
    transitions: Transitions, ending: NDArray[np.uint8], kept: NDArray[np.bool_], discount: float
) -> StepChain:
    """Build the chain of the kept steps, which are the first ones of each episode."""
    stops = np.flatnonzero(ending != CONTINUES) + 1
    starts = np.concatenate([[0], stops[:-1]])
    counts = np.add.reduceat(kept.astype(np.int64), starts)
    episodes = np.flatnonzero(counts)
    starts, counts = starts[episodes], counts[episodes]
    last_states = np.cumsum(counts) - 1
    segments = np.stack([starts, starts + counts, last_states + 1 - counts], axis=1)
    terminates = ending[starts + counts - 1] == TERMINATED
    num_steps = int(counts.sum())
    successors = np.arange(1, num_steps + 1)
    successors[last_states] = np.where(terminates, num_steps, last_states)
    rewards = transitions.rewards[kept]
    names = [
        f"episode {episode}, step {step}"
        for episode, count in zip(episodes.tolist(), counts.tolist(), strict=True)
        for step in range(count)
    ]
    if transitions.terminated.any():
        successors, rewards = np.append(successors, num_steps), np.append(rewards, 0.0)
        names.append(TERMINAL)
    mdp = MDP.deterministic(
        successors[:, None], rewards[:, None], discount=discount, names=names, actions=("policy",)
    )
    return StepChain(mdp, segments, last_states[~terminates].tolist())


def _merge_ranges(segments: NDArray[np.int64]) -> list[list[int]]:
    """Return the steps of a matrix as few ranges [start, stop]."""
    ranges: list[list[int]] = []
    for start, stop, _ in segments.tolist():
        if ranges and ranges[-1][1] == start:
            ranges[-1][1] = stop
        else:
            ranges.append([start, stop])
    return ranges


def _require_consecutive(transitions: Transitions) -> None:
    """Raise InputError where a step does not begin in the next observation of the one before."""
    goes_on = ~(transitions.terminated | transitions.truncated)[:-1]
    following, current = transitions.next_states, transitions.states
    if following is None or current is None:
        following, current = transitions.next_observations, transitions.observations
    size = max(1, MAX_COMPARED_BYTES // max(1, following[0].nbytes))
    for low in range(0, len(goes_on), size):
        part = slice(low, min(low + size, len(goes_on)))
        differs = following[part] != current[1:][part]
        differs = goes_on[part] & differs.reshape(len(differs), -1).any(axis=1)
        if differs.any():
            i = low + int(np.argmax(differs))
            raise InputError(
                f"{CALLER}: step {i} does not lead to step {i + 1}, and the recorded future of a "
                "step is needed; keep the recorded order, and mark the last step of each "
                "recording as truncated."
            )


def _check_determinism(transitions: Transitions) -> None:
    """Raise InputError, or warn where states have no ids, for two outcomes of one state."""
    states = transitions.states
    if states is not None:
        current, following = states, transitions.successors
    else:
        current, following = _number_observations(transitions)
        following = np.where(transitions.terminated, -1, following)
    _, first_rows, members = np.unique(current, return_index=True, return_inverse=True)
    first = first_rows[members]
    columns = {
        "actions": transitions.actions,
        "rewards": transitions.rewards,
        "successors": following,
    }
    for name, column in columns.items():
        differs = (column != column[first]).reshape(len(first), -1).any(axis=1)
        if not differs.any():
            continue
        later = int(np.argmax(differs))
        steps = f"steps {first[later]} and {later}"
        if states is None:
            warnings.warn(
                f"{CALLER}: {steps} have equal observations and different {name}; the error holds "
                "if policy and environment are deterministic and these are different states.",
                StochasticDataWarning,
                stacklevel=3,
            )
            return
        s = int(states[later])
        state = s if transitions.names is None else transitions.names[s]
        raise InputError(
            f"must follow a deterministic policy in a deterministic environment, and {steps} have "
            f"different {name} in state {state}",
            caller=CALLER,
            argument="transitions",
            remedy="use exact.on_policy(transitions.to_mdp(), policy), which estimates "
            "probabilities",
        )


def _number_observations(
    transitions: Transitions,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ids of the observations and of the next observations: equal for equal bytes."""
    ids: dict[bytes, int] = {}
    columns = []
    for column in (transitions.observations, transitions.next_observations):
        digests = (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in column)
        columns.append(np.array([ids.setdefault(digest, len(ids)) for digest in digests]))
    return columns[0], columns[1]
