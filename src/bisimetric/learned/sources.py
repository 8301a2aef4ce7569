"""Training sources: the states of an MDP, with or without noise, or recorded transitions.

Sources are arrays on the device, where batches are sampled. A state is a vector of features. Where
episodes terminate, the terminal state has a vector of its own: one more feature, 1 there and 0
elsewhere.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError

ANY_ACTION = -1
"""The action of the terminal state, which matches every other action."""


class Batch(NamedTuple):
    """Transitions: states (b, k), actions (b,), rewards (b,), and next states (b, k)."""

    x: Array
    action: Array
    reward: Array
    x_next: Array


class EpisodeBatch(NamedTuple):
    """Sampled steps of recorded episodes, (b,) each; the last may stand for the terminal state.

    Attributes:
        x: (b, k), the features of the states.
        row: the sampled rows of the source.
        remaining: the recorded steps of the episode, this one included; 0 in the terminal state.
        terminates: whether the episode terminates after them; otherwise it is truncated.
    """

    x: Array
    row: Array
    remaining: Array
    terminates: Array


class StratifiedSampler(NamedTuple):
    """Samples batches in blocks, one per action.

    Attributes:
        sample: from a random key to a batch whose columns are (actions, size, ...).
        available: (actions,), whether there are transitions with that action.
    """

    sample: Callable[[Array], Batch]
    available: Array


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class FeatureScaling:
    """How observations become features: (flattened - shift) / width, and one more if terminal.

    Attributes:
        shift: (k,), or one number for all.
        width: (k,), or one number for all; above 0.
        has_terminal: whether there is one more feature, 1 for the terminal state only.
        shape: the shape of one observation; None accepts any of k numbers.

    Raises:
        InputError: when shift is not finite or width not above 0.

    >>> FeatureScaling(shift=[1, 0], width=[2, 1])([[3, 5]]).tolist()
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
            arrays = np.broadcast_arrays(
                np.atleast_1d(np.asarray(shift, np.float32)),
                np.atleast_1d(np.asarray(width, np.float32)),
            )
        except (TypeError, ValueError):
            raise InputError(
                "FeatureScaling: shift and width must be numbers, one per feature."
            ) from None
        by, over = (np.array(each) for each in arrays)
        if by.ndim != 1 or not (np.isfinite(by) & np.isfinite(over) & (over > 0)).all():
            raise InputError(
                "FeatureScaling: shift must be (k,) finite numbers and width (k,) numbers above 0."
            )
        fields = {"shift": by, "width": over, "has_terminal": has_terminal, "shape": shape}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __call__(self, observations: ArrayLike) -> NDArray[np.float32]:
        """Return the features of observations.

        Args:
            observations: (n, ...) numbers.

        Returns:
            (n, num_features).

        Raises:
            InputError: when the observations have another shape or are not finite numbers.
        """
        try:
            array = np.asarray(observations)
        except ValueError:
            raise InputError(
                "learned: the observations have different shapes; give all of one shape."
            ) from None
        if array.dtype.kind not in "biuf":
            raise InputError(f"learned: observations are {array.dtype} and must be numbers.")
        shape = array.shape[1:]
        fits = math.prod(shape) == len(self.shift) if self.shape is None else shape == self.shape
        if array.ndim == 0 or not fits:
            expected = (len(self.shift),) if self.shape is None else self.shape
            raise InputError(
                f"learned: an observation has shape {shape} and those of the training data have "
                f"{expected}; give observations of the same shape."
            )
        with np.errstate(over="ignore"):
            flat = array.astype(np.float32).reshape(len(array), len(self.shift))
        if not np.isfinite(flat).all():
            raise InputError("learned: an observation holds NaN or infinity; leave it out.")
        features = (flat - self.shift) / self.width
        return np.pad(features, ((0, 0), (0, 1))) if self.has_terminal else features

    @property
    def terminal(self) -> NDArray[np.float32]:
        """(1, num_features), the features of the terminal state."""
        return np.pad(
            np.zeros((1, len(self.shift)), np.float32), ((0, 0), (0, 1)), constant_values=1
        )

    @property
    def num_features(self) -> int:
        """The number of features of a state."""
        return len(self.shift) + self.has_terminal

    def matches(self, other: FeatureScaling) -> bool:
        """Return whether two scalings give the same features.

        Args:
            other: another scaling.

        Returns:
            Whether shift, width and has_terminal are equal.
        """
        same = np.array_equal(self.shift, other.shift) and np.array_equal(self.width, other.width)
        return same and self.has_terminal == other.has_terminal


