"""MDPs from plain matrices: the conventions of pymdptoolbox, and .npz files of either order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric.archives import check_csr
from bisimetric.errors import InputError
from bisimetric.files import UNREADABLE, archive, name_input_errors
from bisimetric.mdp import MDP
from bisimetric.worlds.notes import expected_rewards

DISCOUNT = 0.99
ORDERS = ("actions", "states")
ABOUT = ("names", "actions", "positions", "features", "policy", "available")
STACK = ("data", "indices", "indptr")


def from_matrices(P: Any, R: Any, *, discount: float, **about: Any) -> MDP:
    """The MDP of one transition matrix an action, as pymdptoolbox has them.

    P is (A, S, S), an array or a sequence of A matrices (S, S), dense or sparse: P[a][s, t] is
    the probability of t after action a in s. R is (S,), one reward a state; (S, A); or (A, S, S)
    in any form of P, one a transition, which becomes R(s, a) = sum_t P[a][s, t] R[a][s, t]: an
    `ExpectedReward` warning says so, once, where it depends on t. `about` are `names`,
    `actions`, `positions`, `features`, `policy` and `available`.

    Beware of the order: `MDP.from_matrices` takes P as (S, A, S), states first.

    >>> stay, go = np.eye(2), np.eye(2)[::-1]
    >>> from_matrices([stay, go], [0.0, 1.0], discount=0.9).next_state.tolist()
    [[0, 1], [1, 0]]
    """
    return _from_actions(_by_action("P", P), R, discount, "matrices", about)


def read_matrices(
    path: str | os.PathLike[str], *, discount: float | None = None, first: str | None = None
) -> MDP:
    """The MDP in a .npz file with the arrays `P` and `R`.

    P is (A, S, S) or (S, A, S); the sizes tell which, and `first`, "actions" or "states", has to
    where there are as many actions as states. R is (S,), (S, A), or in the order of P, one
    reward a transition. In place of P there may be `data`, `indices` and `indptr` of a sparse
    matrix (CSR) with S * A rows, row s * A + a for action a in state s; with `first="actions"`
    it is row a * S + s. The file may also hold `discount` (else 0.99), `names`, `actions`,
    `positions`, `features`, `policy` and `available`.
    """
    where = os.fspath(path)
    if first not in (None, *ORDERS):
        raise InputError(f"{where}: option first is {first!r} and must be actions or states.")
    with name_input_errors(where):
        return _from_file(where, _arrays(where), discount, first)


def _from_file(
    where: str, found: dict[str, NDArray[Any]], discount: float | None, first: str | None
) -> MDP:
    given = _discount(where, found.get("discount")) if discount is None else discount
    about = {name: found[name] for name in ABOUT if name in found}
    R = found["R"]
    if "P" in found:
        P = found["P"]
        if P.ndim != 3:
            raise InputError(
                f"{where}: P has shape {P.shape} and must be (actions, states, states) or "
                "(states, actions, states)."
            )
        order = _order(where, P.shape, first)
        if order == "states":
            P, R = P.swapaxes(0, 1), R.swapaxes(0, 1) if R.ndim == 3 else R
        return _from_actions(_by_action("P", P), R, given, where, about)
    actions = _stacked(where, found, first or "states")
    return _from_actions(actions, R, given, where, about)


def _discount(where: str, own: NDArray[Any] | None) -> float:
    """The discount in a file, or the usual one where it has none."""
    if own is None:
        return DISCOUNT
    if own.shape != () or own.dtype.kind not in "iuf":
        raise InputError(
            f"{where}: discount is {own.dtype} of shape {own.shape} and must be one number."
        )
    return float(own)


def _from_actions(
    P: list[sparse.csr_array], R: Any, discount: Any, where: str, about: dict[str, Any]
) -> MDP:
    states, actions = P[0].shape[0], len(P)
    for action, matrix in enumerate(P):
        if matrix.shape != (states, states):
            raise InputError(
                f"{where}: P[{action}] has shape {matrix.shape} and must be square and as large "
                f"as P[0], {P[0].shape}."
            )
    rewards = _rewards(where, R, P, states, actions)
    return MDP.from_matrices(P, rewards, discount=discount, **about)


def _by_action(what: str, given: Any) -> list[sparse.csr_array]:
    """A list of sparse matrices from an array (A, S, S) or a sequence of matrices."""
    if sparse.issparse(given) or not hasattr(given, "__len__") or getattr(given, "ndim", 1) == 0:
        raise InputError(
            f"matrices: {what} is one {type(given).__name__} and must hold a matrix an action."
        )
    if not len(given):
        raise InputError(f"matrices: {what} holds no matrix and must hold one an action.")
    matrices = []
    for action, each in enumerate(given):
        try:
            matrix = sparse.csr_array(each, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"matrices: {what}[{action}] is no matrix ({error}).") from None
        if matrix.ndim != 2:
            raise InputError(
                f"matrices: {what}[{action}] has shape {matrix.shape}; {what} must be (actions, "
                "states, states), or one matrix an action."
            )
        matrices.append(matrix)
    return matrices


def _rewards(
    where: str, R: Any, P: Sequence[sparse.csr_array], states: int, actions: int
) -> NDArray[np.float64]:
    """R as (S, A), from any of its forms."""
    given = R
    if sparse.issparse(R):
        whole: Any = R
        given = whole.toarray()
    by_transition = not isinstance(given, np.ndarray) and any(map(sparse.issparse, given))
    if not by_transition and getattr(given, "dtype", None) != np.dtype(object):
        array = _numbers(where, given)
        if array.shape == (states,):
            return np.repeat(array[:, None], actions, axis=1)
        if array.shape == (states, actions):
            return array
        if array.shape != (actions, states, states):
            raise InputError(
                f"{where}: R has shape {array.shape} and must be ({states},), ({states}, "
                f"{actions}) or ({actions}, {states}, {states}): states, actions, then successors."
            )
        given = array
    matrices = _by_action("R", given)
    shapes = [matrix.shape for matrix in matrices]
    if shapes != [(states, states)] * actions:
        raise InputError(
            f"{where}: R holds {len(matrices)} matrices of shape {shapes[0]} and must hold "
            f"{actions}, each ({states}, {states})."
        )
    row, probability, reward = [], [], []
    for action, (p, r) in enumerate(zip(P, matrices, strict=True)):
        entries = p.tocoo()
        s, successor = entries.coords
        row.append(s * actions + action)
        probability.append(entries.data)
        reward.append(np.asarray(r[s, successor]).ravel())
    mean = expected_rewards(
        where,
        np.concatenate(row),
        np.concatenate(probability),
        np.concatenate(reward),
        states * actions,
    )
    return mean.reshape(states, actions)


def _numbers(where: str, given: Any) -> NDArray[np.float64]:
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: R must be numbers ({error}).") from None


def _arrays(where: str) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz file, P and R or their like among them."""
    try:
        with archive(where) as opened:
            names = set(opened.files)
            if {"values", "met", "about"} <= names:
                raise InputError(
                    f"{where}: is a saved run, not an MDP; give its world or data, and this "
                    "with --resume."
                )
            if {"values", "about"} <= names:
                raise InputError(
                    f"{where}: is a table of distances, not an MDP; see it with "
                    f"`bisimetric show {where}`."
                )
            if "R" not in names or not ("P" in names or names.issuperset(STACK)):
                raise InputError(
                    f"{where}: holds {', '.join(sorted(names)) or 'nothing'} and must hold P "
                    "(or data, indices and indptr) and R."
                )
            wanted = names & {"P", "R", "discount", *STACK, *ABOUT}
            found = {name: opened[name] for name in sorted(wanted)}
            _check_kinds(where, found)
            return found
    except FileNotFoundError:
        raise InputError(f"{where}: there is no such file; check the path.") from None
    except InputError:
        raise
    except OSError as error:
        raise InputError(str(error)) from None
    except UNREADABLE as error:
        raise InputError(
            f"{where}: is cut short or no .npz file of plain arrays ({error}); save one with "
            "numpy.savez(path, P=..., R=...)."
        ) from None


