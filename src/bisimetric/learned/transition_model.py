"""Transition models of recorded data or an MDP, and the distances between their states.

States that repeat are the states of the model; its probabilities are relative frequencies.
Otherwise a sample of the recorded states represents them all, and the outcomes of a state are those
of the nearest recorded states (kernel-based reinforcement learning, Ormoneit & Sen 2002). `exact`
then computes the distances between the states of the model, with optimal transport.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.spatial import cKDTree

from bisimetric import exact
from bisimetric._memory import require_memory
from bisimetric.distance import Distance
from bisimetric.errors import InputError, NotConverged
from bisimetric.exact._gap_solver import add_ground_distance, bound_diameter, evaluate_gap
from bisimetric.exact.gaps import GapFunction
from bisimetric.learned.costs import require_gap_of_mdp
from bisimetric.learned.losses import LOSSES, LearnedKind
from bisimetric.learned.repeated_states import MIN_REPETITIONS, find_first_occurrences
from bisimetric.learned.source_builders import (
    choose_points,
    has_id_observations,
    source_from_transitions,
    standardise,
    validate_points,
)
from bisimetric.learned.sources import StateSource, TrainingSource, TransitionSource
from bisimetric.mdp import MDP
from bisimetric.mdp._validation import resolve_policy
from bisimetric.transitions import Transitions
from bisimetric.transitions.empirical_mdp import mean_rewards

RELATIVE_TOLERANCE = 1e-4
"""The error of the distances of a model, as a share of the diameter bound."""

NEIGHBOUR_BLOCK = 2**24
"""Distances between features that are computed at once."""

TREE_FEATURES = 16
"""The most features for which a k-d tree finds nearest neighbours."""


@dataclasses.dataclass(frozen=True, eq=False)
class ModelSource(StateSource):
    """The states of a transition model, and the distances between them.

    Attributes:
        points: (S, k), the observations of the states of an MDP; (0, k) for recorded data.
        successor: (S, 1), unused.
        reward: (S, 1), unused.
        scaling: how observations became features.
        noise: 0.
        noise_clip: 0.
        cost: empty.
        features: (N, num_features), those of the states of the model.
        values: (N, N), the distances between them.
        repeats: whether its states are all states of the data; otherwise a sample of them.
        summary: what is worth reporting about the model.
    """

    features: Array = dataclasses.field(default_factory=lambda: jnp.zeros((0, 0)))
    values: Array = dataclasses.field(default_factory=lambda: jnp.zeros((0, 0)))
    repeats: bool = True
    summary: tuple[tuple[str, Any], ...] = ()

    @property
    def enumerable(self) -> bool:
        """Whether these are all states."""
        return self.repeats

    def compute_features(self) -> Array:
        """Return the features (N, num_features) of the states of the model."""
        return self.features


jax.tree_util.register_dataclass(
    ModelSource,
    data_fields=["points", "successor", "reward", "scaling", "cost", "features", "values"],
    meta_fields=["noise", "noise_clip", "repeats"],
    # It would require another compilation for every model.
    drop_fields=["summary"],
)


def source_from_model(
    kind: LearnedKind,
    source: MDP | Transitions | TrainingSource,
    policy: ArrayLike | None = None,
    *,
    discount: float,
    points: ArrayLike | None = None,
    max_states: int = 1_000,
    num_representatives: int = 150,
    neighbours: int | None = None,
    gap: ArrayLike | GapFunction | None = None,
) -> ModelSource:
    """Return the states of a transition model with their distances, as a training source.

    An MDP is its own model. For recorded data, the states of the model are

    - the recorded states, if they repeat and are at most `max_states`: probabilities are relative
      frequencies, and rewards are means;
    - otherwise a sample of `num_representatives`: the outcomes of a state and action are those of
      the `neighbours` nearest recorded states with that action, and each next state is replaced by
      the nearest state of the model.

    Nearest is by the Euclidean distance of scaled observations. An action that was never taken in a
    state has the outcomes of the nearest state in which it was.

    Args:
        kind: "bisimulation" or "on_policy".
        source: an MDP, transitions, or a training source of transitions.
        policy: (S,) actions, or for an MDP also (S, A) probabilities; see `learned.on_policy`.
        discount: the discount of the distance.
        points: (S, ...), the features of the states of an MDP, such as vectors or images, in place
            of its own.
        max_states: the most states that all are states of the model.
        num_representatives: states of the model otherwise.
        neighbours: recorded states whose outcomes are those of a representative; default: the
            square root of the number of transitions.
        gap: for an MDP, immediate costs in place of the differences of rewards; see
            `exact.bisimulation`.

    Returns:
        The source; a `ModelBasedConfig` learns from it.

    Raises:
        InputError: when an argument is out of range, or states are ids and an action was never
            taken in one of them.
        InsufficientMemory: when the distances of the model do not fit into memory.

    >>> coin = MDP([[[0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]], [[0], [0], [1]], discount=0.5)
    >>> source_from_model("bisimulation", coin, discount=0.5).values.tolist()
    [[0.0, 0.5, 1.5], [0.5, 0.0, 2.0], [1.5, 2.0, 0.0]]
    """
    if LOSSES[kind].kind not in ("bisimulation", "on_policy"):
        raise InputError(
            "is model-based, which is for d~ and d^pi",
            caller=f"learned.{kind}",
            argument="config",
            remedy="give a learned.PairTDConfig",
        )
    if isinstance(source, MDP):
        return _source_from_mdp(kind, source, policy, points, discount, gap)
    require_gap_of_mdp(kind, source, gap)
    ids = isinstance(source, Transitions) and has_id_observations(source)
    if isinstance(source, Transitions):
        source = source_from_transitions(kind, source, policy)
    if not isinstance(source, TransitionSource):
        raise InputError(
            f"is a {type(source).__name__}, which has no transition model",
            caller=f"learned.{kind}",
            argument="source",
            remedy="give the MDP or the transitions",
        )
    return _source_from_data(
        kind, source, ids, discount, max_states, num_representatives, neighbours
    )


def _source_from_mdp(
    kind: LearnedKind,
    mdp: MDP,
    policy: ArrayLike | None,
    points: ArrayLike | None,
    discount: float,
    gap: ArrayLike | GapFunction | None,
) -> ModelSource:
    """Return the states of an MDP with their exact distances."""
    model = mdp.replace(discount=discount)
    described = choose_points(mdp) if points is None else validate_points(kind, mdp, points)
    flat = described.reshape(len(described), -1)
    scaling = standardise(flat)
    if described.ndim > 2:
        scaling = dataclasses.replace(scaling, shape=described.shape[1:])
    actions = None
    if kind == "on_policy":
        actions = resolve_policy(kind, mdp, policy, caller="learned")
    values, error = _solve(kind, model, actions, gap)
    summary = {"states": mdp.num_states, "estimated_from": "the MDP", "error": error}
    return ModelSource(
        jnp.asarray(flat),
        jnp.zeros((len(flat), 1), jnp.int32),
        jnp.zeros((len(flat), 1)),
        scaling,
        features=(jnp.asarray(flat) - scaling.shift) / scaling.width,
        values=jnp.asarray(values),
        summary=tuple(summary.items()),
    )


def _source_from_data(
    kind: LearnedKind,
    source: TransitionSource,
    ids: bool,
    discount: float,
    max_states: int,
    num_representatives: int,
    neighbours: int | None,
) -> ModelSource:
    """Return the states of an estimated model with their distances."""
    data = _RecordedSteps.from_source(kind, source)
    # Rows of recorded states come first, then those of states that are only entered.
    everything = np.concatenate([data.x, data.x_next])
    distinct, row = np.unique(find_first_occurrences(everything), return_inverse=True)
    state, successor = row[: len(data.x)], row[len(data.x) :]
    num_left = len(np.unique(state))
    repeats = len(distinct) <= max_states and len(state) >= MIN_REPETITIONS * num_left
    if ids and not repeats:
        raise InputError(
            f"has {len(distinct):,} states, and a model of states without observations has at most "
            f"{max_states:,}, each recorded more than once",
            caller=f"learned.{kind}",
            argument="source",
            remedy="raise max_states of the ModelBasedConfig, collect more, or give a "
            "learned.PairQConfig",
        )
    if repeats:
        features = everything[distinct]
        pair, step = state * data.num_actions + data.action, np.arange(len(state))
    else:
        chosen = np.random.default_rng(0).permutation(np.unique(state))[:num_representatives]
        features = everything[distinct[np.sort(chosen)]]
        if source.scaling.has_terminal:
            features = np.concatenate([features, source.scaling.terminal])
        successor = _find_nearest(data.x_next, features, 1)[:, 0]
        if neighbours is None:
            neighbours = math.isqrt(len(state) - 1) + 1
        pair, step = _pair_with_neighbours(data, features, neighbours)
    size = len(features)
    require_memory(
        f"learned.{kind}: the distances of a model of {size:,} states need",
        4.0 * 8 * size**2,
        "lower max_states of the ModelBasedConfig",
    )
    terminal = np.zeros(size, np.bool_)
    if source.scaling.has_terminal:
        terminal = features[:, -1] == 1
    mdp, visits, untried = _estimate_mdp(data, pair, step, successor, features, terminal, discount)
    if ids and untried.any():
        raise InputError(
            f"lacks actions in {int(untried.any(axis=1).sum()):,} of {size:,} states, and ids do "
            "not tell which other states are similar",
            caller=f"learned.{kind}",
            argument="source",
            remedy="collect more, give observations, or give a learned.PairQConfig",
        )
    values, error = _solve(kind, mdp, None, None)
    random = (np.diff(mdp.P.indptr) > 1) & (visits > 0)
    summary = {
        "states": size,
        "estimated_from": "repeated states" if repeats else "nearest neighbours",
        "stochastic": bool(random.any()),
        # Random outcomes with few visits bias distances.
        "median_visits": float(np.median(visits[random])) if random.any() else None,
        "untried": int(untried.sum()),
        "error": error,
    }
    empty = jnp.zeros((0, len(source.scaling.shift)))
    return ModelSource(
        empty,
        jnp.zeros((size, 1), jnp.int32),
        jnp.zeros((size, 1)),
        source.scaling,
        features=jnp.asarray(features, jnp.float32),
        values=jnp.asarray(values),
        repeats=repeats,
        summary=tuple(summary.items()),
    )


@dataclasses.dataclass(frozen=True)
class _RecordedSteps:
    """Recorded transitions as arrays of NumPy; d^pi has a single action."""

    x: NDArray[np.float32]
    action: NDArray[np.int64]
    reward: NDArray[np.float64]
    x_next: NDArray[np.float32]
    num_actions: int

    @classmethod
    def from_source(cls, kind: LearnedKind, source: TransitionSource) -> _RecordedSteps:
        x = np.asarray(source.x, np.float32)
        x_next = np.asarray(source.x_next)
        if x_next.ndim == 1:
            x_next = x[x_next]
        steps = len(source.reward)
        action = np.zeros(steps, np.int64)
        if LOSSES[kind].same_actions:
            action = np.asarray(source.action, np.int64)
        return cls(
            x[:steps],
            action,
            np.asarray(source.reward, np.float64),
            np.asarray(x_next, np.float32),
            int(action.max()) + 1,
        )


def _pair_with_neighbours(
    data: _RecordedSteps, features: NDArray[np.float32], neighbours: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows s * A + a, and the recorded steps that are outcomes of theirs, (n,) both."""
    rows, steps = [], []
    for action in range(data.num_actions):
        taken = np.flatnonzero(data.action == action)
        if not len(taken):
            continue
        count = min(neighbours, len(taken))
        nearest = taken[_find_nearest(features, data.x[taken], count)]
        rows.append(np.repeat(np.arange(len(features)) * data.num_actions + action, count))
        steps.append(nearest.ravel())
    return np.concatenate(rows), np.concatenate(steps)


def _estimate_mdp(
    data: _RecordedSteps,
    row: NDArray[np.int64],
    step: NDArray[np.int64],
    successor: NDArray[np.int64],
    features: NDArray[np.float32],
    terminal: NDArray[np.bool_],
    discount: float,
) -> tuple[MDP, NDArray[np.int64], NDArray[np.bool_]]:
    """Return the model of outcomes, the visits of its state-action pairs, and the untried ones.

    An untried pair has the outcomes of the nearest state in which the action was tried.

    Args:
        data: the recorded steps.
        row: (n,) the state-action pair s * A + a of each outcome.
        step: (n,) the recorded step of each outcome.
        successor: (steps,) the state of the model after each recorded step.
        features: (S, k), of the states of the model.
        terminal: (S,), which of them is the terminal state: absorbing, with reward 0.
        discount: the discount.
    """
    size, actions = len(features), data.num_actions
    keep = ~terminal[row // actions]
    row, step = row[keep], step[keep]
    visits = np.bincount(row, minlength=size * actions)
    absorbing = np.flatnonzero(terminal)
    loops = (absorbing[:, None] * actions + np.arange(actions)).ravel()
    pair = np.concatenate([row, loops])
    columns = np.concatenate([successor[step], np.repeat(absorbing, actions)])
    counts = sparse.csr_array((np.ones(len(pair)), (pair, columns)), (size * actions, size))
    counts.data /= np.repeat(np.bincount(pair, minlength=size * actions), np.diff(counts.indptr))
    rewards = mean_rewards(row, data.reward[step], size * actions)[0]
    untried = (visits.reshape(size, actions) == 0) & ~terminal[:, None]
    outcomes_of = np.arange(size * actions)
    for action in np.flatnonzero(untried.any(axis=0)):
        without, tried = (
            np.flatnonzero(each & ~terminal) for each in (untried[:, action], ~untried[:, action])
        )
        nearest = tried[_find_nearest(features[without], features[tried], 1)[:, 0]]
        outcomes_of[without * actions + action] = nearest * actions + action
    P = sparse.csr_array(counts[outcomes_of])
    mdp = MDP(P, rewards[outcomes_of].reshape(size, actions), discount, is_empirical=True)
    return mdp, visits, untried


def _find_nearest(
    queries: NDArray[np.float32], points: NDArray[np.float32], count: int
) -> NDArray[np.int64]:
    """Return the positions of the nearest points of each query, (n, count), nearest first."""
    if queries.shape[1] <= TREE_FEATURES:
        _, found = cKDTree(points).query(queries, k=np.arange(1, count + 1))
        return np.asarray(found, np.int64)
    norms = (points**2).sum(axis=1)
    block = max(NEIGHBOUR_BLOCK // len(points), 1)
    nearest = np.empty((len(queries), count), np.int64)
    for start in range(0, len(queries), block):
        rows = queries[start : start + block]
        # Squared distances up to a constant per query.
        gaps = norms - 2 * (rows @ points.T)
        some = np.argpartition(gaps, count - 1, axis=1)[:, :count]
        order = np.argsort(np.take_along_axis(gaps, some, axis=1), axis=1, kind="stable")
        nearest[start : start + block] = np.take_along_axis(some, order, axis=1)
    return nearest


def _solve(
    kind: LearnedKind, mdp: MDP, policy: NDArray[Any] | None, gap: ArrayLike | GapFunction | None
) -> tuple[NDArray[np.float32], float]:
    """Return the distances of a model, and their proven error."""
    bound = mdp.diameter_bound
    if gap is not None:
        table = evaluate_gap(f"learned.{kind}", kind, mdp, gap, policy, check_triangles=False)
        bound = bound_diameter(add_ground_distance(table, mdp)[0], mdp, lax=False)
    options: dict[str, Any] = {"gap": gap}
    if bound:
        options["tol"] = RELATIVE_TOLERANCE * bound
    try:
        if kind == "bisimulation":
            distance = exact.bisimulation(mdp, **options)
        else:
            distance = exact.on_policy(mdp, policy, **options)
    except NotConverged as error:
        # Networks are in single precision; what was proven is precise enough.
        if not isinstance(error.partial, Distance):
            raise
        distance = error.partial
    return distance.values.astype(np.float32), float(distance.error)