@dataclasses.dataclass(frozen=True, eq=False)
class StateSource:
    """The states of a deterministic MDP; states and actions are sampled uniformly.

    Attributes:
        points: (S, k), the features of the states, before `scaling`.
        successor: (S, A), or (S, 1) for a policy.
        reward: (S, A), or (S, 1) for a policy.
        scaling: how points become features.
        noise: the standard deviation of Gaussian noise that is added to the points, the same for a
            state and its successor, in the units of the points; 0 for none.
        noise_clip: the largest noise, in either direction.
        cost: (0, 1 or A, S, S), added to the differences of rewards: ground distances, or a gap.
    """

    points: Array
    successor: Array
    reward: Array
    scaling: FeatureScaling
    noise: float = 0.0
    noise_clip: float = 0.0
    cost: Array = dataclasses.field(default_factory=lambda: jnp.zeros((0, 0, 0)))

    @property
    def has_cost(self) -> bool:
        """Whether there is a cost besides the differences of rewards."""
        return self.cost.shape[0] > 0

    def compute_gaps(self) -> Array:
        """Return the immediate costs of two states, per action: (A, S, S)."""
        reward = self.reward.T
        gaps = jnp.abs(reward[:, :, None] - reward[:, None, :])
        return gaps + self.cost if self.has_cost else gaps

    @property
    def enumerable(self) -> bool:
        """Whether batches hold only the points themselves."""
        return self.noise == 0

    def sample_state_actions(self, key: Array, size: int) -> tuple[Array, Array]:
        """Return uniform states and actions, (size,) each."""
        states, actions = self.reward.shape
        state_key, action_key = jax.random.split(key)
        return (
            jax.random.randint(state_key, (size,), 0, states),
            jax.random.randint(action_key, (size,), 0, actions),
        )

    def sample_batch(self, key: Array, size: int) -> Batch:
        """Return transitions from uniform states and actions."""
        pair_key, noise_key = jax.random.split(key)
        return self._build_batch(noise_key, *self.sample_state_actions(pair_key, size))

    def build_stratified_sampler(self, actions: int, size: int) -> StratifiedSampler:
        """Return a sampler of `size` transitions per action."""

        def sample(key: Array) -> Batch:
            state_key, noise_key = jax.random.split(key)
            state = jax.random.randint(state_key, (actions, size), 0, len(self.points))
            action = jnp.broadcast_to(jnp.arange(actions)[:, None], state.shape)
            return self._build_batch(noise_key, state, action)

        return StratifiedSampler(sample, jnp.ones(actions, bool))

    def _build_batch(self, key: Array, state: Array, action: Array) -> Batch:
        """Return the transitions of states and actions, with noise."""
        noise = self._sample_noise(key, state.shape)
        successor = self.successor[state, action]
        return Batch(
            self._scale(self.points[state] + noise),
            action,
            self.reward[state, action],
            self._scale(self.points[successor] + noise),
        )

    def _sample_noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        """Return clipped Gaussian noise of shape (*shape, k), or one 0."""
        if not self.noise:
            return jnp.zeros(())
        normal = self.noise * jax.random.normal(key, (*shape, self.points.shape[1]))
        return jnp.clip(normal, -self.noise_clip, self.noise_clip)

    def sample_counts(self, key: Array, size: int) -> Array:
        """Return how often a sampled batch has each action and state, (A, S)."""
        state, action = self.sample_state_actions(key, size)
        return jnp.zeros(self.reward.shape[::-1]).at[action, state].add(1.0)

    def gather_successors(self, distances: Array) -> Array:
        """Return the distances (S, S) at the successors of two states, per action: (A, S, S)."""
        return jax.vmap(lambda n: distances[n[:, None], n[None, :]])(self.successor.T)

    def compute_features(self) -> Array:
        """Return the features (S, k) of the states, without noise."""
        return self._scale(self.points)

    def _scale(self, points: Array) -> Array:
        return (points - self.scaling.shift) / self.scaling.width


