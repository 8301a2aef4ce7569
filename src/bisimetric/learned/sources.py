"""What a network learns from: the states of a world, with or without noise, or recorded steps.

Sources live on the device as arrays; a batch is drawn there. A state is a vector of features. Where
episodes end, the end is a state with a vector of its own: one more feature, 1 there, 0 elsewhere.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError

ANY_ACTION = -1
"""The action of the end, which is that of any other."""


class Batch(NamedTuple):
    """Transitions: states (b, k), actions (b,), rewards (b,), and next states (b, k)."""

    x: Array
    action: Array
    reward: Array
    x_next: Array


class StratifiedSampler(NamedTuple):
    """Draws batches in blocks, one an action.

    Attributes:
        dealt: from a key to a batch whose columns are (actions, size, ...).
        there: (actions,), whether there are any transitions of an action.
    """

    sample: Callable[[Array], Batch]
    available: Array


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class FeatureScaling:
    """How observations become features: flattened, shifted, divided; one more for the end.

    Attributes:
        shift, width: (k,), or one number for all.
        ends: whether there is one more feature, for the end of episodes.
        shape: that of one observation; None for any of k numbers.

    >>> Scale(shift=[1, 0], width=[2, 1])([[3, 5]]).tolist()
    [[1.0, 5.0]]
    """

    shift: NDArray[np.float32]
    width: NDArray[np.float32]
    has_terminal: bool
    shape: tuple[int, ...] | None

    def __init__(
        self,
        shift: ArrayLike,
        width: ArrayLike,
        has_terminal: bool = False,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        try:
            pair = np.broadcast_arrays(
                np.atleast_1d(np.asarray(shift, np.float32)),
                np.atleast_1d(np.asarray(width, np.float32)),
            )
        except (TypeError, ValueError):
            raise InputError("Scale: shift and width must be numbers, one a feature.") from None
        by, over = (np.array(each) for each in pair)
        if by.ndim != 1 or not (np.isfinite(by) & np.isfinite(over) & (over > 0)).all():
            raise InputError(
                "Scale: shift must be (k,) finite numbers and width (k,) numbers above 0."
            )
        fields = {"shift": by, "width": over, "has_terminal": has_terminal, "shape": shape}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __call__(self, observations: ArrayLike) -> NDArray[np.float32]:
        """The features (n, k) of observations (n, ...)."""
        try:
            array = np.asarray(observations)
        except ValueError:
            raise InputError(
                "learned: the observations are of different shapes; give all of one shape."
            ) from None
        if array.dtype.kind not in "biuf":
            raise InputError(f"learned: observations are {array.dtype} and must be numbers.")
        shape = array.shape[1:]
        fits = math.prod(shape) == len(self.shift) if self.shape is None else shape == self.shape
        if array.ndim == 0 or not fits:
            wanted = (len(self.shift),) if self.shape is None else self.shape
            raise InputError(
                f"learned: an observation has shape {shape} and those learned from have {wanted}; "
                "give observations of the same shape."
            )
        with np.errstate(over="ignore"):
            flat = array.astype(np.float32).reshape(len(array), len(self.shift))
        if not np.isfinite(flat).all():
            raise InputError("learned: an observation holds NaN or infinity; leave it out.")
        features = (flat - self.shift) / self.width
        return np.pad(features, ((0, 0), (0, 1))) if self.has_terminal else features

    @property
    def terminal(self) -> NDArray[np.float32]:
        """The features (1, k) of the end."""
        return np.pad(
            np.zeros((1, len(self.shift)), np.float32), ((0, 0), (0, 1)), constant_values=1
        )

    @property
    def num_features(self) -> int:
        """How many numbers describe a state."""
        return len(self.shift) + self.has_terminal

    def matches(self, other: FeatureScaling) -> bool:
        """Whether two scales make the same features of the same observations."""
        same = np.array_equal(self.shift, other.shift) and np.array_equal(self.width, other.width)
        return same and self.has_terminal == other.has_terminal


@dataclasses.dataclass(frozen=True, eq=False)
class StateSource:
    """A world whose states can be listed: states and actions are drawn alike.

    Attributes:
        points: (S, k), the features of the states, before `scale`.
        successor, reward: (S, A); for a policy, (S, 1).
        noise: the standard deviation of what is added to the points, the same for a state and its
            successor, in the units of the points; 0 for none.
        most: the largest noise.
    """

    points: Array
    successor: Array
    reward: Array
    scaling: FeatureScaling
    noise: float = 0.0
    noise_clip: float = 0.0

    @property
    def enumerable(self) -> bool:
        """Whether a batch holds only the points themselves."""
        return self.noise == 0

    def sample_state_actions(self, key: Array, size: int) -> tuple[Array, Array]:
        """States and actions (size,), any alike."""
        states, actions = self.reward.shape
        one, two = jax.random.split(key)
        return (
            jax.random.randint(one, (size,), 0, states),
            jax.random.randint(two, (size,), 0, actions),
        )

    def sample_batch(self, key: Array, size: int) -> Batch:
        pick, shake = jax.random.split(key)
        return self._build_batch(shake, *self.sample_state_actions(pick, size))

    def build_stratified_sampler(self, actions: int, size: int) -> StratifiedSampler:
        """Deals as many transitions of each action."""

        def dealt(key: Array) -> Batch:
            pick, shake = jax.random.split(key)
            state = jax.random.randint(pick, (actions, size), 0, len(self.points))
            action = jnp.broadcast_to(jnp.arange(actions)[:, None], state.shape)
            return self._build_batch(shake, state, action)

        return StratifiedSampler(dealt, jnp.ones(actions, bool))

    def _build_batch(self, key: Array, state: Array, action: Array) -> Batch:
        """The transitions of states and actions, with their noise."""
        added = jnp.zeros(())
        if self.noise:
            free = self.noise * jax.random.normal(key, (*state.shape, self.points.shape[1]))
            added = jnp.clip(free, -self.noise_clip, self.noise_clip)
        after = self.successor[state, action]
        return Batch(
            self._scale(self.points[state] + added),
            action,
            self.reward[state, action],
            self._scale(self.points[after] + added),
        )

    def sample_counts(self, key: Array, size: int) -> Array:
        """How often each action and state is in a batch, (A, S)."""
        state, action = self.sample_state_actions(key, size)
        return jnp.zeros(self.reward.shape[::-1]).at[action, state].add(1.0)

    def gather_successors(self, distances: Array) -> Array:
        """What a table (S, S) says of the successors of two states, for each action: (A, S, S)."""
        return jax.vmap(lambda n: distances[n[:, None], n[None, :]])(self.successor.T)

    def compute_features(self) -> Array:
        """The features (S, k) of the states as such."""
        return self._scale(self.points)

    def _scale(self, points: Array) -> Array:
        return (points - self.scaling.shift) / self.scaling.width


@dataclasses.dataclass(frozen=True, eq=False)
class TransitionSource:
    """Recorded steps, any of them alike; where episodes end, the end is part of every batch.

    Attributes:
        x: (n, k), the features of the states that were left, also in half precision: a batch is in
            single precision.
        action, reward: (n,).
        x_next: (n, k), the features of their successors; or (n,), their rows in x, which then
            holds those states too that were only entered.
        growing: (2,), how many steps can be drawn at first, and how many more after each step of
            training, as when they are collected meanwhile; None: all of them from the start.
        stored: how many can be drawn; None: all.
    """

    x: Array
    action: Array
    reward: Array
    x_next: Array
    scaling: FeatureScaling
    enumerable: bool = False
    growth: Array | None = None
    num_stored: Array | None = None

    def available_at(self, step: Array) -> TransitionSource:
        """What can be drawn at a step of training."""
        if self.growth is None:
            return self
        first, more = self.growth
        stored = jnp.minimum(first + more * step, len(self.reward))
        return dataclasses.replace(self, num_stored=stored)

    def sample_batch(self, key: Array, size: int) -> Batch:
        stored = len(self.reward) if self.num_stored is None else self.num_stored
        drawn = self._gather(jax.random.randint(key, (size,), 0, stored))
        return self._insert_terminal(drawn) if self.scaling.has_terminal else drawn

    @property
    def terminated(self) -> Array:
        """Whether each step ended an episode, (n,)."""
        if not self.scaling.has_terminal:
            return jnp.zeros(len(self.reward), bool)
        mark = self.x[:, -1][self.x_next] if self.x_next.ndim == 1 else self.x_next[:, -1]
        return mark == 1

    def build_stratified_sampler(self, actions: int, size: int) -> StratifiedSampler:
        """Deals as many transitions of each action; with one action, all steps are of it.

        The end, which takes any action, is part of each block.
        """
        if actions == 1:
            order, edges = jnp.arange(len(self.action)), jnp.array([0, len(self.action)])
        else:
            order = jnp.argsort(self.action)
            edges = jnp.searchsorted(self.action[order], jnp.arange(actions + 1))
        first, count = edges[:-1, None], jnp.diff(edges)[:, None]
        if self.num_stored is not None:
            # What grows is drawn from as if all steps were of one action: see making.
            count = jnp.minimum(count, self.num_stored)

        def dealt(key: Array) -> Batch:
            place = jax.random.randint(key, (actions, size), 0, jnp.maximum(count, 1))
            drawn = self._gather(order[jnp.minimum(first + place, len(order) - 1)])
            return jax.vmap(self._insert_terminal)(drawn) if self.scaling.has_terminal else drawn

        return StratifiedSampler(dealt, count[:, 0] > 0)

    def _gather(self, rows: Array) -> Batch:
        """The steps of some rows."""
        after = self.x_next[rows]
        x_next = self.x[after] if self.x_next.ndim == 1 else after
        x, x_next = (each.astype(jnp.float32) for each in (self.x[rows], x_next))
        return Batch(x, self.action[rows], self.reward[rows], x_next)

    def _insert_terminal(self, batch: Batch) -> Batch:
        """With the end in place of the last step, so that shapes stay what they are."""
        end = jnp.asarray(self.scaling.terminal)
        last = Batch(end, jnp.full(1, ANY_ACTION, batch.action.dtype), jnp.zeros(1), end)
        return Batch(*(jnp.concatenate([a[:-1], b]) for a, b in zip(batch, last, strict=True)))


TrainingSource = StateSource | TransitionSource

jax.tree_util.register_dataclass(
    StateSource,
    data_fields=["points", "successor", "reward"],
    meta_fields=["scaling", "noise", "noise_clip"],
)
jax.tree_util.register_dataclass(
    TransitionSource,
    data_fields=["x", "action", "reward", "x_next", "growth", "num_stored"],
    meta_fields=["scaling", "enumerable"],
)
