"""Learned: a distance that a network approximates, of any two observations.

Nearest observations by a metric network, without looking at all of them.

By the triangle inequality d(x, y) >= |d(x, p) - d(y, p)| for every pivot p. The distances of all
observations to some pivots are known beforehand, so that those that must be farther than what was
found already are passed over.
"""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bisimetric._progress import jit
from bisimetric.distance import Distance
from bisimetric.errors import InputError, require_integer, suggest_names
from bisimetric.learned import files
from bisimetric.learned.build_sources import source_from_transitions
from bisimetric.learned.losses import (
    LOSSES,
    LearnedKind,
    build_action_mask,
    compute_reward_gaps,
    map_over_pairs,
)
from bisimetric.learned.networks.metric_networks import MetricNetwork, PairQEnsemble
from bisimetric.learned.networks.pair_network import FunctionalNetwork, Parameters
from bisimetric.learned.sources import Batch, FeatureScaling, TrainingSource
from bisimetric.mdp import MDP, validate_discount
from bisimetric.transitions import Transitions

DISTANCE_FORMAT = "bisimetric learned distance, version 1"
EVALUATION_BATCH = 256
"""Observations that a network is judged by."""


class Quality(NamedTuple):
    """How far a network is from being a distance, and from its own equation.

    Attributes:
        symmetry: the largest |psi(x, y) - psi(y, x)|.
        identity: the largest psi(x, x).
        triangle: the largest d(x, z) - d(x, y) - d(y, z), at least 0.
        residual: the mean |psi - T| over pairs of data, T the target with the whole horizon; of
            networks with one value an action, of the value of the action that was taken.
        largest: the largest d.
    """

    symmetry: float
    identity: float
    triangle: float
    residual: float
    max_distance: float


