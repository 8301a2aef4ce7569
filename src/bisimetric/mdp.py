"""The MDP: finite, checked once when it is made, frozen afterwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bisimetric.errors import InputError, near_names

PROBABILITY_TOL = 1e-8
"""How far the probabilities of one state and action may sum from 1."""


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

    def __post_init__(self) -> None:
        rewards = np.array(self.R, dtype=np.float64)
        if rewards.ndim != 2 or 0 in rewards.shape:
            raise InputError(
                f"MDP: rewards have shape {rewards.shape} and must be (states, actions), "
                "with at least one of each."
            )
        states, actions = rewards.shape
        available, P = _checked_available(self.available, states, actions), self.P
        if available is not None:
            rewards[~available] = 0.0
            P = _with_steps_on_the_spot(P, available)
        _refuse_non_finite("rewards", rewards)
        discount = checked_discount(self.discount)
        put = object.__setattr__
        put(self, "available", available)
        put(self, "P", _checked_transitions(P, states, actions))
        put(self, "R", _frozen(rewards))
        put(self, "discount", discount)
        put(self, "names", _checked_names("state", self.names, states))
        put(self, "actions", _checked_names("action", self.actions, actions))
        put(self, "positions", _checked_rows("positions", self.positions, states, width=2))
        put(self, "features", _checked_rows("features", self.features, states))
        if self.policy is not None:
            put(self, "policy", _frozen(checked_policy(self, self.policy)))

    @classmethod
    def deterministic(
        cls, next_state: ArrayLike, rewards: ArrayLike, *, discount: float, **about: Any
    ) -> MDP:
        """An MDP in which action a leads from state s to `next_state[s, a]` for certain.

        `next_state` and `rewards` are (S, A); `about` are `names`, `actions`, `positions`,
        `features`, `policy` and `available`.

        >>> MDP.deterministic([[0], [7]], [[0], [0]], discount=0.9)
        Traceback (most recent call last):
        ...
        bisimetric.errors.InputError: MDP: next_state[1, 0] is 7 and must be a state from 0 to 1.
        """
        successors = _integers("next_state", next_state)
        rewards = _floats("rewards", rewards)
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
        return cls(P, rewards, discount, **about)

    @classmethod
    def from_matrices(cls, P: Any, R: ArrayLike, *, discount: float, **about: Any) -> MDP:
        """An MDP from transition probabilities P (S, A, S) and rewards R (S, A).

        P is a dense array, a SciPy sparse array of that shape, a sparse (S * A, S) matrix whose
        row `s * A + a` is P(s, a), or a sequence of A matrices (S, S), one an action. It is
        stored sparse; where every row has one successor the MDP is deterministic.

        >>> MDP.from_matrices([[[0.5, 0.4]], [[0.0, 1.0]]], [[0.0], [1.0]], discount=0.9)
        Traceback (most recent call last):
        ...
        bisimetric.errors.InputError: MDP: P[0, 0] sums to 0.9 and must sum to 1.
        """
        rewards = _floats("rewards", R)
        if rewards.ndim != 2 or rewards.size == 0:
            raise InputError(
                f"MDP: R has shape {rewards.shape} and must be (states, actions), "
                "with at least one of each."
            )
        return cls(_stacked(P, *rewards.shape), rewards, discount, **about)

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
    def next_state(self) -> NDArray[np.integer]:
        """The successors (S, A) of a deterministic MDP."""
        if not self.is_deterministic:
            s, a = self.first_branch()
            raise InputError(
                f"MDP: next_state needs a deterministic MDP, and P[{s}, {a}] has several "
                "successors; use P."
            )
        return self.P.indices.reshape(self.R.shape)

    def first_branch(self) -> tuple[int, int]:
        """The first state and action with several successors, in an MDP that has them."""
        return divmod(int(np.argmax(np.diff(self.P.indptr) > 1)), self.num_actions)

    def state(self, which: int | np.integer | str) -> int:
        """The id of a state given by id or by name."""
        if isinstance(which, str) and self.names is not None and which in self.names:
            return self.names.index(which)
        try:
            index = int(which)
            if index == which or isinstance(which, str):
                if 0 <= index < self.num_states:
                    return index
                raise InputError(
                    f"MDP: there is no state {index}; ids go from 0 to {self.num_states - 1}."
                )
        except (TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
        hint = near_names(str(which), self.names or ())
        raise InputError(
            f"MDP: there is no state {which!r}"
            + (hint or f"; use an id from 0 to {self.num_states - 1}.")
        )

    def name(self, state: int) -> str:
        """The name of a state: its own, or its id."""
        return self.names[state] if self.names is not None else str(state)

    def action_name(self, action: int) -> str:
        """The name of an action: its own, or its id."""
        return self.actions[action] if self.actions is not None else str(action)

    def replace(self, **changes: Any) -> MDP:
        """A checked copy with some fields changed, such as `discount` or `policy`."""
        return dataclasses.replace(self, **changes)

    def under(self, policy: ArrayLike) -> MDP:
        """The Markov chain that a policy makes of this MDP, as an MDP with one action.

        R^pi(s) = sum_a pi(a|s) R(s, a) and P^pi(s) = sum_a pi(a|s) P(s, a).

        >>> mdp = MDP.deterministic([[1, 0], [1, 0]], [[0, 2], [1, 3]], discount=0.5)
        >>> mdp.under([[0.5, 0.5], [1.0, 0.0]]).R.ravel()
        array([1., 1.])
        """
        checked = checked_policy(self, policy)
        states, actions = self.R.shape
        everyone = np.arange(states)
        if checked.ndim == 1:
            P, R = self.P[everyone * actions + checked], self.R[everyone, checked]
        else:
            s, a = np.nonzero(checked)
            shape = (states, states * actions)
            weights = sparse.csr_array((checked[s, a], (s, s * actions + a)), shape)
            P, R = weights @ self.P, (checked * self.R).sum(axis=1)
        return dataclasses.replace(
            self, P=sparse.csr_array(P), R=R[:, None], actions=None, policy=None, available=None
        )

    def __repr__(self) -> str:
        kind = "deterministic" if self.is_deterministic else f"{self.P.nnz} transitions"
        plural = "" if self.num_actions == 1 else "s"
        states = "1 state" if self.num_states == 1 else f"{self.num_states} states"
        return f"MDP({states}, {self.num_actions} action{plural}, {kind}, discount {self.discount})"


def checked_discount(discount: float) -> float:
    """The discount as a float, if it lies in [0, 1)."""
    try:
        value = float(discount)
    except (TypeError, ValueError):
        value = np.nan
    if not 0 <= value < 1:
        raise InputError(f"MDP: discount is {discount!r} and must be at least 0 and below 1.")
    return value


def checked_policy(mdp: MDP, policy: ArrayLike) -> NDArray[Any]:
    """A policy of `mdp` as (S,) actions or (S, A) probabilities, or a clear error."""
    states, actions = mdp.R.shape
    given = np.asarray(policy)
    if given.shape == (states,):
        chosen = _integers("policy", given)
        outside = np.flatnonzero((chosen < 0) | (chosen >= actions))
        if len(outside):
            s = outside[0]
            raise InputError(
                f"policy[{s}] is {chosen[s]} and must be an action from 0 to {actions - 1}."
            )
        _refuse_lacking(mdp, np.eye(actions, dtype=np.bool_)[chosen])
        return chosen
    if given.shape == (states, actions):
        probabilities = _floats("policy", given)
        _refuse_non_finite("policy", probabilities, where="policy")
        wrong = np.flatnonzero(
            (probabilities < 0).any(axis=1)
            | (np.abs(probabilities.sum(axis=1) - 1) > PROBABILITY_TOL)
        )
        if len(wrong):
            s = wrong[0]
            raise InputError(
                f"policy[{s}] is {np.array2string(probabilities[s], threshold=8)} and must be "
                "probabilities that sum to 1."
            )
        _refuse_lacking(mdp, probabilities > 0)
        return probabilities
    raise InputError(
        f"policy has shape {given.shape} and must be ({states},) actions or "
        f"({states}, {actions}) probabilities."
    )


def _refuse_lacking(mdp: MDP, taken: NDArray[np.bool_]) -> None:
    """Refuses a policy that takes, somewhere, an action that the state lacks."""
    if mdp.available is None:
        return
    wrong = np.argwhere(taken & ~mdp.available)
    if len(wrong):
        s, a = map(int, wrong[0])
        raise InputError(
            f"policy[{s}] takes action {mdp.action_name(a)}, which state {mdp.name(s)} lacks; "
            "take one that is available."
        )


def _checked_available(
    available: ArrayLike | None, states: int, actions: int
) -> NDArray[np.bool_] | None:
    if available is None:
        return None
    mask = np.array(available)
    if mask.dtype != np.bool_ or mask.shape != (states, actions):
        raise InputError(
            f"MDP: available is {mask.dtype} of shape {mask.shape} and must be bool of shape "
            f"({states}, {actions})."
        )
    without = np.flatnonzero(~mask.any(axis=1))
    if len(without):
        raise InputError(f"MDP: state {without[0]} has no available action and must have one.")
    return None if mask.all() else _frozen(mask)


def _with_steps_on_the_spot(P: Any, available: NDArray[np.bool_]) -> sparse.csr_array:
    """P with a step on the spot in place of each action that a state lacks."""
    states = len(available)
    if np.shape(P) != (available.size, states):
        return sparse.csr_array(P)  # for the check of P to refuse
    row, there = np.flatnonzero(~available), np.nonzero(~available)[0]
    spots = sparse.csr_array((np.ones(len(row)), (row, there)), (available.size, states))
    return sparse.csr_array(
        sparse.diags_array(available.ravel() * 1.0) @ sparse.csr_array(P) + spots
    )


def _stacked(P: Any, states: int, actions: int) -> sparse.csr_array:
    """Any accepted form of P as one sparse (S * A, S) matrix."""
    wanted = (states, actions, states)
    if isinstance(P, list | tuple) and any(sparse.issparse(matrix) for matrix in P):
        shapes = {np.shape(matrix) for matrix in P}
        if len(P) != actions or shapes != {(states, states)}:
            raise InputError(
                f"MDP: P holds {len(P)} matrices of shapes {sorted(shapes)} and must hold "
                f"{actions}, one an action, each ({states}, {states})."
            )
        by_action = sparse.vstack([sparse.csr_array(matrix) for matrix in P], format="csr")
        order = np.arange(states * actions).reshape(actions, states).T.ravel()
        return sparse.csr_array(by_action[order])
    if sparse.issparse(P):
        given: Any = P
        if given.shape == wanted:
            cube = given.tocoo()
            s, a, successor = cube.coords
            flat = (s * actions + a, successor)
            given = sparse.coo_array((cube.data, flat), (states * actions, states))
        if given.shape == (states * actions, states):
            return sparse.csr_array(given)
        shape = given.shape
    else:
        dense = _floats("P", P)
        if dense.shape == wanted:
            return sparse.csr_array(dense.reshape(states * actions, states))
        shape = dense.shape
    raise InputError(
        f"MDP: P has shape {tuple(shape)} and R has {(states, actions)}; P must be {wanted}."
    )


def _checked_transitions(P: Any, states: int, actions: int) -> sparse.csr_array:
    """P in canonical form: sorted, no duplicates, no zeros; every row a distribution."""
    matrix = sparse.csr_array(P, dtype=np.float64, copy=True)
    if matrix.shape != (states * actions, states):
        raise InputError(
            f"MDP: P has shape {matrix.shape} and must be {(states * actions, states)}."
        )
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise InputError(f"MDP: P is no valid sparse matrix ({error}).") from None
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    wrong = np.flatnonzero(~np.isfinite(matrix.data) | (matrix.data < 0))
    if len(wrong):
        row = int(np.searchsorted(matrix.indptr, wrong[0], side="right")) - 1
        s, a = divmod(row, actions)
        raise InputError(
            f"MDP: P[{s}, {a}, {matrix.indices[wrong[0]]}] is {matrix.data[wrong[0]]} and must "
            "be a probability."
        )
    sums = matrix.sum(axis=1)
    wrong = np.flatnonzero(np.abs(sums - 1) > PROBABILITY_TOL)
    if len(wrong):
        s, a = divmod(int(wrong[0]), actions)
        raise InputError(f"MDP: P[{s}, {a}] sums to {sums[wrong[0]]:.12g} and must sum to 1.")
    single = np.diff(matrix.indptr) == 1
    matrix.data[matrix.indptr[:-1][single]] = 1.0
    for array in (matrix.data, matrix.indices, matrix.indptr):
        array.flags.writeable = False
    return matrix


def _checked_names(what: str, names: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    texts = tuple(str(name) for name in names)
    if len(texts) != count:
        raise InputError(f"MDP: there are {len(texts)} {what} names and must be {count}.")
    if len(set(texts)) != count:
        twice = next(name for i, name in enumerate(texts) if name in texts[:i])
        raise InputError(f"MDP: the {what} name {twice!r} occurs twice; names must differ.")
    return texts


def _checked_rows(
    what: str, rows: ArrayLike | None, count: int, width: int | None = None
) -> NDArray[np.float64] | None:
    if rows is None:
        return None
    array = np.array(_floats(what, rows))
    if array.ndim != 2 or len(array) != count or width not in (None, array.shape[1]):
        raise InputError(
            f"MDP: {what} have shape {array.shape} and must be ({count}, {width or 'k'})."
        )
    _refuse_non_finite(what, array)
    return _frozen(array)


def _floats(what: str, array: ArrayLike) -> NDArray[np.float64]:
    try:
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"MDP: {what} must be an array of numbers ({error}).") from None


def _integers(what: str, array: ArrayLike) -> NDArray[np.int64]:
    floats = _floats(what, array)
    if not np.isfinite(floats).all() or (floats != np.floor(floats)).any():
        raise InputError(f"MDP: {what} must be an array of whole numbers.")
    return floats.astype(np.int64)


def _refuse_non_finite(what: str, array: NDArray[np.float64], where: str | None = None) -> None:
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        index = ", ".join(map(str, wrong[0]))
        raise InputError(
            f"{where or 'MDP: ' + what}[{index}] is {array[tuple(wrong[0])]} and must be finite."
        )


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
