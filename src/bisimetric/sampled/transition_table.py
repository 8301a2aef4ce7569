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


class TransitionRows(NamedTuple):
    """Transitions, sorted by group and state; those of group g are start[g] to start[g + 1]."""

    group: NDArray[np.int32]
    state: NDArray[np.int32]
    successor: NDArray[np.int32]
    reward: NDArray[np.float64]
    start: NDArray[np.int64]


class PredecessorIndex(NamedTuple):
    """The rows of group g that lead to state s: row[start[g, s] : start[g, s + 1]]."""

    rows: NDArray[np.int32]
    start: NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class TransitionTable:
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

    rows: TransitionRows
    weight: NDArray[np.float64]
    num_states: int
    action_sets: NDArray[np.int64] | None = None
    mdp: MDP | None = None
    terminal: int | None = None
    reward_error: float = 0.0

    @property
    def num_groups(self) -> int:
        return len(self.rows.start) - 1

    @property
    def group_bytes(self) -> int:
        """Bytes that hold one bit a group."""
        return -(-self.num_groups // 8)

    @property
    def num_pairs(self) -> int:
        """How many pairs of transitions there are to be drawn, a state with itself left out."""
        size = np.diff(self.rows.start)
        return int((size * (size - 1) // 2).sum())

    @functools.cached_property
    def row_index(self) -> NDArray[np.int32]:
        """The row of each group and state (G, S), -1 where it is not known."""
        place = np.full((self.num_groups, self.num_states), -1, dtype=np.int32)
        place[self.rows.group, self.rows.state] = np.arange(len(self.rows.state))
        return place

    @functools.cached_property
    def predecessors(self) -> PredecessorIndex:
        """The rows by where they lead to."""
        code = self.rows.group.astype(np.int64) * self.num_states + self.rows.successor
        row = np.argsort(code, kind="stable").astype(np.int32)
        count = np.bincount(code, minlength=self.num_groups * self.num_states)
        ends = np.concatenate([[0], np.cumsum(count)])
        index = np.arange(self.num_groups)[:, None] * self.num_states + np.arange(
            self.num_states + 1
        )
        return PredecessorIndex(row, ends[index])

    @property
    def observed(self) -> NDArray[np.bool_]:
        """(S, G), what is known; of a model everything is."""
        if self.mdp is not None:
            return np.ones((self.num_states, self.num_groups), np.bool_)
        return self.row_index.T >= 0

    @property
    def jointly_observed(self) -> NDArray[np.bool_]:
        """(S, S), whether every group is known in both states."""
        whole = self.observed.all(axis=1)
        return np.outer(whole, whole)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Tells one set of known transitions and weights from another."""
        hashed = hashlib.sha256(f"{self.num_states} {self.num_groups}".encode())
        for array in (*self.rows, self.weight):
            hashed.update(np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()

    def initial_values(self) -> NDArray[np.float64]:
        """Where the distances start: at 0, or as far as possible where action sets differ."""
        values = np.zeros((self.num_states, self.num_states))
        if self.action_sets is not None and self.mdp is not None:
            values[self.action_sets[:, None] != self.action_sets[None, :]] = self.mdp.diameter_bound
        return values


def table_from_columns(
    group: NDArray[Any],
    state: NDArray[Any],
    successor: NDArray[Any],
    reward: NDArray[Any],
    weight: NDArray[Any],
    num_states: int,
    num_groups: int,
    **fields: Any,
) -> TransitionTable:
    """Known transitions from columns, in any order."""
    order = np.lexsort((state, group))
    start = np.searchsorted(group[order], np.arange(num_groups + 1))
    rows = TransitionRows(
        group[order].astype(np.int32),
        state[order].astype(np.int32),
        successor[order].astype(np.int32),
        np.ascontiguousarray(reward[order], dtype=np.float64),
        start.astype(np.int64),
    )
    return TransitionTable(rows, weight[order].astype(np.float64), num_states, **fields)


def table_from_mdp(mdp: MDP, kind: str, weights: Any = None) -> TransitionTable:
    """Everything that a deterministic MDP does; for d^pi, that of its chain under the policy.

    `weights` (S, A) say how often each transition is drawn; default: all alike.
    """
    if not mdp.is_deterministic:
        s, a = mdp.first_stochastic_action()
        raise InputError(
            f"sampled.{kind}: state {mdp.state_name(s)} and action {mdp.action_name(a)} have several "
            f"successors, and sampled pairs need a deterministic MDP; use exact.{kind}."
        )
    group, state = np.meshgrid(np.arange(mdp.num_actions), np.arange(mdp.num_states), indexing="ij")
    has = mdp.action_mask.T.ravel()
    group, state = group.ravel()[has], state.ravel()[has]
    weight = np.ones(mdp.R.shape) if weights is None else validate_weights(kind, weights, mdp)
    apart = None
    if mdp.available is not None:
        apart = np.unique(mdp.available, axis=0, return_inverse=True)[1].ravel()
    return table_from_columns(
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


def validate_weights(kind: str, weights: Any, mdp: MDP) -> NDArray[np.float64]:
    """Weights of the transitions of an MDP, (S, A), or a clear error."""
    try:
        given = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.empty(0)
    if given.shape == (mdp.num_states,) and mdp.num_actions == 1:
        given = given[:, None]
    if given.shape != mdp.R.shape:
        raise InputError(
            f"sampled.{kind}: weights have shape {given.shape} and must be numbers of shape "
            f"{mdp.R.shape}, one a state and action."
        )
    require_valid_weights(kind, given)
    return given


def require_valid_weights(kind: str, weights: NDArray[np.float64]) -> None:
    if not (np.isfinite(weights).all() and (weights >= 0).all() and (weights > 0).any()):
        raise InputError(
            f"sampled.{kind}: weights must be finite, at least 0, and not all of them 0."
        )
