"""Finite Markov decision processes, validated at construction and immutable afterwards."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bisimetric._text import format_names, format_range, pluralise, render_html_table
from bisimetric.errors import InputError, suggest_names
from bisimetric.mdp._labels import (
    StateLabels,
    compute_comparison_classes,
    merge_labels,
    number_by_appearance,
    reject_labels,
    validate_choice_labels,
    validate_labels,
)
from bisimetric.mdp._observations import (
    GroundDistance,
    GroundMetric,
    merge_observations,
    reject_observations,
    validate_observations,
)
from bisimetric.mdp._validation import (
    PROBABILITY_TOL,
    add_self_loops,
    as_float_array,
    as_integer_array,
    freeze,
    require_finite,
    stack_transition_matrices,
    validate_available,
    validate_discount,
    validate_names,
    validate_policy,
    validate_state_array,
    validate_transition_matrix,
)
from bisimetric.mdp.induced_chain import InducedChain, induce_chain

__all__ = [
    "DEFAULT_DISCOUNT",
    "MDP",
    "PROBABILITY_TOL",
    "TERMINAL",
    "GroundDistance",
    "InducedChain",
    "StateLabels",
    "compute_comparison_classes",
    "induce_chain",
    "merge_labels",
    "merge_observations",
    "number_by_appearance",
    "reject_labels",
    "reject_observations",
    "validate_discount",
    "validate_policy",
]


DEFAULT_DISCOUNT = 0.99
"""The discount of sources without one: recorded data and environments."""

TERMINAL = "end"
"""The name of the absorbing terminal state of sources that do not name theirs."""


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class MDP:
    """A finite Markov decision process (S, A, P, R, discount).

    A missing action (see `available`) is stored as a self-loop with reward 0 and never taken.
    Arrays are read-only.

    Args:
        P: transition probabilities: a dense or sparse array (S, A, S); a sparse matrix (S * A, S)
            whose row `s * A + a` is the distribution P(s, a); or a sequence of A sparse matrices
            (S, S), one per action. Rows must sum to 1 within 1e-8. `worlds.from_matrices` reads
            arrays (A, S, S).
        R: rewards (S, A).
        discount: in [0, 1).
        names: one distinct name per state, or None.
        actions: one distinct name per action, or None.
        positions: (S, 2) row and column of each state on a map, or None.
        features: (S, k) features of each state, or None.
        policy: a policy that belongs to the MDP, (S,) actions or (S, A) probabilities, or None.
        available: (S, A), whether a state has an action, or None where all states have all
            actions.
        labels: the labels (atomic propositions) of the states: a mapping from each label to a
            bool mask (S,), or a sequence of one set of strings per state. States with different
            label sets are in no relation, and at the diameter bound in every distance but reduced
            MICo.
        choice_labels: one label per action, or None where they are all different. Actions with
            equal labels are a set: each is matched with any action of its label, as choices are in
            Storm; `bisimulation` then compares sets.
        observations: (S, k) vectors observed in the states, or None. Their ground distance is added
            to |R(s, a) - R(t, b)| in every distance, and related states are at ground distance 0.
        ground_distance: "l2" (the default, also "euclidean"), "l1", "max" or "discrete" (1 for
            different vectors); a function of vectors, from x (n, 1, k) and y (1, m, k) to (n, m);
            or a matrix (S, S), which needs no observations. It must be a pseudometric, in units of
            reward. The attribute is a `GroundDistance`, a function of state ids.
        is_empirical: whether P and R are estimates from recorded transitions.

    Attributes:
        P: the probabilities as a sparse (S * A, S) matrix; row `s * A + a` is P(s, a).

    Raises:
        InputError: an argument has a wrong shape or type, a row is no distribution, or a state has
            no action.

    >>> MDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[0.0], [1.0]], discount=0.9)
    MDP(2 states, 1 action, 3 transitions, discount 0.9)
    >>> MDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[0.0], [0.0]], discount=0.9, labels=[(), "goal"])
    MDP(2 states, 1 action, 3 transitions, discount 0.9, 1 label)
    >>> mdp = MDP.deterministic([[0], [1]], [[0], [1]], discount=0.5, observations=[[0], [3]])
    >>> mdp.ground_distance(0, 1), mdp.diameter_bound
    (array(3.), 8.0)
    >>> MDP([[[0.5, 0.4]], [[0.0, 1.0]]], [[0.0], [1.0]], discount=0.9)
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: MDP: P[0, 0] sums to 0.9 and must sum to 1.
    """

    P: sparse.csr_array
    R: NDArray[np.float64]
    discount: float
    names: tuple[str, ...] | None
    actions: tuple[str, ...] | None
    positions: NDArray[np.float64] | None
    features: NDArray[np.float64] | None
    policy: NDArray[Any] | None
    available: NDArray[np.bool_] | None
    labels: StateLabels | None
    choice_labels: tuple[str, ...] | None
    observations: NDArray[np.float64] | None
    ground_distance: GroundDistance | None
    is_empirical: bool

    def __init__(
        self,
        P: Any,
        R: ArrayLike,
        discount: float,
        *,
        names: Sequence[str] | None = None,
        actions: Sequence[str] | None = None,
        positions: ArrayLike | None = None,
        features: ArrayLike | None = None,
        policy: ArrayLike | None = None,
        available: ArrayLike | None = None,
        labels: Mapping[str, ArrayLike] | Sequence[str | Collection[str]] | None = None,
        choice_labels: Sequence[str] | None = None,
        observations: ArrayLike | None = None,
        ground_distance: GroundMetric | GroundDistance | None = None,
        is_empirical: bool = False,
    ) -> None:
        rewards = np.array(as_float_array("rewards", R))
        if rewards.ndim != 2 or 0 in rewards.shape:
            raise InputError(
                f"MDP: rewards have shape {rewards.shape} and must be (states, actions), "
                "with at least one of each."
            )
        num_states, num_actions = rewards.shape
        mask = validate_available(available, num_states, num_actions)
        stacked = stack_transition_matrices(P, num_states, num_actions)
        if mask is not None:
            rewards[~mask] = 0.0
            stacked = add_self_loops(stacked, mask)
        require_finite("rewards", rewards)
        put = functools.partial(object.__setattr__, self)  # the class is frozen
        put("discount", validate_discount(discount))
        put("available", mask)
        put("P", validate_transition_matrix(stacked, num_states, num_actions))
        put("R", freeze(rewards))
        put("names", validate_names("state", names, num_states))
        put("actions", validate_names("action", actions, num_actions))
        put("labels", validate_labels(labels, num_states))
        put("choice_labels", validate_choice_labels(choice_labels, num_actions))
        vectors, ground = validate_observations(observations, ground_distance, num_states)
        put("observations", vectors)
        put("ground_distance", ground)
        put("positions", validate_state_array("positions", positions, num_states, width=2))
        put("features", validate_state_array("features", features, num_states))
        put("policy", None if policy is None else freeze(validate_policy(self, policy)))
        put("is_empirical", bool(is_empirical))

    @classmethod
    def deterministic(
        cls, next_state: ArrayLike, rewards: ArrayLike, *, discount: float, **attributes: Any
    ) -> MDP:
        """Build an MDP in which action a leads from state s to `next_state[s, a]`.

        Args:
            next_state: successors (S, A).
            rewards: (S, A).
            discount: in [0, 1).
            attributes: further arguments of `MDP`, such as `names` or `policy`.

        Returns:
            The MDP.

        Raises:
            InputError: the shapes differ, or a successor is no state.

        >>> mdp = MDP.deterministic([[1], [1]], [[0.0], [1.0]], discount=0.5)
        >>> mdp
        MDP(2 states, 1 action, deterministic, discount 0.5)
        >>> mdp.next_state
        array([[1],
               [1]])
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

    @property
    def num_states(self) -> int:
        """The number of states."""
        return int(self.R.shape[0])

    @property
    def num_actions(self) -> int:
        """The number of actions, missing ones included."""
        return int(self.R.shape[1])

    @property
    def is_deterministic(self) -> bool:
        """Whether every state and action has one successor."""
        return self.P.nnz == self.R.size

    @property
    def normalised_probabilities(self) -> sparse.csr_array:
        """P with every row divided by its sum.

        Rows sum to 1 within a tolerance; the quotient is the distribution that they stand for.
        """
        if self.is_deterministic:
            return self.P
        scaled = self.P.data / np.repeat(self.P.sum(axis=1), np.diff(self.P.indptr))
        return sparse.csr_array((scaled, self.P.indices, self.P.indptr), self.P.shape)

    @property
    def action_mask(self) -> NDArray[np.bool_]:
        """Whether a state has an action, (S, A); all True where `available` is None."""
        return np.ones(self.R.shape, np.bool_) if self.available is None else self.available

    @property
    def diameter_bound(self) -> float:
        """Upper bound on every distance: (max R - min R) / (1 - discount).

        With observations, their largest ground distance is added to the range of the rewards.
        Where label sets differ and all rewards are equal, it is 1 / (1 - discount): then
        (1 - discount) d is the usual distance of labelled Markov chains, in [0, 1].
        """
        rewards = self.R if self.available is None else self.R[self.available]
        with np.errstate(over="ignore"):
            reward_range = float(np.ptp(rewards))
            if self.ground_distance is not None:
                reward_range += self.ground_distance.largest
            if reward_range == 0 and self.has_labels:
                reward_range = 1.0
            return reward_range / (1 - self.discount)

    @property
    def has_labels(self) -> bool:
        """Whether two states have different label sets."""
        return self.labels is not None and bool(self.labels.classes.max() > 0)

    @property
    def label_classes(self) -> NDArray[np.int64]:
        """(S,), equal for states with equal label sets; all 0 without labels."""
        if self.labels is None:
            return np.zeros(self.num_states, np.int64)
        return self.labels.classes

    @property
    def choice_groups(self) -> NDArray[np.int64]:
        """(A,), equal for actions with equal choice labels, numbered by first appearance."""
        if self.choice_labels is None:
            return np.arange(self.num_actions)
        return number_by_appearance(np.array(self.choice_labels))

    @property
    def next_state(self) -> NDArray[np.integer]:
        """The successors (S, A) of a deterministic MDP."""
        if not self.is_deterministic:
            s, a = self.first_stochastic_action()
            raise InputError(
                f"MDP: next_state needs a deterministic MDP and P[{s}, {a}] has several "
                "successors; use P."
            )
        return self.P.indices.reshape(self.R.shape)

    def first_stochastic_action(self) -> tuple[int, int]:
        """Return the first state and action with several successors; the MDP must be stochastic."""
        return divmod(int(np.argmax(np.diff(self.P.indptr) > 1)), self.num_actions)

    def state(self, state: int | np.integer | str) -> int:
        """Return the id of a state.

        Args:
            state: an id or a name.

        Returns:
            The id, from 0 to S - 1.

        Raises:
            InputError: there is no such state.
        """
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
        """Return the name of a state, or its id where states have no names.

        Args:
            state: an id.

        Returns:
            The name, or the id as text.
        """
        return self.names[state] if self.names is not None else str(state)

    def action_name(self, action: int) -> str:
        """Return the name of an action, or its id where actions have no names.

        Args:
            action: an id.

        Returns:
            The name, or the id as text.
        """
        return self.actions[action] if self.actions is not None else str(action)

    def replace(self, **changes: Any) -> MDP:
        """Return a validated copy with some fields changed.

        Args:
            changes: arguments of `MDP`, such as `discount` or `policy`.

        Returns:
            The new MDP.
        """
        return dataclasses.replace(self, **changes)

    def apply_policy(self, policy: ArrayLike) -> MDP:
        """Return the Markov chain that a policy induces, as an MDP with one action.

        R^pi(s) = sum_a pi(a|s) R(s, a) and P^pi(s) = sum_a pi(a|s) P(s, a), with pi(.|s) and
        P(s, a) divided by their sums. `induce_chain` also bounds the rounding.

        Args:
            policy: (S,) actions or (S, A) probabilities.

        Returns:
            The chain: P is (S, S), R is (S, 1).

        Raises:
            InputError: the policy has a wrong shape, is no distribution, or takes a missing action.

        >>> mdp = MDP.deterministic([[1, 0], [1, 0]], [[0, 2], [1, 3]], discount=0.5)
        >>> mdp.apply_policy([[0.5, 0.5], [1.0, 0.0]]).R.ravel()
        array([1., 1.])
        """
        return induce_chain(self, policy).mdp

    def __repr__(self) -> str:
        kind = "deterministic" if self.is_deterministic else f"{self.P.nnz} transitions"
        states = pluralise(self.num_states, "state")
        actions = pluralise(self.num_actions, "action")
        labels = "" if self.labels is None else f", {pluralise(len(self.labels), 'label')}"
        if self.ground_distance is not None:
            labels += f", {self.ground_distance.description} ground distance"
        return f"MDP({states}, {actions}, {kind}, discount {self.discount}{labels})"

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        mask = self.action_mask
        num_missing = int(mask.size - mask.sum())
        dynamics = "deterministic"
        if not self.is_deterministic:
            dynamics = f"stochastic, {pluralise(self.P.nnz, 'transition')}"
        rewards = self.R[mask] if num_missing else self.R
        rows = {
            "states": format_names(self.num_states, self.names),
            "actions": format_names(self.num_actions, self.actions),
            "dynamics": dynamics,
            "rewards": format_range(float(rewards.min()), float(rewards.max())),
            "discount": f"{self.discount:g}",
            "distances": f"at most {self.diameter_bound:.6g}, reward range / (1 - discount)",
        }
        if num_missing:
            rows["missing"] = f"{num_missing:,} of {mask.size:,} pairs of state and action"
        if self.labels is not None:
            rows["labels"] = format_names(len(self.labels), tuple(self.labels))
        if self.ground_distance is not None:
            rows["ground distance"] = self.ground_distance.description
        given = [
            name for name in ("positions", "features", "policy") if getattr(self, name) is not None
        ]
        if given:
            rows["also has"] = ", ".join(given)
        if self.is_empirical:
            rows["model"] = "empirical, estimated from recorded transitions"
        return render_html_table("MDP", rows)
