"""Confidence bounds: distances of the environment that recorded transitions were sampled from."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

import bisimetric
from bisimetric import _memory
from bisimetric._progress import announce_compilation, convergence_fraction, show_progress
from bisimetric._rounding import TINY, UNIT
from bisimetric.distance import DistanceBounds
from bisimetric.errors import InputError, require_integer
from bisimetric.exact._concentration import RowSamples, RowSlack, validate_confidence
from bisimetric.exact._interval_iteration import IntervalIteration
from bisimetric.exact._query import QueryKind
from bisimetric.exact._request import validate_tol
from bisimetric.exact.stochastic.interval_kernels import Slack
from bisimetric.implicit_mdp import validate_reward_range
from bisimetric.mdp import DEFAULT_DISCOUNT, MDP, InducedChain, induce_chain, validate_discount
from bisimetric.mdp._validation import validate_policy
from bisimetric.transitions import Transitions

Sampling = Literal["adaptive", "fixed"]
Support = Literal["states", "observed"]
RewardNoise = Literal["random", "deterministic"]

CALLER = "exact.confidence_bounds"
DEFAULT_TOL_FRACTION = 1e-3
"""The default `tol`, as a fraction of the diameter bound."""


def confidence_bounds(
    transitions: Transitions,
    *,
    reward_range: tuple[float, float],
    kind: QueryKind = "bisimulation",
    policy: ArrayLike | None = None,
    confidence: float = 0.95,
    discount: float = DEFAULT_DISCOUNT,
    sampling: Sampling = "adaptive",
    support: Support = "states",
    rewards: RewardNoise = "random",
    num_states: int | None = None,
    tol: float | None = None,
) -> DistanceBounds:
    """Bound d~, d^pi or d_lax of the environment from which transitions were sampled.

    With probability at least `confidence` over the data, the bounds hold for all pairs of states at
    once. They are fixed points of the empirical operator F with a slack for each pair of rows,

        L = max(F(L) - slack, 0),    U = min(F(U) + slack, D)

    where D is the diameter bound. The slack of the lower bound is the sum of two terms, one per
    state and action: how far the mean reward and, in W1, the empirical distribution may be off.
    That of the upper bound is often smaller, since it needs the mean of *one* function of the
    outcome only, the optimal potential of the true rows: Hoeffding's or the empirical Bernstein
    inequality. The proof is in the documentation (concepts, confidence bounds). Rounding is
    included.

    What is assumed: the environment is an MDP whose states were all visited, but see `num_states`;
    each time action a is taken in s, reward and successor are drawn independently from the same
    distribution; all rewards are in `reward_range`; every state has every action; the terminal
    state is absorbing and pays 0. Actions that were never taken in a state leave its bounds
    trivial, 0 and D, and so do ids that no step left, or entered without terminating.

    Args:
        transitions: the data, with ids of states and discrete actions.
        reward_range: (low, high) of all rewards that the environment can pay; 0 is added where an
            episode terminated.
        kind: the distance: "bisimulation" (d~), "on_policy" (d^pi) or "lax" (d_lax).
        policy: for "on_policy": (S,) actions or (S, A) probabilities by id of the states, with or
            without the terminal state. It must not depend on the data. Default: the policy that
            recorded the data.
        confidence: the probability that all bounds hold, above 0 and below 1.
        discount: in [0, 1).
        sampling: "adaptive": the number of samples per state and action is random, as in recorded
            episodes; "fixed": it was chosen before any sample was drawn; bounds are tighter then.
        support: "states": every state may be a successor; "observed": only those that were observed
            after the same state and action, which is an assumption that the data cannot show.
        rewards: "random": the reward of a state and action has a distribution; "deterministic": it
            is a constant.
        num_states: the number of states of the environment, the terminal state included; default:
            those that were visited.
        tol: sweeps end when no bound could be tightened by more; default D / 1000. The bounds hold
            whenever they end.

    Returns:
        The bounds. `mdp` is the empirical MDP. In `metadata`, "mean_width" is the mean width of the
        bounds of two visited states, "vacuous" the fraction of them that are 0 and D, "samples" the
        least, the median and the largest number of samples per state and action, and "without" the
        number of states and actions that have none.

    Raises:
        InputError: an argument has the wrong type or value, a reward is outside the range, or
            rewards differ that are said to be deterministic.
        InsufficientMemory: the bounds do not fit into memory.

    >>> rng = np.random.default_rng(0)
    >>> states, draws = np.repeat([0, 1, 2], 5_000), rng.random(15_000)
    >>> successors = np.where(draws < np.array([0.2, 0.7, 0.5])[states], 1, 2)
    >>> data = Transitions(states, 0 * states, 1.0 * (states == 1), successors, 0 * states > 0)
    >>> d = confidence_bounds(data, reward_range=(0, 1), discount=0.5, sampling="fixed")
    >>> lower, upper = d.bounds(0, 1)  # the true distance is 23/18
    >>> bool(lower < 23 / 18 < upper), round(upper - lower, 1), d.confidence
    (True, 0.1, 0.95)
    """
    start_time = time.perf_counter()
    options = _validate_options(
        transitions, kind, policy, confidence, sampling, support, rewards, tol
    )
    discount = validate_discount(discount)
    low, high = _resolve_range(transitions, reward_range)
    mdp = transitions.to_mdp(discount=discount, unseen="missing")
    visited = _find_visited(transitions, mdp.num_states)
    total_states = int(visited.sum())
    if num_states is not None:
        total_states = require_integer(CALLER, "num_states", num_states, total_states)
    _memory.require_memory(
        f"{CALLER}: {mdp.num_states:,} states need",
        80.0 * mdp.num_states**2,
        "record fewer states, or merge them",
    )
    diameter = (high - low) / (1 - discount)
    samples = _collect_samples(transitions, mdp, kind, policy, options, (low, high), visited)
    weights = None
    if kind == "on_policy" and policy is not None:
        weights = _resolve_weights(mdp, policy, transitions.terminal_state is not None)
    dynamics, chain = _resolve_dynamics(samples, mdp, weights, discount)
    comparisons = total_states * (total_states - 1) / 2
    comparisons *= {"bisimulation": mdp.num_actions, "lax": mdp.num_actions**2}.get(kind, 1)
    slack = RowSlack(
        samples, confidence, total_states, max(comparisons, 1.0), discount, diameter, weights
    )
    iteration = IntervalIteration(
        dynamics, lax=kind == "lax", diameter_bound=diameter, chain=chain,
        pair_error=_bound_model_rounding(samples, low, high, diameter, discount),
    )  # fmt: skip
    tol = DEFAULT_TOL_FRACTION * diameter if tol is None else tol
    sweeps = _iterate(iteration, slack, tol, discount)
    metadata = {
        "method": "interval iteration with confidence sets",
        **{name: getattr(options, name) for name in ("sampling", "support", "rewards")},
        "reward_range": [low, high],
        "num_states": total_states,
        **samples.describe(),
        **_summarise(iteration, visited),
        "sweeps": sweeps,
        "model": "empirical",
        "seconds": round(time.perf_counter() - start_time, 6),
        "bisimetric": bisimetric.__version__,
        "numpy": np.__version__,
    }
    actions: NDArray[Any] | None = weights
    if weights is not None and np.asarray(policy).ndim == 1:
        actions = weights.argmax(axis=1)
    return DistanceBounds(
        iteration.lower, iteration.upper, kind, mdp, actions, float(confidence), metadata
    )


@dataclasses.dataclass(frozen=True)
class _Options:
    """What is assumed of the data."""

    sampling: Sampling
    support: Support
    rewards: RewardNoise


def _validate_options(
    transitions: Any,
    kind: str,
    policy: Any,
    confidence: float,
    sampling: Any,
    support: Any,
    rewards: Any,
    tol: float | None,
) -> _Options:
    if not isinstance(transitions, Transitions):
        raise InputError(
            f"{CALLER}: transitions are {type(transitions).__name__} and must be Transitions; see "
            "datasets, or exact for an MDP that is known."
        )
    validate_confidence(CALLER, confidence)
    choices = {
        "kind": (kind, QueryKind),
        "sampling": (sampling, Sampling),
        "support": (support, Support),
        "rewards": (rewards, RewardNoise),
    }
    for name, (value, allowed) in choices.items():
        if value not in get_args(allowed):
            raise InputError(
                f"is {value!r} and must be one of {get_args(allowed)}", caller=CALLER, argument=name
            )
    if policy is not None and kind != "on_policy":
        raise InputError(
            "is for kind='on_policy'", caller=CALLER, argument="policy", remedy="leave it out"
        )
    if tol is not None:
        validate_tol(CALLER, tol)
    return _Options(sampling, support, rewards)


def _resolve_range(transitions: Transitions, reward_range: Any) -> tuple[float, float]:
    """Return the range of all rewards, with 0 where an episode terminated."""
    low, high = validate_reward_range(reward_range, CALLER)
    least, most = float(transitions.rewards.min()), float(transitions.rewards.max())
    if least < low or most > high:
        raise InputError(
            f"is ({low:g}, {high:g}) and rewards from {least:g} to {most:g} were recorded",
            caller=CALLER,
            argument="reward_range",
            remedy="give the range of all rewards",
        )
    if transitions.terminated.any():
        low, high = min(low, 0.0), max(high, 0.0)
    return low, high


def _find_visited(transitions: Transitions, num_states: int) -> NDArray[np.bool_]:
    """Return which ids are states (S,): left, entered without termination, or terminal."""
    assert transitions.states is not None
    assert transitions.next_states is not None
    visited = np.zeros(num_states, np.bool_)
    visited[transitions.states] = True
    visited[transitions.next_states[~transitions.terminated]] = True
    if transitions.terminal_state is not None:
        visited[transitions.terminal_state] = True
    return visited


def _collect_samples(
    transitions: Transitions,
    mdp: MDP,
    kind: str,
    policy: Any,
    options: _Options,
    reward_range: tuple[float, float],
    visited: NDArray[np.bool_],
) -> RowSamples:
    """Count the outcomes of every row: a state and action, or a state of the recorded policy."""
    assert transitions.states is not None
    num_actions = mdp.num_actions
    actions = transitions.actions
    if kind == "on_policy" and policy is None:
        num_actions, actions = 1, np.zeros_like(actions)
    return RowSamples.count(
        transitions.states * num_actions + actions,
        transitions.successors,
        transitions.rewards,
        shape=(mdp.num_states, num_actions),
        terminal=transitions.terminal_state,
        visited=visited,
        reward_range=reward_range,
        adaptive=options.sampling == "adaptive",
        observed_only=options.support == "observed",
        deterministic_rewards=options.rewards == "deterministic",
        caller=CALLER,
    )


def _resolve_weights(mdp: MDP, policy: ArrayLike, has_terminal: bool) -> NDArray[np.float64]:
    """Return the probabilities (S, A) of a policy, which may take actions that were not seen."""
    chosen = np.asarray(policy)
    if has_terminal and chosen.shape[:1] == (mdp.num_states - 1,):
        chosen = np.concatenate([chosen, chosen[-1:]])
    found = validate_policy(mdp.replace(available=None), chosen)
    if found.ndim == 1:
        return np.asarray(np.eye(mdp.num_actions)[found])
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def _resolve_dynamics(
    samples: RowSamples, mdp: MDP, weights: NDArray[np.float64] | None, discount: float
) -> tuple[MDP, InducedChain | None]:
    """Return the empirical MDP with every action, or the chain of a policy."""
    P, R = samples.estimate()
    dynamics = MDP(P, R, discount, is_empirical=True)
    if weights is None:
        return dynamics, None
    chain = induce_chain(dynamics, weights)
    return chain.mdp, chain


def _bound_model_rounding(
    samples: RowSamples, low: float, high: float, diameter: float, discount: float
) -> float:
    """Bound the rounding of mean rewards and relative frequencies, in one update of a pair.

    A mean of K rewards takes K + 1 roundings, relative to the largest of them. Frequencies take one
    rounding each, and the rows of an MDP are divided by their sums.
    """
    largest = max(abs(low), abs(high))
    reward = (float(samples.totals.max()) + 4) * (UNIT * largest + TINY)
    mass = (int(np.diff(samples.starts).max()) + 4) * UNIT
    return 2 * (reward + discount * mass * diameter) * (1 + 16 * UNIT)


def _iterate(iteration: IntervalIteration, slack: RowSlack, tol: float, discount: float) -> int:
    """Update all pairs until little changes; return the number of sweeps."""
    if iteration.num_pairs == 0 or iteration.diameter <= TINY:
        return 0
    target = tol * (1 - discount)
    with announce_compilation("the kernels"):
        iteration.slack = _shape(slack.compute(iteration.upper), iteration)
    sweeps, change = 0, math.inf
    with show_progress(1.0, "confidence bounds: digits of the change") as progress:
        while change > target:
            change = iteration.update()
            iteration.slack = _shape(slack.compute(iteration.upper), iteration)
            sweeps += 1
            fraction = convergence_fraction(change, target, iteration.diameter)
            progress.set_position(fraction, f"sweep {sweeps:,}")
    return sweeps


def _shape(slack: Slack, iteration: IntervalIteration) -> Slack:
    """Return the slack with the shape of the rewards."""
    return Slack(*(field.reshape(iteration.model.reward.shape) for field in slack))


def _summarise(iteration: IntervalIteration, visited: NDArray[np.bool_]) -> dict[str, float]:
    """Return the mean width of the bounds of visited states, and the fraction of vacuous ones."""
    among = visited[iteration.first] & visited[iteration.second]
    if not among.any():
        return {"mean_width": 0.0, "vacuous": 0.0}
    lower = iteration.lower[iteration.first, iteration.second][among]
    upper = iteration.upper[iteration.first, iteration.second][among]
    vacuous = (lower <= 0) & (upper >= iteration.diameter * (1 - 1e-9))
    return {"mean_width": float((upper - lower).mean()), "vacuous": float(vacuous.mean())}
