"""Validate the arrays of an MDP and its policies; every error says what was found and wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.mdp import MDP

PROBABILITY_TOL = 1e-8
"""Largest deviation from 1 of the sum of the probabilities of a state and action."""


def validate_discount(discount: float) -> float:
    """Return the discount as a float.

    Args:
        discount: in [0, 1).

    Raises:
        InputError: it is no number, or outside of [0, 1).
    """
    try:
        value = float(discount)
    except (TypeError, ValueError):
        value = np.nan
    if not 0 <= value < 1:
        raise InputError(
            f"is {discount!r} and must be at least 0 and below 1", caller="MDP", argument="discount"
        )
    return value


def validate_policy(mdp: MDP, policy: ArrayLike) -> NDArray[Any]:
    """Return a policy as (S,) actions or (S, A) probabilities.

    Args:
        mdp: the MDP that the policy acts in.
        policy: (S,) actions or (S, A) probabilities.

    Raises:
        InputError: the policy has a wrong shape, is no distribution, or takes a missing action.
    """
    states, actions = mdp.R.shape
    try:
        array = np.asarray(policy)
    except (TypeError, ValueError):  # rows of different lengths
        raise InputError(
            f"policy is no array of numbers and must be ({states},) actions or ({states}, "
            f"{actions}) probabilities, all rows of one length."
        ) from None
    if array.dtype.kind not in "biufO":
        raise InputError(f"policy is {array.dtype} and must be numbers.")
    if array.shape == (states,):
        chosen = as_integer_array("policy", array)
        outside = np.flatnonzero((chosen < 0) | (chosen >= actions))
        if len(outside):
            s = outside[0]
            raise InputError(
                f"policy[{s}] is {chosen[s]} and must be an action from 0 to {actions - 1}."
            )
        _reject_unavailable_actions(mdp, np.eye(actions, dtype=np.bool_)[chosen])
        return chosen
    if array.shape == (states, actions):
        probabilities = as_float_array("policy", array)
        require_finite("policy", probabilities, caller=None)
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
        _reject_unavailable_actions(mdp, probabilities > 0)
        return probabilities
    raise InputError(
        f"policy has shape {array.shape} and must be ({states},) actions or "
        f"({states}, {actions}) probabilities."
    )


def _reject_unavailable_actions(mdp: MDP, taken: NDArray[np.bool_]) -> None:
    """Raise InputError if a policy takes a missing action; `taken` is (S, A)."""
    if mdp.available is None:
        return
    wrong = np.argwhere(taken & ~mdp.available)
    if len(wrong):
        s, a = map(int, wrong[0])
        raise InputError(
            f"policy[{s}] takes action {mdp.action_name(a)}, which state {mdp.state_name(s)} "
            "lacks; take an available one."
        )


def validate_available(
    available: ArrayLike | None, num_states: int, num_actions: int
) -> NDArray[np.bool_] | None:
    """Return the action mask, or None where every state has every action."""
    if available is None:
        return None
    mask = np.array(available)
    if mask.dtype != np.bool_ or mask.shape != (num_states, num_actions):
        raise InputError(
            f"MDP: available is {mask.dtype} of shape {mask.shape} and must be bool of shape "
            f"({num_states}, {num_actions})."
        )
    without = np.flatnonzero(~mask.any(axis=1))
    if len(without):
        raise InputError(f"MDP: state {without[0]} has no available action and must have one.")
    return None if mask.all() else freeze(mask)


def add_self_loops(P: sparse.csr_array, available: NDArray[np.bool_]) -> sparse.csr_array:
    """Replace the rows of missing actions by self-loops."""
    has, counts = available.ravel(), np.diff(P.indptr)
    if (counts < 0).any() or not len(P.data) == len(P.indices) == P.indptr[-1]:
        return P  # malformed, which is reported when it is validated
    kept = np.repeat(has, counts)
    sizes = np.where(has, counts, 1)
    is_loop = np.repeat(~has, sizes)
    data, indices = np.ones(len(is_loop)), np.empty(len(is_loop), P.indices.dtype)
    data[~is_loop], indices[~is_loop] = P.data[kept], P.indices[kept]
    indices[is_loop] = np.nonzero(~available)[0]
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    return sparse.csr_array((data, indices, indptr), P.shape)


def stack_transition_matrices(P: Any, num_states: int, num_actions: int) -> sparse.csr_array:
    """Return any accepted form of P as one sparse (S * A, S) matrix."""
    shape = (num_states, num_actions, num_states)
    if isinstance(P, list | tuple) and any(sparse.issparse(matrix) for matrix in P):
        shapes = {np.shape(matrix) for matrix in P}
        if len(P) != num_actions or shapes != {(num_states, num_states)}:
            raise InputError(
                f"MDP: P holds {len(P)} matrices of shapes {sorted(shapes)} and must hold "
                f"{num_actions}, one per action, each ({num_states}, {num_states})."
            )
        by_action = sparse.vstack([sparse.csr_array(matrix) for matrix in P], format="csr")
        order = np.arange(num_states * num_actions).reshape(num_actions, num_states).T.ravel()
        return sparse.csr_array(by_action[order])
    if sparse.issparse(P):
        given: Any = P
        if given.shape == shape:
            cube = given.tocoo()
            s, a, successor = cube.coords
            flat = (s * num_actions + a, successor)
            given = sparse.coo_array((cube.data, flat), (num_states * num_actions, num_states))
        if given.shape == (num_states * num_actions, num_states):
            return sparse.csr_array(given)
        found = given.shape
    else:
        dense = as_float_array("P", P)
        if dense.shape in (shape, (num_states * num_actions, num_states)):
            return sparse.csr_array(dense.reshape(num_states * num_actions, num_states))
        found = dense.shape
    raise InputError(
        f"MDP: P has shape {tuple(found)} and R {(num_states, num_actions)}; P must have shape "
        f"{shape}"
        + ("; worlds.from_matrices reads (actions, states, states)." if len(found) == 3 else ".")
    )


def validate_transition_matrix(P: Any, num_states: int, num_actions: int) -> sparse.csr_array:
    """Return P in canonical form (sorted, no duplicates or zeros); every row is a distribution."""
    matrix = sparse.csr_array(P, dtype=np.float64, copy=True)
    if matrix.shape != (num_states * num_actions, num_states):
        raise InputError(
            f"MDP: P has shape {matrix.shape} and must be {(num_states * num_actions, num_states)}."
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
        s, a = divmod(row, num_actions)
        raise InputError(
            f"MDP: P[{s}, {a}, {matrix.indices[wrong[0]]}] is {matrix.data[wrong[0]]} and must "
            "be a probability."
        )
    sums = matrix.sum(axis=1)
    wrong = np.flatnonzero(np.abs(sums - 1) > PROBABILITY_TOL)
    if len(wrong):
        s, a = divmod(int(wrong[0]), num_actions)
        raise InputError(f"MDP: P[{s}, {a}] sums to {sums[wrong[0]]:.12g} and must sum to 1.")
    single = np.diff(matrix.indptr) == 1
    matrix.data[matrix.indptr[:-1][single]] = 1.0
    for array in (matrix.data, matrix.indices, matrix.indptr):
        array.flags.writeable = False
    return matrix


def validate_names(
    kind: str, names: Sequence[str] | None, num_names: int
) -> tuple[str, ...] | None:
    """Return one distinct name per state or action."""
    if names is None:
        return None
    texts = tuple(str(name) for name in names)
    if len(texts) != num_names:
        raise InputError(f"MDP: there are {len(texts)} {kind} names and must be {num_names}.")
    if len(set(texts)) != num_names:
        twice = next(name for i, name in enumerate(texts) if name in texts[:i])
        raise InputError(f"MDP: the {kind} name {twice!r} occurs twice; names must differ.")
    return texts


def validate_state_array(
    name: str, values: ArrayLike | None, num_states: int, width: int | None = None
) -> NDArray[np.float64] | None:
    """Return an array with one row per state and `width` columns, or any number."""
    if values is None:
        return None
    array = np.array(as_float_array(name, values))
    if array.ndim != 2 or len(array) != num_states or width not in (None, array.shape[1]):
        raise InputError(
            f"MDP: {name} have shape {array.shape} and must be ({num_states}, {width or 'k'})."
        )
    require_finite(name, array)
    return freeze(array)


def as_float_array(name: str, array: ArrayLike) -> NDArray[np.float64]:
    """Return an array of float64."""
    try:
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"MDP: {name} must be an array of numbers ({error}).") from None


def as_integer_array(name: str, array: ArrayLike) -> NDArray[np.int64]:
    """Return an array of int64; every number must be whole."""
    numbers = as_float_array(name, array)
    if not np.isfinite(numbers).all() or (numbers != np.floor(numbers)).any():
        raise InputError(f"MDP: {name} must be an array of whole numbers.")
    return numbers.astype(np.int64)


def require_finite(name: str, array: NDArray[np.float64], caller: str | None = "MDP") -> None:
    """Raise InputError with the first entry that is infinite or not a number."""
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        index = ", ".join(map(str, wrong[0]))
        raise InputError(
            f"{f'{caller}: ' if caller else ''}{name}[{index}] is {array[tuple(wrong[0])]} and "
            "must be finite."
        )


def freeze(array: NDArray[Any]) -> NDArray[Any]:
    """Make an array read-only and return it."""
    array.flags.writeable = False
    return array


def resolve_policy(
    kind: str, mdp: MDP, policy: ArrayLike | None, *, caller: str = "exact"
) -> NDArray[Any]:
    """Validate a policy; without one, take the MDP's own, or the only one of a single action."""
    if policy is None:
        policy = mdp.policy if mdp.num_actions > 1 else [0] * mdp.num_states
    if policy is None:
        raise InputError(
            f"{caller}.{kind}: this MDP comes with no policy; pass one, such as "
            "planning.greedy_policy(mdp)."
        )
    return validate_policy(mdp, policy)


def require_mdp(caller: str, value: object) -> None:
    """Raise InputError for anything but an MDP, with the call that makes one of it.

    >>> require_mdp("exact.lax", "pessimism")
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: exact.lax: mdp is 'pessimism' and must be an MDP; pass
    worlds.load('pessimism').
    """
    from bisimetric.mdp import MDP

    if isinstance(value, MDP):
        return
    found = f"of type {type(value).__name__}"
    remedy = "make one, such as worlds.load('mirrored-rooms')"
    if isinstance(value, str):
        found, remedy = repr(value), f"pass worlds.load({value!r})"
    elif hasattr(value, "to_mdp"):
        remedy = "pass its .to_mdp(discount=...)"
    elif hasattr(value, "exact_outcome"):
        remedy = "use exact.query(mdp, pairs), which explores an implicit MDP from some pairs"
    elif hasattr(value, "step") and hasattr(value, "reset"):
        remedy = "pass worlds.from_gymnasium(env, discount=...)"
    elif isinstance(value, np.ndarray | list | tuple) or sparse.issparse(value):
        remedy = "pass MDP(P, R, discount=...)"
    raise InputError(f"is {found} and must be an MDP", caller=caller, argument="mdp", remedy=remedy)
