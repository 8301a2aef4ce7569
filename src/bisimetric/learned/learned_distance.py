"""LearnedDistance: a distance between any two observations, approximated by a network."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import DTypeLike, NDArray

from bisimetric._text import format_names, pluralise, render_html_table
from bisimetric.distance import Distance
from bisimetric.errors import InputError, require_integer, suggest_names
from bisimetric.learned import files, functional, network_files
from bisimetric.learned.costs import require_rewards_only
from bisimetric.learned.evaluation import (
    EVALUATION_BATCH,
    Quality,
    compute_distances,
    compute_distances_compiled,
    evaluate_quality,
)
from bisimetric.learned.losses import LOSSES, LearnedKind
from bisimetric.learned.networks.pair_network import FunctionalNetwork, Parameters
from bisimetric.learned.source_builders import source_from_transitions
from bisimetric.learned.sources import FeatureScaling, TrainingSource
from bisimetric.mdp import MDP, validate_discount
from bisimetric.transitions import Transitions


@dataclasses.dataclass(frozen=True, eq=False)
class LearnedDistance:
    """An approximate distance d(x, y) = max(psi(x, y), psi(y, x)) given by a network psi.

    Nothing is proven about it; `quality` measures how far it is from a metric and from the equation
    that it was trained on. `d(x, y)` takes two observations, or ids or names of states where it was
    learned from an MDP or from data whose observations are ids; None is the terminal state.
    Distances are in units of reward. It implements `distance.StateDistance`.

    Attributes:
        kind: "bisimulation", "on_policy", "mico" or "reduced_mico".
        discount: the discount of the distance.
        network: psi.
        parameters: the weights of psi.
        scaling: how observations become features.
        mdp: the MDP whose states it was learned from, or None.
        points: (S, ...), the observations of the states, or None.
        metadata: how the distance was computed.
        history: the metrics recorded during training, by name; `step` counts the updates.
        names: one name per state, or None.

    >>> from bisimetric.learned.castro2020 import PairNetwork
    >>> network, scaling = PairNetwork((4,)), FeatureScaling(0.0, 1.0)
    >>> weights = network.init(jax.random.key(0), 1)
    >>> d = LearnedDistance("on_policy", 0.9, network, weights, scaling)
    >>> d.table([[0.0], [1.0], [2.0]]).shape
    (3, 3)
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

    def __call__(self, s: Any, t: Any) -> float:
        """Return the distance between two observations or states.

        Args:
            s: an observation, an id or name of a state, or None for the terminal state.
            t: another.

        Returns:
            d(s, t), in units of reward.

        Raises:
            InputError: when an observation has another shape, or there is no such state.
        """
        return float(self._evaluate(self._featurise(s), self._featurise(t))[0, 0])

    def table(self, states: Any, others: Any = None, *, params: Any = None) -> NDArray[np.float32]:
        """Return the distances between all pairs of observations or states.

        Under `jax.jit`, `jax.grad` and `jax.vmap` it takes traced observations or parameters, and
        returns a JAX array.

        Args:
            states: (n, ...) observations, or n ids or names of states.
            others: (m, ...) observations, or m ids or names; default: `states`.
            params: the weights of psi; default: `params`.

        Returns:
            (n, m) distances.

        Raises:
            InputError: when observations have another shape, or there is no such state.
        """
        parameters = self.parameters if params is None else params
        if _is_traced((states, others, parameters)):
            x = self._trace_rows(states)
            y = x if others is None else self._trace_rows(others)
            traced: Any = compute_distances(self.network, parameters, x, y)
            return traced
        rows: Any = self._featurise_rows(states)
        columns: Any = rows if others is None else self._featurise_rows(others)
        return np.asarray(compute_distances_compiled(self.network, parameters, rows, columns))

    @property
    def params(self) -> Parameters:
        """The weights of psi, a tree of arrays; the first argument of `apply` and `loss`."""
        return self.parameters

    def apply(self, params: Parameters, x: Any, y: Any) -> jax.Array:
        """Return d(x, y) as a pure function, for `jax.jit`, `jax.grad` and `jax.vmap`.

        Args:
            params: the weights of psi, with the structure of `params`.
            x: (*shape), one observation in its original shape and scale; or (..., *shape), several;
                or None for the terminal state.
            y: as x; leading axes are broadcast.

        Returns:
            (...) distances, in units of reward: x_i is compared with y_i.

        Raises:
            InputError: when an observation has another shape.

        >>> from bisimetric.learned.castro2020 import PairNetwork
        >>> network, scaling = PairNetwork((4,)), FeatureScaling(0.0, 1.0)
        >>> weights = network.init(jax.random.key(0), 1)
        >>> d = LearnedDistance("on_policy", 0.9, network, weights, scaling)
        >>> gradient = jax.grad(d.apply)(d.params, [0.0], [1.0])
        >>> jax.tree.structure(gradient) == jax.tree.structure(d.params)
        True
        """
        return functional.apply_network(self.network, self.scaling, params, x, y)

    def loss(
        self,
        params: Parameters,
        target_params: Parameters,
        batch: functional.TransitionBatch,
        *,
        beta: Any = 1.0,
    ) -> jax.Array:
        """Return the loss of the algorithm on one batch as a pure function, differentiable in psi.

        All pairs of transitions are compared, for d~ those with the same action; where episodes
        terminate, also each transition with the terminal state. Pair Q-learning:
        the weighted mean of (psi_a(s, t) - T)^2 with T = |r - r'| + discount * max_b psi'_b(s', t')
        in units of `network.unit`, summed over both networks. Castro (2020): that of its targets,
        in units of reward. There is no gradient with respect to `target_params`.

        Args:
            params: the weights of psi.
            target_params: the weights of the target network psi'.
            batch: transitions; see `TransitionBatch`. Termination counts only where the data that
                the distance was initialised from had a terminated episode.
            beta: the weight of the future in Castro (2020); ignored by pair Q-learning.

        Returns:
            The loss, a scalar.

        Raises:
            InputError: for another shape of an observation, or if d compares more than rewards.

        >>> from bisimetric.learned import TransitionBatch
        >>> from bisimetric.learned.castro2020 import PairNetwork
        >>> network, scaling = PairNetwork((4,)), FeatureScaling(0.0, 1.0)
        >>> weights = network.init(jax.random.key(0), 1)
        >>> d = LearnedDistance("on_policy", 0.9, network, weights, scaling)
        >>> zeros, x = np.zeros(2), np.ones((2, 1))
        >>> batch = TransitionBatch(x, zeros.astype(int), zeros, x, zeros.astype(bool))
        >>> jax.jit(d.loss)(d.params, d.params, batch).shape
        ()
        """
        require_rewards_only("LearnedDistance.loss", self.metadata)
        return functional.compute_loss(
            self.kind, self.network, self.scaling, self.discount, params, target_params, batch, beta
        )

    def with_params(self, params: Parameters) -> LearnedDistance:
        """Return the same distance with other weights, such as those of a training loop.

        Args:
            params: the weights of psi, with the structure of `params`.

        Returns:
            The distance, without a history.
        """
        return dataclasses.replace(self, parameters=params, history={})

    @property
    def values(self) -> NDArray[np.float32]:
        """(S, S), the distances between the states that it was learned from."""
        return self.table(self._require_points("values"))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the (S, S) matrix of distances between all states.

        Args:
            dtype: the type of the result; default: float32.
            copy: must not be False, since the matrix is computed.

        Returns:
            The matrix.

        Raises:
            InputError: when it was learned from observations.
        """
        if copy is False:
            raise ValueError("LearnedDistance: the matrix is computed and cannot be a view.")
        return self.values if dtype is None else self.values.astype(dtype, copy=False)

    def nearest(self, s: Any, k: int = 5, *, names: bool = False) -> list[tuple[Any, float]]:
        """Return the k nearest states, without s itself, nearest first, ties by id.

        Args:
            s: an id or name of a state.
            k: how many, or all where there are fewer.
            names: whether to return names in place of ids, where the states have names.

        Returns:
            Pairs of state and distance.

        Raises:
            InputError: when there is no such state, k is not a whole number, at least 1, or it was
                learned from observations: `PivotIndex` finds the nearest of those.
        """
        points = self._require_points("nearest")
        k = require_integer("LearnedDistance.nearest", "k", k, 1)
        source = self._resolve_state(s)
        row = self._evaluate(self.scaling(points[[source]]), self.scaling(points))[0]
        order = np.argsort(row, kind="stable")
        order = order[order != source][:k]
        labels = self.names if names else None
        return [(int(t) if labels is None else labels[t], float(row[t])) for t in order]

    def to_distance(self) -> Distance:
        """Return the distances between the states of the MDP as a `Distance`, of unproven error.

        Where the distance of a state to itself is 0 by definition, it is 0 in the matrix.

        Returns:
            A distance whose `error` is infinite.

        Raises:
            InputError: when it was not learned from an MDP.
        """
        if self.mdp is None:
            raise InputError(
                "LearnedDistance: to_distance needs the MDP that it was learned from; use "
                "table(observations)."
            )
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
            {name: value for name, value in self.metadata.items() if name != "policy"},
        )

    def quality(self, source: Transitions | TrainingSource, seed: int = 0) -> Quality:
        """Measure how far it is from a metric and from its equation, on a batch of a source.

        Args:
            source: transitions, which are scaled like the training data, or a training source.
            seed: seed of the batch.

        Returns:
            The largest violations, and the mean residual.

        Raises:
            InputError: for another type or scaling, or if d compares more than rewards.
        """
        require_rewards_only("LearnedDistance.quality", self.metadata)
        if isinstance(source, Transitions):
            kind: LearnedKind = "mico" if self.kind == "reduced_mico" else self.kind
            source = source_from_transitions(kind, source, scaling=self.scaling)
        if not isinstance(source, TrainingSource):
            raise InputError(
                f"is {type(source).__name__} and must be Transitions or a training source",
                caller="LearnedDistance.quality",
                argument="source",
                remedy="use source_from_mdp or source_from_transitions",
            )
        if not source.scaling.matches(self.scaling):
            raise InputError(
                "is scaled differently from the training data",
                caller="LearnedDistance.quality",
                argument="source",
                remedy="build it with scaling=d.scaling",
            )
        key = jax.random.key(require_integer("LearnedDistance.quality", "seed", seed, 0))
        batch = source.sample_batch(key, EVALUATION_BATCH)
        fields = evaluate_quality(self.network, self.kind, self.discount, self.parameters, batch)
        return Quality(*(float(each) for each in fields))

    def save(self, path: str | os.PathLike[str], *, half_precision: bool = False) -> None:
        """Write one .safetensors file, which appears complete or not at all.

        Args:
            path: the file.
            half_precision: round the weights to float16, for half the size.

        Raises:
            InputError: when the network is a `FunctionalNetwork`, or a weight is not finite. The
                code of a custom encoder is not saved; `load` takes it as an argument.
        """
        if isinstance(self.network, FunctionalNetwork):
            raise InputError(
                "LearnedDistance: a FunctionalNetwork cannot be saved; save d.parameters yourself."
            )
        metadata = {
            "format": files.DISTANCE_FORMAT,
            "kind": self.kind,
            "discount": self.discount,
            **network_files.describe_network(self.network),
            "has_terminal": self.scaling.has_terminal,
            "shape": self.scaling.shape,
            "names": self.names,
            "metadata": self.metadata,
        }
        tensors = files.name_leaves(self.parameters, half_precision)
        tensors |= network_files.probe_encoder(self.network, self.parameters)
        tensors |= {"shift": self.scaling.shift, "width": self.scaling.width}
        tensors |= {f"{files.HISTORY_PREFIX}{name}": each for name, each in self.history.items()}
        if self.points is not None:
            tensors["points"] = self.points
        files.write_tensors(path, tensors, metadata)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], mdp: MDP | None = None, *, encoder: Any = None
    ) -> LearnedDistance:
        """Read what `save` wrote.

        Args:
            path: the file.
            mdp: the MDP whose states it was learned from, or None.
            encoder: the custom encoder that it was learned with, in any form that `MetricNetwork`
                takes. A file holds its parameters only, since code in files is not executed.

        Returns:
            The learned distance.

        Raises:
            InputError: when the file is damaged, the MDP has another number of states, or the
                encoder is missing, has other parameters, or computes other features.
        """
        tensors, metadata = files.read_tensors(path, files.DISTANCE_FORMAT, "learned distance")
        points = tensors.get("points")
        if points is not None and (points.ndim < 2 or points.dtype.kind != "f"):
            raise InputError(
                f"{path} is damaged: its points are {points.dtype} of shape {points.shape} and "
                "must be one row of numbers per state; train it again."
            )
        if mdp is not None and (points is None or len(points) != mdp.num_states):
            found = "none" if points is None else len(points)
            raise InputError(
                f"{path} is of another MDP: it has {found} of its states and the MDP has "
                f"{mdp.num_states}; give the MDP that it was learned from, or none."
            )
        network_files.require_encoder(path, metadata, encoder)
        try:
            network = network_files.build_network(metadata, encoder, len(tensors["shift"]))
            shape, names = metadata["shape"], metadata["names"]
            stored = None if shape is None else tuple(shape)
            shift, width = tensors["shift"], tensors["width"]
            scaling = FeatureScaling(shift, width, metadata["has_terminal"], stored)
            if getattr(network, "num_networks", 1) > len(tensors):
                raise ValueError(f"its num_networks is {network.num_networks}, its weights fewer")
            if encoder is not None:
                network_files.require_same_encoder(path, network, scaling.num_features, tensors)
            parameters = network_files.collect_parameters(network, scaling.num_features, tensors)
            if encoder is not None:
                network_files.require_same_features(path, network, parameters, tensors)
            if metadata["kind"] not in LOSSES:
                raise ValueError(f"its kind is {metadata['kind']!r}")
            if shape is not None and math.prod(shape) != len(scaling.shift):
                raise ValueError(f"its shape is {shape} and its shift has {len(scaling.shift)}")
            if points is not None and math.prod(points.shape[1:]) != len(scaling.shift):
                raise ValueError(f"its points have {math.prod(points.shape[1:])} features")
            if names is not None and (points is None or len(names) != len(points)):
                raise ValueError(f"its names are {len(names)} and must be one per state")
            discount = validate_discount(metadata["discount"])
            return cls(
                metadata["kind"],
                discount,
                network,
                parameters,
                scaling,
                None if mdp is None else mdp.replace(discount=discount),
                points,
                dict(metadata["metadata"]),
                files.extract_history(tensors),
                None if names is None else tuple(names),
            )
        except files.DAMAGE_ERRORS as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{path} is no learned distance of bisimetric ({reason}).") from None

    def _require_points(self, name: str) -> NDArray[np.float32]:
        """Return the observations of the states, or raise an InputError that begins with `name`."""
        if self.points is None:
            raise InputError(
                f"LearnedDistance: {name} needs a list of states, and this was learned from "
                "observations; use table(observations), or PivotIndex for nearest observations."
            )
        return self.points

    def _featurise(self, x: Any) -> NDArray[np.float32]:
        """Return the features (1, k) of an observation, a state, or the terminal state."""
        if x is None:
            if not self.scaling.has_terminal:
                raise InputError(
                    "LearnedDistance: None is the terminal state, and no episode of the data "
                    "terminated."
                )
            return self.scaling.terminal
        if self.points is not None and np.ndim(x) == 0:
            return self.scaling(self.points[[self._resolve_state(x)]])
        return self.scaling([x])

    def _featurise_rows(self, x: Any) -> NDArray[np.float32]:
        """Return the features (n, k) of observations (n, ...) or of states."""
        if self.points is not None and np.ndim(x) == 1:
            return self.scaling(self.points[[self._resolve_state(each) for each in x]])
        return self.scaling(x)

    def _trace_rows(self, x: Any) -> jax.Array:
        """Return the features (n, k) of observations that may be traced, or of states."""
        if isinstance(x, jax.Array):
            return functional.compute_features(self.scaling, x)
        return jnp.asarray(self._featurise_rows(x))

    def _resolve_state(self, state: Any) -> int:
        """Return the id of a state given by id or name."""
        num_states = 0 if self.points is None else len(self.points)
        if self.names is not None and state in self.names:
            return self.names.index(state)
        try:
            index = int(state)
        except (TypeError, ValueError):
            index = -1
        if not (0 <= index < num_states) or (not isinstance(state, str) and index != state):
            hint = suggest_names(str(state), self.names or ())
            raise InputError(
                f"LearnedDistance: there is no state {state!r}"
                + (hint or f"; use an id from 0 to {num_states - 1}.")
            )
        return index

    def _evaluate(self, x: Any, y: Any) -> NDArray[np.float32]:
        return np.asarray(compute_distances_compiled(self.network, self.parameters, x, y))

    def __repr__(self) -> str:
        features = f"{self.scaling.num_features} features, an approximation"
        return f"LearnedDistance({self.kind}, discount {self.discount:g}, {features})"

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        points = self.points
        states = "" if points is None else f"states, {format_names(len(points), self.names)}"
        num_weights = sum(np.size(leaf) for leaf in jax.tree.leaves(self.parameters))
        rows = {
            "kind": self.kind,
            "discount": f"{self.discount:g}",
            "learned from": states or "observations",
            "features": f"{self.scaling.num_features:,}",
            "network": f"{type(self.network).__name__}, {pluralise(num_weights, 'weight')}",
        }
        for name in ("algorithm", "updates", "seeds", "device"):
            if name in self.metadata:
                value = self.metadata[name]
                rows[name] = f"{value:,}" if isinstance(value, int) else str(value)
        if len(self.history.get("loss", ())):
            rows["final loss"] = f"{self.history['loss'][-1]:.4g}"
        rows["error"] = "unknown: an approximation; measure it with quality()"
        return render_html_table("LearnedDistance", rows)


def _is_traced(tree: Any) -> bool:
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))
