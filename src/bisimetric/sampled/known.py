"""The transitions that are known, each once, as the kernels read them."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.mdp import MDP


class Rows(NamedTuple):
    """Transitions, sorted by group and state; those of group g are start[g] to start[g + 1]."""

    group: NDArray[np.int32]
    state: NDArray[np.int32]
    successor: NDArray[np.int32]
    reward: NDArray[np.float64]
    start: NDArray[np.int64]


class Backwards(NamedTuple):
    """The rows of group g that lead to state s: row[start[g, s] : start[g, s + 1]]."""

    row: NDArray[np.int32]
    start: NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class Known:
    """Known transitions of a deterministic MDP, at most one a state and group.

    A group holds what may be compared: for d~ the transitions of one action, for d^pi all.

    Attributes:
        rows: the transitions.
        weight: (rows,), how often each is drawn, relative to the others.
        states: how many states there are, the end included.
        apart: (S,), states with different numbers lie as far apart as possible, since their
            available actions differ; or None.
        mdp: the MDP, where it is known as a whole.
        end: the id of the end of episodes, where data has one.
        reward_error: how far a reward may be from the one that it stands for: that of a stochastic
            policy is a sum, which is rounded.
    """

    rows: Rows
    weight: NDArray[np.float64]
    states: int
    apart: NDArray[np.int64] | None = None
    mdp: MDP | None = None
    end: int | None = None
    reward_error: float = 0.0

    @property
    def groups(self) -> int:
        return len(self.rows.start) - 1

    @property
    def width(self) -> int:
        """Bytes that hold one bit a group."""
        return -(-self.groups // 8)

    @property
    def num_pairs(self) -> int:
        """How many pairs of transitions there are to be drawn, a state with itself left out."""
        size = np.diff(self.rows.start)
        return int((size * (size - 1) // 2).sum())

    @functools.cached_property
    def place(self) -> NDArray[np.int32]:
        """The row of each group and state (G, S), -1 where it is not known."""
        place = np.full((self.groups, self.states), -1, dtype=np.int32)
        place[self.rows.group, self.rows.state] = np.arange(len(self.rows.state))
        return place

    @functools.cached_property
    def backwards(self) -> Backwards:
        """The rows by where they lead to."""
        code = self.rows.group.astype(np.int64) * self.states + self.rows.successor
        row = np.argsort(code, kind="stable").astype(np.int32)
        count = np.bincount(code, minlength=self.groups * self.states)
        ends = np.concatenate([[0], np.cumsum(count)])
        index = np.arange(self.groups)[:, None] * self.states + np.arange(self.states + 1)
        return Backwards(row, ends[index])

    @property
    def seen(self) -> NDArray[np.bool_]:
        """(S, G), what is known; of a model everything is."""
        if self.mdp is not None:
            return np.ones((self.states, self.groups), np.bool_)
        return self.place.T >= 0

    @property
    def together(self) -> NDArray[np.bool_]:
        """(S, S), whether every group is known in both states."""
        whole = self.seen.all(axis=1)
        return np.outer(whole, whole)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Tells one set of known transitions and weights from another."""
        hashed = hashlib.sha256(f"{self.states} {self.groups}".encode())
        for array in (*self.rows, self.weight):
            hashed.update(np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()

    def first_table(self) -> NDArray[np.float64]:
        """Where the distances start: at 0, or as far as possible where action sets differ."""
        values = np.zeros((self.states, self.states))
        if self.apart is not None and self.mdp is not None:
            values[self.apart[:, None] != self.apart[None, :]] = self.mdp.farthest
        return values


def sorted_rows(
    group: NDArray[Any],
    state: NDArray[Any],
    successor: NDArray[Any],
    reward: NDArray[Any],
    weight: NDArray[Any],
    states: int,
    groups: int,
    **about: Any,
) -> Known:
    """Known transitions from columns, in any order."""
    order = np.lexsort((state, group))
    start = np.searchsorted(group[order], np.arange(groups + 1))
    rows = Rows(
        group[order].astype(np.int32),
        state[order].astype(np.int32),
        successor[order].astype(np.int32),
        np.ascontiguousarray(reward[order], dtype=np.float64),
        start.astype(np.int64),
    )
    return Known(rows, weight[order].astype(np.float64), states, **about)


def of_model(mdp: MDP, verb: str, weights: Any = None) -> Known:
    """Everything that a deterministic MDP does; for d^pi, that of its chain under the policy.

    `weights` (S, A) say how often each transition is drawn; default: all alike.
    """
    if not mdp.is_deterministic:
        s, a = mdp.first_branch()
        raise InputError(
            f"sampled.{verb}: state {mdp.name(s)} and action {mdp.action_name(a)} have several "
            f"successors, and sampled pairs need a deterministic MDP; use exact.{verb}."
        )
    group, state = np.meshgrid(np.arange(mdp.num_actions), np.arange(mdp.num_states), indexing="ij")
    has = mdp.has.T.ravel()
    group, state = group.ravel()[has], state.ravel()[has]
    weight = np.ones(mdp.R.shape) if weights is None else checked_weights(verb, weights, mdp)
    apart = None
    if mdp.available is not None:
        apart = np.unique(mdp.available, axis=0, return_inverse=True)[1].ravel()
    return sorted_rows(
        group,
        state,
        mdp.next_state[state, group],
        mdp.R[state, group],
        weight[state, group],
        mdp.num_states,
        mdp.num_actions,
        apart=apart,
        mdp=mdp,
    )


def checked_weights(verb: str, weights: Any, mdp: MDP) -> NDArray[np.float64]:
    """Weights of the transitions of an MDP, (S, A), or a clear error."""
    try:
        given = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.empty(0)
    if given.shape == (mdp.num_states,) and mdp.num_actions == 1:
        given = given[:, None]
    if given.shape != mdp.R.shape:
        raise InputError(
            f"sampled.{verb}: weights have shape {given.shape} and must be numbers of shape "
            f"{mdp.R.shape}, one a state and action."
        )
    refuse_bad_weights(verb, given)
    return given


def refuse_bad_weights(verb: str, weights: NDArray[np.float64]) -> None:
    if not (np.isfinite(weights).all() and (weights >= 0).all() and (weights > 0).any()):
        raise InputError(
            f"sampled.{verb}: weights must be finite, at least 0, and not all of them 0."
        )
