"""Transitions: experience, step by step; checked once when it is made, frozen afterwards."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.mdp._validation import freeze
from bisimetric.transitions import _validation, files
from bisimetric.transitions._validation import TERMINAL
from bisimetric.transitions.empirical_mdp import estimate_mdp
from bisimetric.transitions.episodes import (
    assign_episodes,
    concatenate_fields,
    find_episode_boundaries,
    sample_indices,
)

__all__ = ["DEFAULT_DISCOUNT", "TERMINAL", "Transitions"]

DEFAULT_DISCOUNT = 0.99
"""The discount of data, which has none of its own."""

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
"""The fields with one row a step."""


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class Transitions:
    """Experience of n steps: what was observed, done, paid, and observed next.

    The end of an episode is a state of its own, absorbing, with reward 0 for ever. Its id is
    `num_states`, one past the others, and `successors` lead there after `terminated` steps.
    A `truncated` step was cut there, by a limit of time or the end of a recording: it leads to
    its next state like any other.

    Arrays are read-only. Those given are copied, unless they are read-only already.

    Attributes:
        observations: (n, ...), numbers of any type, which they keep.
        actions: (n,) whole numbers, or (n, k) floats where actions are continuous.
        rewards: (n,).
        next_observations: (n, ...), of the shape and kind of `observations`.
        terminated: (n,), whether the episode ended there, for good.
        truncated: (n,), whether it was cut there; False everywhere where not given.
        states: (n,) ids of states, or None. Observations of shape (n,) and an integer type
            are the ids where none are given.
        next_states: (n,) ids of next states, as observed, or None.
        num_states: ids are 0 to num_states - 1; the largest found + 1 where not given.
        num_actions: likewise; None where actions are continuous.
        names: one distinct name an id, or None; the end is called "end".
        action_names: one distinct name an action, or None.
        positions: (num_states, 2) row and column of each state on a map, or None.
        made: how they were collected, as JSON has it: environment, key, steps, versions.

    >>> walk = Transitions([0, 1, 0], [1, 1, 0], [0, 1, 0], [1, 2, 0], [False, True, False])
    >>> walk
    Transitions(3 steps, 2 episodes, 3 states, 2 actions)
    >>> walk.end, walk.successors.tolist()
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
        here, there = _validation.validate_observations(observations, next_observations)
        steps = len(here)
        taken = _validation.validate_actions(actions, steps)
        ended = _validation.validate_flags("terminated", terminated, steps)
        cut = np.zeros(steps, np.bool_) if truncated is None else truncated
        ids, next_ids = _validation.resolve_state_ids(here, there, states, next_states)
        if ids is not None and next_ids is not None:
            found = (("states", ids), ("next_states", next_ids))
            num_states = _validation.resolve_num_ids("states", num_states, *found)
        elif num_states is not None:
            raise InputError("Transitions: num_states needs ids of states; give states.")
        if taken.ndim == 1:
            num_actions = _validation.resolve_num_ids("actions", num_actions, ("actions", taken))
        elif num_actions is not None:
            raise InputError("Transitions: num_actions needs discrete actions, of shape (steps,).")
        self._set_fields(
            observations=here,
            actions=taken,
            rewards=_validation.as_float_column("rewards", rewards, steps),
            next_observations=there,
            terminated=ended,
            truncated=_validation.validate_flags("truncated", cut, steps),
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
        """The id of the end of episodes, or None where no step terminated or there are no ids."""
        return self.num_states if self.terminated.any() else None

    @property
    def successors(self) -> NDArray[np.int64]:
        """Where each step leads, (n,): to its next state, or to the end."""
        if self.next_states is None or self.num_states is None:
            raise InputError("Transitions: successors need ids of states; give states.")
        return freeze(np.where(self.terminated, self.num_states, self.next_states))

    def __len__(self) -> int:
        return len(self.rewards)

    def __getitem__(self, indices: slice | NDArray[Any] | Sequence[int]) -> Transitions:
        """The steps of a slice, a mask (n,) or an array of indices; at least one."""
        rows: Any = indices
        if not isinstance(indices, slice):
            rows = np.asarray(indices)
            if rows.ndim != 1 or rows.dtype.kind not in "biu":
                raise InputError(
                    "Transitions: steps are chosen by a slice, a mask or an array of indices; "
                    f"{indices!r} is none."
                )
        try:
            taken = {name: getattr(self, name) for name in COLUMNS}
            taken = {name: a if a is None else freeze(a[rows]) for name, a in taken.items()}
        except IndexError as error:
            raise InputError(
                f"Transitions: there are {len(self)} steps, and {error}; choose among them."
            ) from None
        if not len(taken["rewards"]):
            raise InputError(f"Transitions: none of the {len(self)} steps is chosen; choose one.")
        part = copy.copy(self)
        part._set_fields(**taken)
        return part

    @classmethod
    def concatenate(cls, parts: Iterable[Transitions]) -> Transitions:
        """All steps of several, in their order.

        Their ids are the same ids. Where their `names` differ, states are matched by name and
        numbered as their names first occur, and so are observations that are ids. A part that
        stops in the middle of an episode is truncated there, unless the next part goes on with
        the observation that it stopped at. `made` is that of all, or their list as "parts".

        >>> one = Transitions([0], [0], [1.0], [1], [True], names=("a", "b"))
        >>> other = Transitions([1], [0], [1.0], [0], [False], names=("b", "c"))
        >>> both = Transitions.concatenate([one, other])
        >>> both.names, both.states.tolist(), both.next_states.tolist()
        (('a', 'b', 'c'), [0, 2], [1, 1])
        """
        return cls(**concatenate_fields(list(parts)))

    def episodes(self) -> Iterator[Transitions]:
        """The episodes, in their order; each is cut after a terminated or truncated step.

        They are those of the recording: steps that were drawn singly make none.

        >>> steps = Transitions([0, 1, 0], [1, 1, 0], [0, 1, 0], [1, 2, 0], [False, True, False])
        >>> [len(episode) for episode in steps.episodes()]
        [2, 1]
        """
        for start, stop in itertools.pairwise(self._episode_boundaries()):
            yield self[start:stop]

    def split(self, *fractions: float, seed: int) -> tuple[Transitions, ...]:
        """Whole episodes dealt to parts at random, so that the parts have these shares of steps.

        Shares sum to 1; whole episodes meet them nearly. Each part gets at least one, and keeps
        the order of the recording. The nearest of some random deals is taken.

        >>> steps = Transitions(np.zeros((9, 2)), [0] * 9, [0] * 9, np.ones((9, 2)), [True] * 9)
        >>> [len(part) for part in steps.split(2 / 3, 1 / 3, key=0)]
        [6, 3]
        """
        lengths = np.diff(self._episode_boundaries())
        owner = np.repeat(assign_episodes(lengths, fractions, seed), lengths)
        return tuple(self[owner == part] for part in range(len(fractions)))

    def sample(self, n: int, seed: int, *, replacement: bool = False) -> Transitions:
        """n random steps, all equally likely; different ones unless `replacement`."""
        return self[sample_indices(len(self), n, seed, replacement)]

    def to_mdp(
        self, *, discount: float = DEFAULT_DISCOUNT, unseen: Literal["refuse", "lacking"] = "refuse"
    ) -> MDP:
        """The MDP that these steps tell of, with the same ids.

        P(s, a) are the shares of the successors of (s, a), R(s, a) is the mean of its rewards:
        exactly the common one where all agree. Where a step terminated there is one more state,
        "end". A state that no step left, and none entered but by ending there, such as a hole of
        FrozenLake, is kept as steps on the spot that pay 0.

        Where some action was never taken in a state that was left or entered, `unseen` decides:
        "refuse" raises an error that names it; "lacking" leaves the state the actions that were
        seen (`MDP.available`), and one that was never left stays on the spot, like an end.

        >>> steps = Transitions([0, 0, 0], [0, 0, 1], [1, 1, 2], [0, 0, 0], [True, False, True])
        >>> mdp = steps.to_mdp(discount=0.9)
        >>> mdp.names, mdp.R.tolist()
        (('0', 'end'), [[1.0, 2.0], [0.0, 0.0]])
        >>> mdp.P.toarray()[:2].tolist()
        [[0.5, 0.5], [0.0, 1.0]]
        """
        return estimate_mdp(self, discount, unseen)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one `.npz`, readable by plain NumPy; the file appears whole or not at all."""
        files.write_transitions(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, observations: bool = True) -> Transitions:
        """Reads what `save` wrote, and checks it.

        Observations may be large. With `observations=False` they are not read where there are
        ids of states, which stand in their place.
        """
        fields = files.read_fields(path, observations)
        try:
            return cls(**fields)
        except InputError as error:
            raise files.wrong_format_error(path, str(error).rstrip(".")) from None

    def _episode_boundaries(self) -> NDArray[np.int64]:
        return find_episode_boundaries(self.terminated | self.truncated)

    def __repr__(self) -> str:
        said = [
            _format_count(len(self), "step"),
            _format_count(len(self._episode_boundaries()) - 1, "episode"),
        ]
        if self.num_states is None:
            said.append(f"observations {self.observations.shape[1:]} {self.observations.dtype}")
        else:
            said.append(_format_count(self.num_states, "state"))
        if self.num_actions is None:
            said.append(f"actions {self.actions.shape[1:]} {self.actions.dtype}")
        else:
            said.append(_format_count(self.num_actions, "action"))
        return f"Transitions({', '.join(said)})"


def _format_count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