@dataclasses.dataclass(frozen=True, eq=False)
class ChainSource(StateSource):
    """The states of a stochastic Markov chain, which a policy induces; for MICo only.

    Attributes:
        points: (S, k), the features of the states, before `scaling`.
        successor: (S, 1), the most probable successor.
        reward: (S, 1), the expected reward.
        scaling: how points become features.
        noise: as in `StateSource`.
        noise_clip: the largest noise, in either direction.
        cost: as in `StateSource`.
        probabilities: (S, S), the transition matrix.
    """

    probabilities: Array = dataclasses.field(default_factory=lambda: jnp.zeros((0, 0)))

    def _build_batch(self, key: Array, state: Array, action: Array) -> Batch:
        """Return transitions from the states to independently sampled successors, with noise."""
        successor_key, noise_key = jax.random.split(key)
        logits = jnp.log(self.probabilities)[state]
        successor = jax.random.categorical(successor_key, logits)
        noise = self._sample_noise(noise_key, state.shape)
        return Batch(
            self._scale(self.points[state] + noise),
            action,
            self.reward[state, action],
            self._scale(self.points[successor] + noise),
        )

    def gather_successors(self, distances: Array) -> Array:
        """Return the expected distances (1, S, S) at independent successors of two states."""
        return (self.probabilities @ distances @ self.probabilities.T)[None]


@dataclasses.dataclass(frozen=True, eq=False)
class TransitionSource:
    """Recorded transitions, sampled uniformly; every batch includes the terminal state, if any.

    Attributes:
        x: (n, k), the features of the states, also in half precision; batches are in single
            precision.
        action: (n,).
        reward: (n,).
        x_next: (n, k), the features of the next states; or (n,), their rows in x, which then also
            holds states that are only entered.
        scaling: how observations became features.
        enumerable: False; see `StateSource.enumerable`.
        growth: (2,), the transitions that can be sampled at first, and how many more after each
            update, as if they were collected meanwhile; None: all of them from the start.
        num_stored: how many can be sampled; None: all.
        remaining: (n,), the recorded steps from each one to the end of its episode, itself
            included; they are the rows that follow it. None: every step is an episode.
        longest_episode: the largest of them.
    """

    x: Array
    action: Array
    reward: Array
    x_next: Array
    scaling: FeatureScaling
    enumerable: bool = False
    growth: Array | None = None
    num_stored: Array | None = None
    remaining: Array | None = None
    longest_episode: int = 1

    def available_at(self, step: Array) -> TransitionSource:
        """Return the transitions that can be sampled at an update."""
        if self.growth is None:
            return self
        first, more = self.growth
        num_stored = jnp.minimum(first + more * step, len(self.reward))
        return dataclasses.replace(self, num_stored=num_stored)

    def sample_batch(self, key: Array, size: int) -> Batch:
        """Return uniform transitions, the last one replaced by the terminal state, if any."""
        num_stored = len(self.reward) if self.num_stored is None else self.num_stored
        batch = self._gather(jax.random.randint(key, (size,), 0, num_stored))
        return self._insert_terminal(batch) if self.scaling.has_terminal else batch

    def sample_rows(self, key: Array, size: int) -> tuple[Array, Batch]:
        """Return uniform rows (size,) and their transitions; -1 is the terminal state, if any."""
        num_stored = len(self.reward) if self.num_stored is None else self.num_stored
        rows = jax.random.randint(key, (size,), 0, num_stored)
        batch = self._gather(rows)
        if not self.scaling.has_terminal:
            return rows, batch
        return rows.at[-1].set(-1), self._insert_terminal(batch)

    @property
    def terminated(self) -> Array:
        """(n,), whether each transition terminated its episode."""
        if not self.scaling.has_terminal:
            return jnp.zeros(len(self.reward), bool)
        mark = self.x[:, -1][self.x_next] if self.x_next.ndim == 1 else self.x_next[:, -1]
        return mark == 1

    def build_stratified_sampler(self, actions: int, size: int) -> StratifiedSampler:
        """Return a sampler of `size` transitions per action; one action stands for all of them.

        The terminal state, which matches every action, is part of each block.
        """
        if actions == 1:
            order, edges = jnp.arange(len(self.action)), jnp.array([0, len(self.action)])
        else:
            order = jnp.argsort(self.action)
            edges = jnp.searchsorted(self.action[order], jnp.arange(actions + 1))
        first, count = edges[:-1, None], jnp.diff(edges)[:, None]
        if self.num_stored is not None:
            # A growing source has one action: see `source_builders`.
            count = jnp.minimum(count, self.num_stored)

        def sample(key: Array) -> Batch:
            offset = jax.random.randint(key, (actions, size), 0, jnp.maximum(count, 1))
            batch = self._gather(order[jnp.minimum(first + offset, len(order) - 1)])
            return jax.vmap(self._insert_terminal)(batch) if self.scaling.has_terminal else batch

        return StratifiedSampler(sample, count[:, 0] > 0)

    def sample_steps(self, key: Array, size: int) -> EpisodeBatch:
        """Return uniform steps with what is recorded of their episodes, for n-step targets.

        The steps are those of the stratified sampler for one action and the same key.
        """
        num_stored = len(self.reward) if self.num_stored is None else self.num_stored
        row = jax.random.randint(key, (1, size), 0, num_stored)[0]
        remaining = jnp.ones(size, jnp.int32) if self.remaining is None else self.remaining[row]
        # What is not stored yet is not part of the recording.
        recorded = jnp.minimum(remaining, num_stored - row)
        terminates = jnp.zeros(size, bool)
        x = self.x[row].astype(jnp.float32)
        if self.scaling.has_terminal:
            ends = self._gather_next(row + recorded - 1)[:, -1] == 1
            terminates = ends.at[-1].set(True)
            recorded, x = recorded.at[-1].set(0), x.at[-1].set(self.scaling.terminal[0])
        return EpisodeBatch(x, row, recorded, terminates)

    def gather_rewards(self, batch: EpisodeBatch, offsets: Array) -> Array:
        """Return the rewards so many steps after those of a batch, (b, offsets).

        They are 0 after the end of the recording.
        """
        within = offsets < batch.remaining[:, None]
        rows = jnp.where(within, batch.row[:, None] + offsets, 0)
        return jnp.where(within, self.reward[rows], 0.0)

    def gather_state_after(self, batch: EpisodeBatch, steps: Array) -> Array:
        """Return the features (b, k) of the states some steps later, at least 1.

        After the end of the recording it is the last recorded state, or the terminal state.
        """
        last = jnp.minimum(steps, batch.remaining) - 1
        x = self._gather_next(batch.row + jnp.maximum(last, 0))
        if not self.scaling.has_terminal:
            return x
        return jnp.where(batch.remaining[:, None] > 0, x, jnp.asarray(self.scaling.terminal))

    def _gather_next(self, rows: Array) -> Array:
        """Return the features of the next states of some rows, in single precision."""
        successor = self.x_next[rows]
        x_next = self.x[successor] if self.x_next.ndim == 1 else successor
        return x_next.astype(jnp.float32)

    def _gather(self, rows: Array) -> Batch:
        """Return the transitions of some rows."""
        successor = self.x_next[rows]
        x_next = self.x[successor] if self.x_next.ndim == 1 else successor
        x, x_next = (each.astype(jnp.float32) for each in (self.x[rows], x_next))
        return Batch(x, self.action[rows], self.reward[rows], x_next)

    def _insert_terminal(self, batch: Batch) -> Batch:
        """Return the batch with the terminal state in place of its last transition."""
        terminal = jnp.asarray(self.scaling.terminal)
        last = Batch(terminal, jnp.full(1, ANY_ACTION, batch.action.dtype), jnp.zeros(1), terminal)
        return Batch(*(jnp.concatenate([a[:-1], b]) for a, b in zip(batch, last, strict=True)))


