"""Recorded transitions, validated at construction and immutable afterwards."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric._text import format_names, format_range, pluralise, render_html_table
from bisimetric.errors import InputError
from bisimetric.mdp import DEFAULT_DISCOUNT, MDP, TERMINAL
from bisimetric.mdp._validation import freeze
from bisimetric.transitions import _validation, files
from bisimetric.transitions.batches import flatten_batches
from bisimetric.transitions.empirical_mdp import estimate_mdp
from bisimetric.transitions.episodes import (
    assign_episodes,
    concatenate_fields,
    find_episode_boundaries,
    sample_indices,
)

__all__ = ["DEFAULT_DISCOUNT", "TERMINAL", "Transitions"]

COLUMNS = (
    "observations",
    "actions",
    "rewards",
    "next_observations",
    "terminated",
    "truncated",
    "states",
    "next_states",
)
"""The fields with one row per step."""


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class Transitions:
    """Recorded experience of n steps: observation, action, reward, next observation.

    The end of an episode is an absorbing terminal state with reward 0. Its id is `num_states`, one
    past the others, and `successors` lead there after `terminated` steps. Truncation is not
    termination: a `truncated` step leads to its next state like any other.

    Arrays are read-only. Arguments are copied unless they are read-only already.

    Args:
        observations: (n, ...), numbers of any type, which is kept.
        actions: (n,) integers, or (n, k) floats for continuous actions.
        rewards: (n,).
        next_observations: (n, ...), of the shape and kind of `observations`.
        terminated: (n,), whether the episode terminated with this step.
        truncated: (n,), whether the episode was cut after this step, by a time limit or the end
            of a recording; None is False everywhere.
        states: (n,) ids of states, or None. Integer observations of shape (n,) are taken as the
            ids where none are given.
        next_states: (n,) ids of the observed next states, or None.
        num_states: ids are 0 to num_states - 1; None is the largest id + 1.
        num_actions: the number of discrete actions; None is the largest action + 1, or None where
            actions are continuous.
        names: one distinct name per state, or None; "end" is the terminal state's name.
        action_names: one distinct name per action, or None.
        positions: (num_states, 2) row and column of each state on a map, or None.
        metadata: how the data were collected, as JSON represents it: environment, seed, versions.

    Raises:
        InputError: an argument has a wrong shape or type, or a number is not finite.

    >>> steps = Transitions([0, 1, 0], [1, 1, 0], [0, 1, 0], [1, 2, 0], [False, True, False])
    >>> steps
    Transitions(3 steps, 2 episodes, 3 states, 2 actions)
    >>> steps.terminal_state, steps.successors.tolist()
    (3, [1, 3, 0])
    """

    observations: NDArray[Any]
    actions: NDArray[Any]
    rewards: NDArray[np.float64]
    next_observations: NDArray[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    states: NDArray[np.int64] | None
    next_states: NDArray[np.int64] | None
    num_states: int | None
    num_actions: int | None
    names: tuple[str, ...] | None
    action_names: tuple[str, ...] | None
    positions: NDArray[np.float64] | None
    metadata: dict[str, Any]

    def __init__(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        next_observations: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike | None = None,
        *,
        states: ArrayLike | None = None,
        next_states: ArrayLike | None = None,
        num_states: int | None = None,
        num_actions: int | None = None,
        names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        positions: ArrayLike | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        current, following = _validation.validate_observations(observations, next_observations)
        n = len(current)
        chosen = _validation.validate_actions(actions, n)
        ended = _validation.validate_flags("terminated", terminated, n)
        cut = np.zeros(n, np.bool_) if truncated is None else truncated
        ids, next_ids = _validation.resolve_state_ids(current, following, states, next_states)
        if ids is not None and next_ids is not None:
            found = (("states", ids), ("next_states", next_ids))
            num_states = _validation.resolve_num_ids("states", num_states, *found)
        elif num_states is not None:
            raise InputError("Transitions: num_states needs ids of states; give states.")
        if chosen.ndim == 1:
            num_actions = _validation.resolve_num_ids("actions", num_actions, ("actions", chosen))
        elif num_actions is not None:
            raise InputError("Transitions: num_actions needs discrete actions, of shape (steps,).")
        self._set_fields(
            observations=current,
            actions=chosen,
            rewards=_validation.as_float_column("rewards", rewards, n),
            next_observations=following,
            terminated=ended,
            truncated=_validation.validate_flags("truncated", cut, n),
            states=ids,
            next_states=next_ids,
            num_states=num_states,
            num_actions=num_actions,
            names=_validation.validate_names("state", names, num_states, bool(ended.any())),
            action_names=_validation.validate_names("action", action_names, num_actions),
            positions=_validation.validate_positions(positions, num_states),
            metadata=_validation.validate_metadata({} if metadata is None else metadata),
        )

    def _set_fields(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def terminal_state(self) -> int | None:
        """The id of the terminal state; None where no step terminated or states have no ids."""
        return self.num_states if self.terminated.any() else None

    @property
    def successors(self) -> NDArray[np.int64]:
        """The successor of each step, (n,): its next state, or the terminal state."""
        if self.next_states is None or self.num_states is None:
            raise InputError("Transitions: successors need ids of states; give states.")
        return freeze(np.where(self.terminated, self.num_states, self.next_states))

    def __len__(self) -> int:
        return len(self.rewards)

    def __getitem__(self, indices: slice | NDArray[Any] | Sequence[int]) -> Transitions:
        """Return a selection of steps.

        Args:
            indices: a slice, a mask (n,) or an array of indices.

        Raises:
            InputError: an index is out of range, or no step is selected.
        """
        rows: Any = indices
        if not isinstance(indices, slice):
            rows = np.asarray(indices)
            if rows.ndim != 1 or rows.dtype.kind not in "biu":
                raise InputError(
                    f"Transitions: {indices!r} selects no steps; give a slice, a mask or an "
                    "array of indices."
                )
        try:
            columns = {name: getattr(self, name) for name in COLUMNS}
            columns = {name: a if a is None else freeze(a[rows]) for name, a in columns.items()}
        except IndexError as error:
            raise InputError(
                f"Transitions: there are {len(self)} steps, and {error}; select existing ones."
            ) from None
        if not len(columns["rewards"]):
            raise InputError(
                f"Transitions: none of the {len(self)} steps is selected; select at least one."
            )
        part = copy.copy(self)
        part._set_fields(**columns)
        return part

    @classmethod
    def from_batches(
        cls,
        observations: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        *,
        terminated: ArrayLike | None = None,
        truncated: ArrayLike | None = None,
        dones: ArrayLike | None = None,
        dones_refer_to: Literal["step", "observation"] | None = None,
        discounts: ArrayLike | None = None,
        next_observations: ArrayLike | None = None,
        last_observations: ArrayLike | None = None,
        last_dones: ArrayLike | None = None,
        autoreset: Literal["same_step", "next_step"] = "same_step",
        **attributes: Any,
    ) -> Transitions:
        """Convert time-major rollouts of N parallel environments, T steps each.

        Steps are ordered environment by environment. Give `terminated`, `dones` or `discounts` to
        mark the ends of episodes. Steps without a known successor are dropped: truncated ones after
        which the environment was reset, and the last of each environment without
        `last_observations`. The step before is then truncated. The successor of a terminated step
        is the terminal state; its next observation is its own where no other was recorded.

        Args:
            observations: (T, N, ...) before each step; a row T + 1 is `last_observations`.
            actions: (T, N) or (T, N, 1) whole numbers, or (T, N, k) floats if continuous.
            rewards: (T, N). These and the following may also have the shape (T, N, 1).
            terminated: (T, N), whether step t terminated the episode.
            truncated: (T, N), whether step t was truncated, as by a time limit.
            dones: (T, N), whether an episode ended. With `terminated` or `discounts`, the others
                were truncated; otherwise all but those in `truncated` terminated.
            dones_refer_to: "step": step t ended the episode. "observation": observations[t] follows
                its end, as in CleanRL, where step t - 1 ended it. Required with `dones`.
            discounts: (T, N), 0 where step t terminated the episode, as in RLax and dm_env;
                elsewhere one constant.
            next_observations: (T, N, ...) after each step and before any reset; None takes them
                from the next row of `observations`.
            last_observations: (N, ...) after the last step: `next_obs` of CleanRL.
            last_dones: (N,), whether the last step ended its episode: `next_done` of CleanRL. Only
                if dones refer to the observation.
            autoreset: "same_step": the row after the end of an episode is the first one of the
                next. "next_step": it has the final observation, and its step only resets, as in
                vector environments of Gymnasium 1; such steps are dropped.
            attributes: further arguments of `Transitions`: num_states, num_actions, names,
                action_names, positions and metadata.

        Returns:
            The transitions.

        Raises:
            InputError: shapes differ, an argument is missing or contradicts another, or no step
                has a known successor.

        >>> steps = Transitions.from_batches(
        ...     [[0, 5], [1, 6], [0, 7]],
        ...     [[[1], [1]], [[1], [0]], [[0], [0]]],
        ...     [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]],
        ...     dones=[[0, 0], [0, 0], [1, 0]],
        ...     dones_refer_to="observation",
        ...     last_observations=[1, 8],
        ...     last_dones=[0, 0],
        ... )
        >>> steps
        Transitions(6 steps, 3 episodes, 9 states, 2 actions)
        >>> steps.states.tolist(), steps.successors.tolist()
        ([0, 1, 0, 5, 6, 7], [1, 9, 1, 6, 7, 8])
        """
        return cls(
            **flatten_batches(
                observations,
                actions,
                rewards,
                terminated=terminated,
                truncated=truncated,
                dones=dones,
                dones_refer_to=dones_refer_to,
                discounts=discounts,
                next_observations=next_observations,
                last_observations=last_observations,
                last_dones=last_dones,
                autoreset=autoreset,
            ),
            **attributes,
        )

    @classmethod
    def concatenate(cls, parts: Iterable[Transitions]) -> Transitions:
        """Concatenate recordings in the given order.

        Equal ids are the same state. Where `names` differ, states are matched by name and numbered
        in the order of first occurrence, and so are observations that are ids. A part that ends
        within an episode is truncated there, unless the next part continues from its last
        observation. `metadata` is the common one, or a list of all as "parts".

        Args:
            parts: recordings with observations and actions of one shape and kind.

        Returns:
            The concatenation.

        Raises:
            InputError: there are no parts, or they are incompatible.

        >>> one = Transitions([0], [0], [1.0], [1], [True], names=("a", "b"))
        >>> other = Transitions([1], [0], [1.0], [0], [False], names=("b", "c"))
        >>> both = Transitions.concatenate([one, other])
        >>> both.names, both.states.tolist(), both.next_states.tolist()
        (('a', 'b', 'c'), [0, 2], [1, 1])
        """
        return cls(**concatenate_fields(list(parts)))

    def episodes(self) -> Iterator[Transitions]:
        """Yield the episodes in order; each ends with a terminated or truncated step.

        Consecutive steps belong together: a random sample of steps has no episodes.

        >>> steps = Transitions([0, 1, 0], [1, 1, 0], [0, 1, 0], [1, 2, 0], [False, True, False])
        >>> [len(episode) for episode in steps.episodes()]
        [2, 1]
        """
        for start, stop in itertools.pairwise(self._episode_boundaries()):
            yield self[start:stop]

    def split(self, *fractions: float, seed: int) -> tuple[Transitions, ...]:
        """Split the recording into random parts of whole episodes.

        Of several random assignments the one closest to the fractions is taken. Every part gets at
        least one episode and keeps the order of the recording.

        Args:
            fractions: the fraction of steps for each part; they sum to 1.
            seed: of the random assignment.

        Returns:
            One `Transitions` per fraction.

        Raises:
            InputError: the fractions are not positive or do not sum to 1, or there are fewer
                episodes than parts.

        >>> steps = Transitions(np.zeros((9, 2)), [0] * 9, [0] * 9, np.ones((9, 2)), [True] * 9)
        >>> [len(part) for part in steps.split(2 / 3, 1 / 3, seed=0)]
        [6, 3]
        """
        lengths = np.diff(self._episode_boundaries())
        owner = np.repeat(assign_episodes(lengths, fractions, seed), lengths)
        return tuple(self[owner == part] for part in range(len(fractions)))

    def sample(self, n: int, seed: int, *, replacement: bool = False) -> Transitions:
        """Draw n steps uniformly at random.

        Args:
            n: the number of steps.
            seed: of the draw.
            replacement: whether a step may be drawn twice.

        Returns:
            The n steps, in the order of the draw.

        Raises:
            InputError: n is larger than the number of steps, without replacement.
        """
        return self[sample_indices(len(self), n, seed, replacement)]

    def to_mdp(
        self, *, discount: float = DEFAULT_DISCOUNT, unseen: Literal["raise", "missing"] = "raise"
    ) -> MDP:
        """Estimate the empirical MDP, with the same ids.

        P(s, a)(s') is the relative frequency of s' after (s, a), and R(s, a) the mean reward:
        exactly the common one where all rewards agree. If a step terminated there is one more
        state, the terminal state "end". A state that only terminated steps enter, such as a hole
        of FrozenLake, becomes absorbing with reward 0.

        Args:
            discount: in [0, 1).
            unseen: what to do where an action was never taken in a visited state: "raise" an
                error, or treat it as "missing" (`MDP.available`); a state without any recorded
                action is then absorbing.

        Returns:
            The MDP, with `is_empirical` set.

        Raises:
            InputError: states have no ids, actions are continuous, or an action is unseen.

        >>> steps = Transitions([0, 0, 0], [0, 0, 1], [1, 1, 2], [0, 0, 0], [True, False, True])
        >>> mdp = steps.to_mdp(discount=0.9)
        >>> mdp.names, mdp.R.tolist()
        (('0', 'end'), [[1.0, 2.0], [0.0, 0.0]])
        >>> mdp.P.toarray()[:2].tolist()
        [[0.5, 0.5], [0.0, 1.0]]
        """
        return estimate_mdp(self, discount, unseen)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one `.npz` file that NumPy can read; it replaces `path` atomically.

        Args:
            path: of the file.

        Raises:
            OSError: the file cannot be written.
        """
        files.write_transitions(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, observations: bool = True) -> Transitions:
        """Read and validate a file that `save` wrote.

        Args:
            path: of the file.
            observations: whether to read observations, which may be large. Without them, the ids
                of states take their place where there are ids.

        Returns:
            The transitions.

        Raises:
            InputError: the file is damaged or holds something else.
        """
        fields = files.read_fields(path, observations)
        try:
            return cls(**fields)
        except InputError as error:
            raise files.wrong_format_error(path, str(error).rstrip(".")) from None

    def _episode_boundaries(self) -> NDArray[np.int64]:
        return find_episode_boundaries(self.terminated | self.truncated)

    def __repr__(self) -> str:
        parts = [
            pluralise(len(self), "step"),
            pluralise(len(self._episode_boundaries()) - 1, "episode"),
        ]
        if self.num_states is None:
            parts.append(f"observations {self.observations.shape[1:]} {self.observations.dtype}")
        else:
            parts.append(pluralise(self.num_states, "state"))
        if self.num_actions is None:
            parts.append(f"actions {self.actions.shape[1:]} {self.actions.dtype}")
        else:
            parts.append(pluralise(self.num_actions, "action"))
        return f"Transitions({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        num_terminated = int(self.terminated.sum())
        num_truncated = int((self.truncated & ~self.terminated).sum())
        rows = {
            "steps": f"{len(self):,}",
            "episodes": f"{len(self._episode_boundaries()) - 1:,}: {num_terminated:,} terminated, "
            f"{num_truncated:,} truncated",
        }
        if self.num_states is not None:
            rows["states"] = format_names(self.num_states, self.names)
        rows["observations"] = f"{self.observations.shape[1:]} {self.observations.dtype}"
        rows["actions"] = f"{self.actions.shape[1:]} {self.actions.dtype}"
        if self.num_actions is not None:
            rows["actions"] = format_names(self.num_actions, self.action_names)
        rows["rewards"] = format_range(float(self.rewards.min()), float(self.rewards.max()))
        for name in ("environment", "dataset", "policy", "seed"):
            if isinstance(self.metadata.get(name), str | int):
                rows[name] = str(self.metadata[name])
        return render_html_table("Transitions", rows)
