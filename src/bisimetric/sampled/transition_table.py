"""The table of known transitions, each once, in the form that the kernels read."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric._rounding import UNIT
from bisimetric.errors import InputError
from bisimetric.exact._gap_solver import add_ground_distance, bound_diameter
from bisimetric.mdp import MDP, compute_comparison_classes


class GroupedTransitions(NamedTuple):
    """Transitions sorted by group and state; group g has rows start[g] to start[g + 1] - 1.

    `cost` (0, 1 or groups, S, S) is added to the differences of rewards.
    """

    group: NDArray[np.int32]
    state: NDArray[np.int32]
    successor: NDArray[np.int32]
    reward: NDArray[np.float64]
    start: NDArray[np.int64]
    cost: NDArray[np.float64]


class PredecessorIndex(NamedTuple):
    """The rows of group g that lead to state s: rows[start[g, s] : start[g, s + 1]]."""

    rows: NDArray[np.int32]
    start: NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class TransitionTable:
    """Known transitions of a deterministic MDP, at most one per state and group.

    A group holds the transitions that are compared: for d~ those of one action, for d^pi all.

    Attributes:
        rows: the transitions.
        weight: (rows,), relative sampling frequencies.
        num_states: the number of states, the terminal state included.
        comparison_classes: (S,): states of different classes, whose labels or available actions
            differ, are at the diameter bound; None if there is one class.
        mdp: the MDP, if it is fully known.
        terminal: the id of the terminal state, if the data have one.
        reward_error: a bound on the rounding of a reward, which is a sum for a stochastic policy.
        cost_error: a bound on the rounding of `rows.cost` and of adding it.
        diameter_bound: the largest possible distance, if it is known.
    """

    rows: GroupedTransitions
    weight: NDArray[np.float64]
    num_states: int
    comparison_classes: NDArray[np.int64] | None = None
    mdp: MDP | None = None
    terminal: int | None = None
    reward_error: float = 0.0
    cost_error: float = 0.0
    diameter_bound: float | None = None

    @property
    def num_groups(self) -> int:
        return len(self.rows.start) - 1

    @property
    def group_bytes(self) -> int:
        """Bytes that hold one bit per group."""
        return -(-self.num_groups // 8)

    @property
    def num_pairs(self) -> int:
        """The number of pairs of transitions from different states in one group."""
        size = np.diff(self.rows.start)
        return int((size * (size - 1) // 2).sum())

    @functools.cached_property
    def row_index(self) -> NDArray[np.int32]:
        """The row of each group and state (G, S), -1 if unknown."""
        index = np.full((self.num_groups, self.num_states), -1, dtype=np.int32)
        index[self.rows.group, self.rows.state] = np.arange(len(self.rows.state))
        return index

    @functools.cached_property
    def predecessors(self) -> PredecessorIndex:
        """The rows by group and successor."""
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
        """(S, G), whether each transition is known; all are for an MDP."""
        if self.mdp is not None:
            return np.ones((self.num_states, self.num_groups), np.bool_)
        return self.row_index.T >= 0

    @property
    def jointly_observed(self) -> NDArray[np.bool_]:
        """(S, S), whether all groups are known in both states."""
        fully_observed = self.observed.all(axis=1)
        return np.outer(fully_observed, fully_observed)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of the transitions, weights and comparison classes."""
        hashed = hashlib.sha256(f"{self.num_states} {self.num_groups}".encode())
        classes = () if self.comparison_classes is None else (self.comparison_classes,)
        for array in (*self.rows, self.weight, *classes):
            hashed.update(np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()

    def initial_values(self) -> NDArray[np.float64]:
        """Return the initial distances: 0, or the diameter bound between comparison classes."""
        values = np.zeros((self.num_states, self.num_states))
        classes = self.comparison_classes
        if classes is not None and self.diameter_bound is not None:
            values[classes[:, None] != classes[None, :]] = self.diameter_bound
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
    """Build a table from columns in any order; `fields` are further attributes."""
    order = np.lexsort((state, group))
    start = np.searchsorted(group[order], np.arange(num_groups + 1))
    rows = GroupedTransitions(
        group[order].astype(np.int32),
        state[order].astype(np.int32),
        successor[order].astype(np.int32),
        np.ascontiguousarray(reward[order], dtype=np.float64),
        start.astype(np.int64),
        np.empty((0, 0, 0)),
    )
    return TransitionTable(rows, weight[order].astype(np.float64), num_states, **fields)


def table_from_mdp(mdp: MDP, kind: str, weights: Any = None) -> TransitionTable:
    """Build the table of a deterministic MDP; for d^pi, of the chain that a policy induces.

    `weights` (S, A) are relative sampling frequencies; default: all alike.
    """
    if not mdp.is_deterministic:
        s, a = mdp.first_stochastic_action()
        raise InputError(
            f"has several successors of state {mdp.state_name(s)} under action "
            f"{mdp.action_name(a)} and must be deterministic",
            caller=f"sampled.{kind}",
            argument="source",
            remedy=f"use exact.{kind}",
        )
    group, state = np.meshgrid(np.arange(mdp.num_actions), np.arange(mdp.num_states), indexing="ij")
    available = mdp.action_mask.T.ravel()
    group, state = group.ravel()[available], state.ravel()[available]
    weight = np.ones(mdp.R.shape) if weights is None else validate_weights(kind, weights, mdp)
    if mdp.choice_labels is not None:
        raise InputError(
            "has actions that share choice labels, which sampled distances do not compare as sets",
            caller=f"sampled.{kind}",
            argument="source",
            remedy=f"use exact.{kind}",
        )
    classes = compute_comparison_classes(mdp)
    table = table_from_columns(
        group,
        state,
        mdp.next_state[state, group],
        mdp.R[state, group],
        weight[state, group],
        mdp.num_states,
        mdp.num_actions,
        comparison_classes=classes if classes.any() else None,
        mdp=mdp,
        diameter_bound=mdp.diameter_bound,
    )
    ground = mdp.ground_distance
    if ground is None:
        return table
    # The diameter bound exceeds every gap: adding the ground distance has one rounding.
    rounding = ground.rounding_error + UNIT * mdp.diameter_bound
    return add_cost(table, ground.matrix[None], rounding)


def add_cost(
    table: TransitionTable, cost: NDArray[np.float64], rounding_error: float = 0.0
) -> TransitionTable:
    """Return the table with a cost (1 or groups, S, S) besides the differences of rewards."""
    rows = table.rows._replace(cost=np.ascontiguousarray(cost))
    return dataclasses.replace(table, rows=rows, cost_error=rounding_error)


def replace_rewards(
    table: TransitionTable, gap: NDArray[np.float64], mdp: MDP, kind: str
) -> TransitionTable:
    """Return the table with a gap (1 or groups, S, S) in place of the differences of rewards."""
    gap, rounding = add_ground_distance(gap, mdp)
    rows = table.rows._replace(reward=np.zeros_like(table.rows.reward))
    known = table.mdp is not None
    table = dataclasses.replace(
        table,
        rows=rows,
        reward_error=0.0,
        diameter_bound=bound_diameter(gap, mdp, lax=kind != "bisimulation") if known else None,
    )
    return add_cost(table, gap, rounding)


def validate_weights(kind: str, weights: Any, mdp: MDP) -> NDArray[np.float64]:
    """Return the weights (S, A) of an MDP's transitions, or raise InputError."""
    try:
        array = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape == (mdp.num_states,) and mdp.num_actions == 1:
        array = array[:, None]
    if array.shape != mdp.R.shape:
        raise InputError(
            f"sampled.{kind}: weights have shape {array.shape} and must be numbers of shape "
            f"{mdp.R.shape}, one per state and action."
        )
    require_valid_weights(kind, array)
    return array


def require_valid_weights(kind: str, weights: NDArray[np.float64]) -> None:
    """Raise InputError unless weights are finite, nonnegative and not all 0."""
    if not (np.isfinite(weights).all() and (weights >= 0).all() and (weights > 0).any()):
        raise InputError(
            f"sampled.{kind}: weights must be finite, at least 0, and not all of them 0."
        )
