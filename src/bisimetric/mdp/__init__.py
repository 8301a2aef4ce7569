"""The MDP: finite, checked once when it is made, frozen afterwards."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bisimetric.errors import InputError, suggest_names
from bisimetric.mdp._validation import (
    PROBABILITY_TOL,
    add_self_loops,
    as_float_array,
    as_integer_array,
    freeze,
    reject_label_actions,
    require_finite,
    stack_transition_matrices,
    validate_available,
    validate_discount,
    validate_label_actions,
    validate_names,
    validate_policy,
    validate_state_array,
    validate_transition_matrix,
)
from bisimetric.mdp.induced_chain import InducedChain, induce_chain

__all__ = [
    "MDP",
    "PROBABILITY_TOL",
    "InducedChain",
    "induce_chain",
    "reject_label_actions",
    "validate_discount",
    "validate_policy",
]


@dataclasses.dataclass(frozen=True, eq=False)
class MDP:
    """A finite Markov decision process (S, A, P, R, discount).

    Make one with `MDP.deterministic`, `MDP.from_matrices` or `bisimetric.worlds.load`; all of
    them check their input. Arrays are read-only.

    Attributes:
        P: successors as a sparse (S * A, S) matrix; row `s * A + a` is the distribution P(s, a).
        R: rewards (S, A).
        discount: in [0, 1).
        names: one distinct name a state, or None.
        actions: one distinct name an action, or None.
        positions: (S, 2) row and column of each state on a map, or None.
        features: (S, k) features of each state, or None.
        policy: the policy that the world comes with, (S,) or (S, A), or None.
        available: (S, A), whether a state has an action, or None where every state has them all.
            An action that a state lacks is kept as a step on the spot that pays 0, and never taken.
        label_actions: the actions that encode labels of states and are no actions to take, as from
            `worlds.from_prism(observe=...)`. d_lax, which matches any actions, raises for them.

    >>> mdp = MDP.deterministic([[1], [1]], [[0.0], [1.0]], discount=0.5)
    >>> mdp
    MDP(2 states, 1 action, deterministic, discount 0.5)
    >>> mdp.next_state
    array([[1],
           [1]])
    """

    P: sparse.csr_array
    R: NDArray[np.float64]
    discount: float
    names: tuple[str, ...] | None = None
    actions: tuple[str, ...] | None = None
    positions: NDArray[np.float64] | None = None
    features: NDArray[np.float64] | None = None
    policy: NDArray[Any] | None = None
    available: NDArray[np.bool_] | None = None
    label_actions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        rewards = np.array(self.R, dtype=np.float64)
        if rewards.ndim != 2 or 0 in rewards.shape:
            raise InputError(
                f"MDP: rewards have shape {rewards.shape} and must be (states, actions), "
                "with at least one of each."
            )
        states, actions = rewards.shape
        available, P = validate_available(self.available, states, actions), self.P
        if available is not None:
            rewards[~available] = 0.0
            P = add_self_loops(P, available)
        require_finite("rewards", rewards)
        discount = validate_discount(self.discount)
        put = object.__setattr__
        put(self, "available", available)
        put(self, "P", validate_transition_matrix(P, states, actions))
        put(self, "R", freeze(rewards))
        put(self, "discount", discount)
        put(self, "names", validate_names("state", self.names, states))
        put(self, "actions", validate_names("action", self.actions, actions))
        put(self, "label_actions", validate_label_actions(self.label_actions, actions))
        put(self, "positions", validate_state_array("positions", self.positions, states, width=2))
        put(self, "features", validate_state_array("features", self.features, states))
        if self.policy is not None:
            put(self, "policy", freeze(validate_policy(self, self.policy)))

    @classmethod
    def deterministic(
        cls, next_state: ArrayLike, rewards: ArrayLike, *, discount: float, **attributes: Any
    ) -> MDP:
        """An MDP in which action a leads from state s to `next_state[s, a]` for certain.

        `next_state` and `rewards` are (S, A); `about` are `names`, `actions`, `positions`,
        `features`, `policy`, `available` and `label_actions`.

        >>> MDP.deterministic([[0], [7]], [[0], [0]], discount=0.9)
        Traceback (most recent call last):
        ...
        bisimetric.errors.InputError: MDP: next_state[1, 0] is 7 and must be a state from 0 to 1.
        """
        successors = as_integer_array("next_state", next_state)
        rewards = as_float_array("rewards", rewards)
        if successors.ndim != 2 or successors.shape != rewards.shape or successors.size == 0:
            raise InputError(
                f"MDP: next_state has shape {successors.shape} and rewards have "
                f"{rewards.shape}; both must be (states, actions), with at least one of each."
            )
        states, actions = successors.shape
        outside = np.argwhere((successors < 0) | (successors >= states))
        if len(outside):
            s, a = outside[0]
            raise InputError(
                f"MDP: next_state[{s}, {a}] is {successors[s, a]} and must be a state "
                f"from 0 to {states - 1}."
            )
        rows = states * actions
        P = sparse.csr_array(
            (np.ones(rows), successors.ravel(), np.arange(rows + 1)), shape=(rows, states)
        )
        return cls(P, rewards, discount, **attributes)

    @classmethod
    def from_matrices(cls, P: Any, R: ArrayLike, *, discount: float, **attributes: Any) -> MDP:
        """An MDP from transition probabilities P (S, A, S) and rewards R (S, A).

        P is a dense array, a SciPy sparse array of that shape, a sparse (S * A, S) matrix whose
        row `s * A + a` is P(s, a), or a sequence of A matrices (S, S), one an action. It is
        stored sparse; where every row has one successor the MDP is deterministic.

        >>> MDP.from_matrices([[[0.5, 0.4]], [[0.0, 1.0]]], [[0.0], [1.0]], discount=0.9)
        Traceback (most recent call last):
        ...
        bisimetric.errors.InputError: MDP: P[0, 0] sums to 0.9 and must sum to 1.
        """
        rewards = as_float_array("rewards", R)
        if rewards.ndim != 2 or rewards.size == 0:
            raise InputError(
                f"MDP: R has shape {rewards.shape} and must be (states, actions), "
                "with at least one of each."
            )
        return cls(stack_transition_matrices(P, *rewards.shape), rewards, discount, **attributes)

    @property
    def num_states(self) -> int:
        return int(self.R.shape[0])

    @property
    def num_actions(self) -> int:
        return int(self.R.shape[1])

    @property
    def is_deterministic(self) -> bool:
        """Whether every state and action has one successor."""
        return self.P.nnz == self.R.size

    @property
    def normalised_probabilities(self) -> sparse.csr_array:
        """P with every row divided by its sum.

        A row may sum to 1 only nearly; its distribution is understood to be this one.
        """
        if self.is_deterministic:
            return self.P
        scaled = self.P.data / np.repeat(self.P.sum(axis=1), np.diff(self.P.indptr))
        return sparse.csr_array((scaled, self.P.indices, self.P.indptr), self.P.shape)

    @property
    def action_mask(self) -> NDArray[np.bool_]:
        """Whether a state has an action, (S, A), also where every state has them all."""
        return np.ones(self.R.shape, np.bool_) if self.available is None else self.available

    @property
    def diameter_bound(self) -> float:
        """The largest distance that two states can have: the range of R / (1 - discount)."""
        rewards = self.R if self.available is None else self.R[self.available]
        with np.errstate(over="ignore"):
            return float(np.ptp(rewards)) / (1 - self.discount)

    @property
    def next_state(self) -> NDArray[np.integer]:
        """The successors (S, A) of a deterministic MDP."""
        if not self.is_deterministic:
            s, a = self.first_stochastic_action()
            raise InputError(
                f"MDP: next_state needs a deterministic MDP, and P[{s}, {a}] has several "
                "successors; use P."
            )
        return self.P.indices.reshape(self.R.shape)

    def first_stochastic_action(self) -> tuple[int, int]:
        """The first state and action with several successors, in an MDP that has them."""
        return divmod(int(np.argmax(np.diff(self.P.indptr) > 1)), self.num_actions)

    def state(self, state: int | np.integer | str) -> int:
        """The id of a state given by id or by name."""
        if isinstance(state, str) and self.names is not None and state in self.names:
            return self.names.index(state)
        try:
            index = int(state)
            if index == state or isinstance(state, str):
                if 0 <= index < self.num_states:
                    return index
                raise InputError(
                    f"MDP: there is no state {index}; ids go from 0 to {self.num_states - 1}."
                )
        except (TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
        hint = suggest_names(str(state), self.names or ())
        raise InputError(
            f"MDP: there is no state {state!r}"
            + (hint or f"; use an id from 0 to {self.num_states - 1}.")
        )

    def state_name(self, state: int) -> str:
        """The name of a state: its own, or its id."""
        return self.names[state] if self.names is not None else str(state)

    def action_name(self, action: int) -> str:
        """The name of an action: its own, or its id."""
        return self.actions[action] if self.actions is not None else str(action)

    def replace(self, **changes: Any) -> MDP:
        """A checked copy with some fields changed, such as `discount` or `policy`."""
        return dataclasses.replace(self, **changes)

    def apply_policy(self, policy: ArrayLike) -> MDP:
        """The Markov chain that a policy induces, as an MDP with one action.

        R^pi(s) = sum_a pi(a|s) R(s, a) and P^pi(s) = sum_a pi(a|s) P(s, a), with pi(.|s) and
        P(s, a) divided by their sums. `induce_chain` also bounds the rounding.

        >>> mdp = MDP.deterministic([[1, 0], [1, 0]], [[0, 2], [1, 3]], discount=0.5)
        >>> mdp.under([[0.5, 0.5], [1.0, 0.0]]).R.ravel()
        array([1., 1.])
        """
        return induce_chain(self, policy).mdp

    def __repr__(self) -> str:
        kind = "deterministic" if self.is_deterministic else f"{self.P.nnz} transitions"
        plural = "" if self.num_actions == 1 else "s"
        states = "1 state" if self.num_states == 1 else f"{self.num_states} states"
        return f"MDP({states}, {self.num_actions} action{plural}, {kind}, discount {self.discount})"