def _check_kinds(where: str, found: dict[str, NDArray[Any]]) -> None:
    """Refuses arrays of other types than their use."""
    for name, array in found.items():
        if name in ("names", "actions"):
            fine, wanted = array.ndim == 1, "a list of names"
        elif name in ("indices", "indptr"):
            fine, wanted = array.ndim == 1 and array.dtype.kind in "iu", "whole numbers, (n,)"
        elif name == "data":
            fine, wanted = array.ndim == 1 and array.dtype.kind in "biuf", "numbers, (n,)"
        else:
            fine, wanted = name == "discount" or array.dtype.kind in "biuf", "numbers"
        if not fine:
            raise InputError(
                f"{where}: {name} is {array.dtype} of shape {array.shape} and must be {wanted}."
            )


def _order(where: str, shape: tuple[int, ...], first: str | None) -> str:
    """Whether the first axis of P counts actions or states."""
    fits = [
        order
        for order, states in (("actions", shape[1]), ("states", shape[0]))
        if shape[2] == states
    ]
    if not fits or first not in (None, *fits):
        raise InputError(
            f"{where}: P has shape {shape} and must be (actions, states, states) or (states, "
            f"actions, states){'' if first is None else f', with {first} first'}."
        )
    if first is None and len(fits) == 2:
        raise InputError(
            f"{where}: P has shape {shape}, which does not tell whether its first axis counts "
            "actions or states; say first=actions or first=states."
        )
    return first or fits[0]


def _stacked(where: str, found: dict[str, NDArray[Any]], first: str) -> list[sparse.csr_array]:
    """The matrices, one an action, of a sparse stack with S * A rows."""
    R = found["R"]
    states = R.shape[-1] if R.ndim == 3 else len(np.atleast_1d(R))
    rows = len(found["indptr"]) - 1
    if not (rows > 0 and states > 0 and R.ndim > 0):
        raise InputError(
            f"{where}: indptr has shape {found['indptr'].shape} and R {R.shape}; there must be at "
            "least one state and action."
        )
    try:
        check_csr(found["data"], found["indices"], found["indptr"], states)
        stack = sparse.csr_array(tuple(found[name] for name in STACK), shape=(rows, states))
        stack.check_format(full_check=True)
    except ValueError as error:
        raise InputError(
            f"{where}: data, indices and indptr are no CSR matrix ({error})."
        ) from None
    if rows == 0 or rows % states:
        raise InputError(
            f"{where}: the sparse matrix has {rows} rows and R has {states} states; it must have "
            "one row a state and action."
        )
    actions = rows // states
    if first == "actions":
        return [stack[action * states : (action + 1) * states] for action in range(actions)]
    return [stack[action::actions] for action in range(actions)]
