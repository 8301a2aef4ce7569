"""Learned: a distance that a network approximates, of any two observations."""

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

from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.learned import files
from bisimetric.learned.losses import LOSSES, Kind, over_pairs
from bisimetric.learned.networks import Network, PairNetwork, Parameters
from bisimetric.learned.sources import Batch, Scale, Source
from bisimetric.learned.training import equal, gaps
from bisimetric.mdp import MDP

FORMAT = "bisimetric learned distance, version 1"
SOME = 256
"""Observations that a network is judged by."""


class Quality(NamedTuple):
    """How far a network is from being a distance, and from its own equation.

    Attributes:
        symmetry: the largest |psi(x, y) - psi(y, x)|.
        identity: the largest psi(x, x).
        triangle: the largest d(x, z) - d(x, y) - d(y, z), at least 0.
        residual: the mean |psi - T| over pairs of data, T the target with the whole horizon.
        largest: the largest d.
    """

    symmetry: float
    identity: float
    triangle: float
    residual: float
    largest: float


@dataclasses.dataclass(frozen=True, eq=False)
class Learned:
    """An approximation of a distance: psi(x, y), symmetrised as max(psi(x, y), psi(y, x)).

    Nothing is proven of it. `quality` measures how far it is from a metric and from the equation
    that it was trained on. `d(x, y)` takes two observations, or ids or names of states where it
    was learned from an MDP; None stands for the end of an episode.

    Attributes:
        kind: "bisimulation", "on_policy" or "mico".
        discount: that of the distance.
        network, parameters: psi.
        scale: how observations become features.
        mdp: the MDP whose states it was learned from, or None.
        points: (S, k), the observations of these states, or None.
        made: how it was made.
        history: what was measured on the way, by name; `step` tells when.
    """

    kind: Kind
    discount: float
    network: Network
    parameters: Parameters
    scale: Scale
    mdp: MDP | None = None
    points: NDArray[np.float32] | None = None
    made: dict[str, Any] = dataclasses.field(default_factory=dict)
    history: dict[str, NDArray[np.float64]] = dataclasses.field(default_factory=dict)

    def __call__(self, x: Any, y: Any) -> float:
        """The distance of two observations."""
        return float(self._table(self._features(x), self._features(y))[0, 0])

    def table(self, x: Any, y: Any = None) -> NDArray[np.float32]:
        """The distances of all pairs of observations (n, ...) and (m, ...), (n, m)."""
        first = self.scale(x)
        return np.asarray(self._table(first, first if y is None else self.scale(y)))

    @property
    def values(self) -> NDArray[np.float32]:
        """(S, S), the distances of the states that it was learned from."""
        if self.points is None:
            raise InputError(
                "Learned: values are those of the states of an MDP, and this was learned from "
                "data; use table(observations)."
            )
        return self.table(self.points)

    def distance(self) -> Distance:
        """The distances of the states of the MDP as a table; nothing is proven of its error."""
        if self.mdp is None:
            raise InputError("Learned: a table of states needs an MDP; use table(observations).")
        policy = self.made.get("policy")
        return Distance(
            self.values.astype(np.float64),
            math.inf,
            self.kind,
            self.mdp,
            None if policy is None else np.asarray(policy),
            {key: value for key, value in self.made.items() if key != "policy"},
        )

    def quality(self, source: Source, key: int = 0) -> Quality:
        """How far it is from being a distance, and from its equation, on a batch of a source."""
        batch = source.batch(jax.random.key(key), SOME)
        found = _judged(self.network, self.kind, self.discount, self.parameters, batch)
        return Quality(*(float(each) for each in found))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one .safetensors file; it appears whole or not at all."""
        if not isinstance(self.network, PairNetwork):
            raise InputError(
                "Learned: only a PairNetwork can be saved; keep the parameters of yours."
            )
        about = {
            "format": FORMAT,
            "kind": self.kind,
            "discount": self.discount,
            "network": files.described(self.network),
            "ends": self.scale.ends,
            "made": self.made,
        }
        tensors = files.named(self.parameters)
        tensors |= {"shift": self.scale.shift, "width": self.scale.width}
        tensors |= {f"{files.HISTORY}{name}": array for name, array in self.history.items()}
        if self.points is not None:
            tensors["points"] = self.points
        files.write(path, tensors, about)

    @classmethod
    def load(cls, path: str | os.PathLike[str], mdp: MDP | None = None) -> Learned:
        """Reads what `save` wrote; `mdp` gives the states their names again."""
        tensors, about = files.read(path, FORMAT, "learned distance")
        try:
            network = PairNetwork(tuple(about["network"]))
            scale = Scale(tensors["shift"], tensors["width"], about["ends"])
            start = network.init(jax.random.key(0), scale.features)
            leaves, tree = jax.tree.flatten(start)
            names = list(files.named(start))
            found = [jnp.asarray(tensors[name]) for name in names]
            if [leaf.shape for leaf in leaves] != [leaf.shape for leaf in found]:
                raise ValueError("its weights do not fit its network")
            history = {
                name.removeprefix(files.HISTORY): array
                for name, array in tensors.items()
                if name.startswith(files.HISTORY)
            }
            return cls(
                about["kind"],
                about["discount"],
                network,
                jax.tree.unflatten(tree, found),
                scale,
                mdp,
                tensors.get("points"),
                about["made"],
                history,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is no learned distance of bisimetric ({error}).") from None

    def _features(self, x: Any) -> NDArray[np.float32]:
        if x is None:
            if not self.scale.ends:
                raise InputError(
                    "Learned: no episode ended in the data, so that None means nothing."
                )
            return self.scale.end
        if self.mdp is not None and self.points is not None and np.ndim(x) == 0:
            return self.scale(self.points[[self.mdp.state(x)]])
        return self.scale(np.asarray(x)[None])

    def _table(self, x: Any, y: Any) -> Array:
        return _symmetric(self.network, self.parameters, x, y)

    def __repr__(self) -> str:
        return (
            f"Learned({self.kind}, discount {self.discount:g}, {self.scale.features} features, an "
            "approximation)"
        )


def symmetric(network: Network, parameters: Parameters, x: Array, y: Array) -> Array:
    """d(x_i, y_j) = max(psi(x_i, y_j), psi(y_j, x_i)), (n, m)."""
    return jnp.maximum(network.table(parameters, x, y), network.table(parameters, y, x).T)


_symmetric = jax.jit(symmetric, static_argnums=0)


def _judge(
    network: Network, kind: Kind, discount: float, parameters: Parameters, batch: Batch
) -> tuple[Array, ...]:
    psi = network.table(parameters, batch.x, batch.x)
    d = jnp.maximum(psi, psi.T)
    loss = LOSSES[kind]
    size = len(batch.reward)
    targets = over_pairs(loss.target)(
        gaps(batch.reward),
        network.table(parameters, batch.x_next, batch.x_next),
        psi,
        jnp.eye(size, dtype=bool),
        discount,
        jnp.float32(1.0),
    )
    counts = equal(batch.action) if loss.same_actions else jnp.ones((size, size), bool)
    through = jax.lax.map(lambda row: jnp.min(row[:, None] + d, axis=0), d)
    return (
        jnp.abs(psi - psi.T).max(),
        psi.diagonal().max(),
        jnp.maximum(d - through, 0.0).max(),
        jnp.sum(counts * jnp.abs(psi - targets)) / jnp.sum(counts),
        d.max(),
    )


_judged = jax.jit(_judge, static_argnums=(0, 1, 2))