TrainingSource = StateSource | TransitionSource


def reject_cost(caller: str, source: TrainingSource, remedy: str) -> None:
    """Raise InputError if the pairs of sampled transitions would ignore a cost of the source."""
    if isinstance(source, StateSource) and source.has_cost:
        raise InputError(
            "has observations or a gap, which sampled pairs of transitions do not compare",
            caller=caller,
            argument="source",
            remedy=remedy,
        )


def _flatten_scaling(scaling: FeatureScaling) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    return (scaling.shift, scaling.width), (scaling.has_terminal, scaling.shape)


def _unflatten_scaling(static: tuple[Any, Any], arrays: tuple[Any, Any]) -> FeatureScaling:
    # Without validation: the arrays may be traced.
    scaling = object.__new__(FeatureScaling)
    for name, value in zip(("shift", "width"), arrays, strict=True):
        object.__setattr__(scaling, name, value)
    for name, value in zip(("has_terminal", "shape"), static, strict=True):
        object.__setattr__(scaling, name, value)
    return scaling


# Arrays are leaves, so that data of equal shapes do not require another compilation.
jax.tree_util.register_pytree_node(FeatureScaling, _flatten_scaling, _unflatten_scaling)
jax.tree_util.register_dataclass(
    StateSource,
    data_fields=["points", "successor", "reward", "scaling", "cost"],
    meta_fields=["noise", "noise_clip"],
)
jax.tree_util.register_dataclass(
    ChainSource,
    data_fields=["points", "successor", "reward", "probabilities", "scaling", "cost"],
    meta_fields=["noise", "noise_clip"],
)
jax.tree_util.register_dataclass(
    TransitionSource,
    data_fields=["x", "action", "reward", "x_next", "scaling", "growth", "num_stored", "remaining"],
    meta_fields=["enumerable", "longest_episode"],
)