@dataclasses.dataclass(frozen=True, eq=False)
class LearnedDistance:
    """An approximation of a distance: psi(x, y), symmetrised as max(psi(x, y), psi(y, x)).

    Nothing is proven of it. `quality` measures how far it is from a metric and from the equation
    that it was trained on. `d(x, y)` takes two observations, or ids or names of states where it
    was learned from an MDP or from data whose observations are ids; None stands for the end of an
    episode.

    Attributes:
        kind: "bisimulation", "on_policy" or "mico".
        discount: that of the distance.
        network, parameters: psi.
        scale: how observations become features.
        mdp: the MDP whose states it was learned from, or None.
        points: (S, k), the observations of the states, or None.
        made: how it was made.
        history: what was measured on the way, by name; `step` tells when.
        names: one name a state, or None.
    """

    kind: LearnedKind
    discount: float
    network: Any
    parameters: Parameters
    scaling: FeatureScaling
    mdp: MDP | None = None
    points: NDArray[np.float32] | None = None
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)
    history: dict[str, NDArray[np.float64]] = dataclasses.field(default_factory=dict)
    names: tuple[str, ...] | None = None

    def __call__(self, x: Any, y: Any) -> float:
        """The distance of two observations."""
        return float(self._evaluate(self._featurise(x), self._featurise(y))[0, 0])

    def table(self, x: Any, y: Any = None) -> NDArray[np.float32]:
        """The distances of all pairs of observations (n, ...) and (m, ...), (n, m)."""
        first = self._featurise_rows(x)
        return np.asarray(self._evaluate(first, first if y is None else self._featurise_rows(y)))

    @property
    def values(self) -> NDArray[np.float32]:
        """(S, S), the distances of the states that it was learned from."""
        if self.points is None:
            raise InputError(
                "Learned: values are those of listed states, and this was learned from "
                "observations; use table(observations)."
            )
        return self.table(self.points)

    def to_distance(self) -> Distance:
        """The distances of the states of the MDP as a table; nothing is proven of its error.

        Where a state and itself are at distance 0 by definition, they are so in the table.
        """
        if self.mdp is None:
            raise InputError("Learned: a table of states needs an MDP; use table(observations).")
        values = self.values.astype(np.float64)
        if LOSSES[self.kind].zero_self_distance:
            np.fill_diagonal(values, 0.0)
        policy = self.metadata.get("policy")
        return Distance(
            values,
            math.inf,
            self.kind,
            self.mdp,
            None if policy is None else np.asarray(policy),
            {key: value for key, value in self.metadata.items() if key != "policy"},
        )

    def quality(self, source: Transitions | TrainingSource, seed: int = 0) -> Quality:
        """How far it is from being a distance, and from its equation, on a batch of a source.

        Data is scaled like that which it was learned from. A source is used as it is.
        """
        if isinstance(source, Transitions):
            source = source_from_transitions(self.kind, source, scaling=self.scaling)
        if not isinstance(source, TrainingSource):
            raise InputError(
                f"Learned.quality: the source is {type(source).__name__} and must be Transitions, "
                "or made by of_mdp or of_transitions."
            )
        if not source.scaling.matches(self.scaling):
            raise InputError(
                "Learned.quality: the source is scaled in another way than what was learned from; "
                "make it with scale=d.scale."
            )
        batch = source.sample_batch(
            jax.random.key(require_integer("Learned.quality", "key", seed, 0)), EVALUATION_BATCH
        )
        found = _evaluate_quality_jit(
            self.network, self.kind, self.discount, self.parameters, batch
        )
        return Quality(*(float(each) for each in found))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one .safetensors file; it appears whole or not at all."""
        if isinstance(self.network, FunctionalNetwork):
            raise InputError(
                "Learned: a network of one's own cannot be saved; keep the parameters of yours."
            )
        about = {
            "format": DISTANCE_FORMAT,
            "kind": self.kind,
            "discount": self.discount,
            **files.describe_network(self.network),
            "ends": self.scaling.has_terminal,
            "shape": self.scaling.shape,
            "names": self.names,
            "made": self.metadata,
        }
        tensors = files.name_leaves(self.parameters)
        tensors |= {"shift": self.scaling.shift, "width": self.scaling.width}
        tensors |= {f"{files.HISTORY_PREFIX}{name}": array for name, array in self.history.items()}
        if self.points is not None:
            tensors["points"] = self.points
        files.write_tensors(path, tensors, about)

    @classmethod
    def load(cls, path: str | os.PathLike[str], mdp: MDP | None = None) -> LearnedDistance:
        """Reads what `save` wrote; `mdp` is that whose states it was learned from."""
        tensors, about = files.read_tensors(path, DISTANCE_FORMAT, "learned distance")
        points = tensors.get("points")
        if points is not None and (points.ndim != 2 or points.dtype.kind != "f"):
            raise InputError(
                f"{path} is damaged: its points are {points.dtype} of shape {points.shape} and "
                "must be one row of numbers per state; train it anew."
            )
        if mdp is not None and (points is None or len(points) != mdp.num_states):
            found = "none" if points is None else len(points)
            raise InputError(
                f"{path} is of another world: it knows {found} of its states and the MDP has "
                f"{mdp.num_states}; give the MDP that it was learned from, or none."
            )
        try:
            network = files.build_network(about)
            shape, names = about["shape"], about["names"]
            scale = FeatureScaling(
                tensors["shift"],
                tensors["width"],
                about["ends"],
                None if shape is None else tuple(shape),
            )
            if getattr(network, "copies", 1) > len(tensors):
                raise ValueError(f"its copies are {network.copies} and its weights are fewer")
            # Shapes only: what a damaged file claims to be large is not allocated.
            start = jax.eval_shape(
                lambda key: network.init(key, scale.num_features), jax.random.key(0)
            )
            places, tree = jax.tree_util.tree_flatten_with_path(start)
            weights = []
            for place, leaf in places:
                array = tensors[jax.tree_util.keystr(place)]
                if array.shape != leaf.shape or array.dtype != leaf.dtype:
                    raise ValueError("its weights do not fit its network")
                weights.append(jnp.asarray(array))
            if about["kind"] not in LOSSES:
                raise ValueError(f"its kind is {about['kind']!r}")
            if shape is not None and math.prod(shape) != len(scale.shift):
                raise ValueError(f"its shape is {shape} and its shift has {len(scale.shift)}")
            if points is not None and points.shape[1] != len(scale.shift):
                raise ValueError(f"its points have {points.shape[1]} features")
            if names is not None and (points is None or len(names) != len(points)):
                raise ValueError(f"its names are {len(names)} and must be one per state")
            discount = validate_discount(about["discount"])
            return cls(
                about["kind"],
                discount,
                network,
                jax.tree.unflatten(tree, weights),
                scale,
                None if mdp is None else mdp.replace(discount=discount),
                points,
                dict(about["made"]),
                files.extract_history(tensors),
                None if names is None else tuple(names),
            )
        except files.DAMAGE_ERRORS as error:
            what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{path} is no learned distance of bisimetric ({what}).") from None

    def _featurise(self, x: Any) -> NDArray[np.float32]:
        """The features (1, k) of one observation, of a state, or of the end."""
        if x is None:
            if not self.scaling.has_terminal:
                raise InputError(
                    "Learned: no episode ended in the data, so that None means nothing."
                )
            return self.scaling.terminal
        if self.points is not None and np.ndim(x) == 0:
            return self.scaling(self.points[[self._resolve_state(x)]])
        return self.scaling([x])

    def _featurise_rows(self, x: Any) -> NDArray[np.float32]:
        """The features (n, k) of observations (n, ...), or of states."""
        if self.points is not None and np.ndim(x) == 1:
            return self.scaling(self.points[[self._resolve_state(each) for each in x]])
        return self.scaling(x)

    def _resolve_state(self, state: Any) -> int:
        """The id of a state given by id or by name."""
        known = 0 if self.points is None else len(self.points)
        if self.names is not None and state in self.names:
            return self.names.index(state)
        try:
            index = int(state)
        except (TypeError, ValueError):
            index = -1
        if not (0 <= index < known) or (not isinstance(state, str) and index != state):
            hint = suggest_names(str(state), self.names or ())
            raise InputError(
                f"Learned: there is no state {state!r}"
                + (hint or f"; use an id from 0 to {known - 1}.")
            )
        return index

    def _evaluate(self, x: Any, y: Any) -> Array:
        return _compute_distances_jit(self.network, self.parameters, x, y)

    def __repr__(self) -> str:
        return (
            f"Learned({self.kind}, discount {self.discount:g}, {self.scaling.num_features} features, an "
            "approximation)"
        )


def compute_distances(network: Any, parameters: Parameters, x: Array, y: Array) -> Array:
    """d(x_i, y_j) = max(psi(x_i, y_j), psi(y_j, x_i)), (n, m)."""
    if network.symmetric:
        found: Array = network.table(parameters, x, y)
        return found
    return jnp.maximum(network.table(parameters, x, y), network.table(parameters, y, x).T)


_compute_distances_jit = jit(compute_distances, static_argnums=0)


def _evaluate_quality(
    network: Any, kind: LearnedKind, discount: float, parameters: Parameters, batch: Batch
) -> tuple[Array, ...]:
    psi = network.table(parameters, batch.x, batch.x)
    d = jnp.maximum(psi, psi.T)
    loss = LOSSES[kind]
    gap, same = compute_reward_gaps(batch.reward), jnp.eye(len(batch.reward), dtype=bool)
    ahead = network.table(parameters, batch.x_next, batch.x_next)
    if isinstance(network, PairQEnsemble):
        # Each action has an equation of its own; the end takes the action of the other.
        action = jnp.maximum(batch.action[:, None], batch.action[None, :])
        action = jnp.maximum(action, 0) if loss.same_actions else jnp.zeros_like(action)
        each = network.values(parameters, batch.x, batch.x)
        found = jnp.take_along_axis(each, action[None], axis=0)[0]
        targets = jnp.where(same, 0.0, gap + discount * ahead)
    else:
        found = psi
        targets = map_over_pairs(loss.target)(gap, ahead, psi, same, discount, jnp.float32(1.0))
    counts = build_action_mask(batch.action) if loss.same_actions else jnp.ones_like(same)
    through = jax.lax.map(lambda row: jnp.min(row[:, None] + d, axis=0), d)
    return (
        jnp.abs(psi - psi.T).max(),
        psi.diagonal().max(),
        jnp.maximum(d - through, 0.0).max(),
        jnp.sum(counts * jnp.abs(found - targets)) / jnp.sum(counts),
        d.max(),
    )


_evaluate_quality_jit = jit(_evaluate_quality, static_argnums=(0, 1, 2))


ROUNDING_SLACK = 1e-4
"""The share of the largest distance that rounding may add to a bound."""

QUERY_BLOCK = 256
"""How many observations are looked at together."""


class Neighbours(NamedTuple):
    """What was found: `ids` (k,) among the observations, nearest first, and their `distances`.

    `looked` tells how many observations were compared with, the pivots included.
    """

    ids: NDArray[np.int64]
    distances: NDArray[np.float32]
    num_compared: int


class PivotIndex:
    """Observations, ready to be asked for those nearest to another one.

    Args:
        d: a learned distance whose network is a `MetricNetwork`: no other is sure to keep the
            triangle inequality, which an index stands on.
        observations: (n, ...).
        pivots: how many of them all others are compared with beforehand, each as far as possible
            from those before.

    `nearest(x, k)` is what comparing with all of them would give; where all are about equally far
    from each other, as in many a world at a discount near 1, little is passed over.
    """

    def __init__(
        self, distance: LearnedDistance, observations: Any, *, num_pivots: int = 16
    ) -> None:
        if not (
            isinstance(distance.network, PairQEnsemble)
            and isinstance(distance.network.network, MetricNetwork)
        ):
            raise InputError(
                "Index: the network of d is no MetricNetwork, and may break the triangle "
                "inequality; use table(observations)."
            )
        self.distance = distance
        self.observations = np.asarray(observations)
        count = len(self.observations)
        if not count:
            raise InputError("Index: there are no observations; give at least one.")
        wanted = min(require_integer("Index", "pivots", num_pivots, 1), count)
        chosen, columns = [0], [distance.table(self.observations, self.observations[:1])[:, 0]]
        while len(chosen) < wanted:
            far = int(np.min(columns, axis=0).argmax())
            chosen.append(far)
            columns.append(
                distance.table(self.observations, self.observations[far : far + 1])[:, 0]
            )
        self.pivots = np.array(chosen, np.int64)
        self.pivot_distances = np.stack(columns, axis=1)

    def __len__(self) -> int:
        return len(self.observations)

    def nearest(self, x: Any, k: int = 5) -> Neighbours:
        """The k observations nearest to x, or all where there are fewer; ties by place."""
        k = min(require_integer("Index.nearest", "k", k, 1), len(self))
        seen = np.asarray(x)[None]
        own = self.distance.table(seen, self.observations[self.pivots])[0]
        bound = np.abs(self.pivot_distances - own).max(axis=1)
        slack = ROUNDING_SLACK * float(max(self.pivot_distances.max(), own.max()))
        order = np.argsort(bound, kind="stable")
        found = np.full(len(self), np.inf, np.float32)
        found[self.pivots] = own
        looked = len(self.pivots)
        # Always as many together, since each number of them is compiled anew.
        size = min(QUERY_BLOCK, len(self))
        for start in range(0, len(self), size):
            if bound[order[start]] > np.partition(found, k - 1)[k - 1] + slack:
                break
            part = order[min(start, len(self) - size) :][:size]
            found[part] = self.distance.table(seen, self.observations[part])[0]
            looked += size
        ids = np.argsort(found, kind="stable")[:k]
        return Neighbours(ids, found[ids], looked)
