"""MDPs from plain matrices: the layouts of pymdptoolbox, and .npz files with either axis first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric._io import ARCHIVE_ERRORS, name_input_errors, open_archive, validate_csr
from bisimetric.errors import InputError
from bisimetric.mdp import DEFAULT_DISCOUNT, MDP
from bisimetric.worlds._warnings import compute_expected_rewards

AXIS_ORDERS = ("actions", "states")
OPTIONAL_ARRAYS = ("names", "actions", "positions", "features", "policy", "available")
CSR_ARRAYS = ("data", "indices", "indptr")


def from_matrices(P: Any, R: Any, *, discount: float, **attributes: Any) -> MDP:
    """Build the MDP of one transition matrix per action, in the layouts of pymdptoolbox.

    `MDP(P, R, discount)` takes P as (S, A, S), states first.

    Args:
        P: (A, S, S), an array or a sequence of A matrices (S, S), dense or sparse: `P[a][s, t]` is
            the probability of t after action a in s.
        R: (S,), one reward per state; (S, A); or (A, S, S) in any layout of P, one per transition,
            which becomes `R(s, a) = sum_t P[a][s, t] R[a][s, t]`; an `ExpectedRewardWarning` says,
            once, where it depends on t.
        discount: in [0, 1).
        **attributes: `names`, `actions`, `positions`, `features`, `policy`, `available` of `MDP`.

    Returns:
        The MDP.

    Raises:
        InputError: the shapes do not fit, or a row is no distribution.

    >>> stay, go = np.eye(2), np.eye(2)[::-1]
    >>> from_matrices([stay, go], [0.0, 1.0], discount=0.9).next_state.tolist()
    [[0, 1], [1, 0]]
    """
    return _build_mdp(_split_by_action("P", P), R, discount, "matrices", attributes)


def read_matrices(
    path: str | os.PathLike[str], *, discount: float | None = None, first_axis: str | None = None
) -> MDP:
    """Read the MDP in a .npz file with the arrays `P` and `R`.

    P is (A, S, S) or (S, A, S). R is (S,), (S, A), or in the order of P, one reward per transition.
    Instead of P there may be `data`, `indices` and `indptr` of a sparse matrix (CSR) with S * A
    rows, row s * A + a for action a in state s; with `first_axis="actions"` it is row a * S + s.
    The file may also hold `discount`, `names`, `actions`, `positions`, `features`, `policy` and
    `available`.

    Args:
        path: of the file.
        discount: None takes the file's, or 0.99.
        first_axis: "actions" or "states"; None infers it from the shape of P, which is ambiguous if
            there are as many actions as states.

    Returns:
        The MDP.

    Raises:
        InputError: the file cannot be read, lacks an array, or its arrays do not fit.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "model.npz")
    ...     np.savez(path, P=[[[0.0, 1.0], [1.0, 0.0]]], R=[0.0, 1.0])
    ...     read_matrices(path)
    MDP(2 states, 1 action, deterministic, discount 0.99)
    """
    caller = os.fspath(path)
    if first_axis not in (None, *AXIS_ORDERS):
        raise InputError(f"{caller}: first_axis is {first_axis!r} and must be actions or states.")
    with name_input_errors(caller):
        return _build_from_arrays(caller, _load_arrays(caller), discount, first_axis)


def _build_from_arrays(
    caller: str, arrays: dict[str, NDArray[Any]], discount: float | None, first_axis: str | None
) -> MDP:
    """Build the MDP of the arrays in a file."""
    used_discount = _read_discount(caller, arrays.get("discount")) if discount is None else discount
    attributes = {name: arrays[name] for name in OPTIONAL_ARRAYS if name in arrays}
    R = arrays["R"]
    if "P" in arrays:
        P = arrays["P"]
        if P.ndim != 3:
            raise InputError(
                f"{caller}: P has shape {P.shape} and must be (actions, states, states) or "
                "(states, actions, states)."
            )
        order = _infer_axis_order(caller, P.shape, first_axis)
        if order == "states":
            P, R = P.swapaxes(0, 1), R.swapaxes(0, 1) if R.ndim == 3 else R
        return _build_mdp(_split_by_action("P", P), R, used_discount, caller, attributes)
    actions = _split_csr(caller, arrays, first_axis or "states")
    return _build_mdp(actions, R, used_discount, caller, attributes)


def _read_discount(caller: str, stored: NDArray[Any] | None) -> float:
    """Return the discount in a file, or the default one."""
    if stored is None:
        return DEFAULT_DISCOUNT
    if stored.shape != () or stored.dtype.kind not in "iuf":
        raise InputError(
            f"{caller}: discount is {stored.dtype} of shape {stored.shape} and must be one number."
        )
    return float(stored)


def _build_mdp(
    P: list[sparse.csr_array], R: Any, discount: Any, caller: str, attributes: dict[str, Any]
) -> MDP:
    states, actions = P[0].shape[0], len(P)
    for action, matrix in enumerate(P):
        if matrix.shape != (states, states):
            raise InputError(
                f"{caller}: P[{action}] has shape {matrix.shape} and must be square and as large "
                f"as P[0], {P[0].shape}."
            )
    rewards = _convert_rewards(caller, R, P, states, actions)
    return MDP(P, rewards, discount=discount, **attributes)


def _split_by_action(name: str, matrices_or_array: Any) -> list[sparse.csr_array]:
    """Return a list of sparse matrices from an array (A, S, S) or a sequence of matrices."""
    if (
        sparse.issparse(matrices_or_array)
        or not hasattr(matrices_or_array, "__len__")
        or getattr(matrices_or_array, "ndim", 1) == 0
    ):
        raise InputError(
            f"matrices: {name} is one {type(matrices_or_array).__name__} and must hold a matrix "
            "per action."
        )
    if not len(matrices_or_array):
        raise InputError(f"matrices: {name} holds no matrix and must hold one per action.")
    matrices = []
    for action, each in enumerate(matrices_or_array):
        try:
            matrix = sparse.csr_array(each, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"matrices: {name}[{action}] is no matrix ({error}).") from None
        if matrix.ndim != 2:
            raise InputError(
                f"matrices: {name}[{action}] has shape {matrix.shape}; {name} must be (actions, "
                "states, states), or one matrix per action."
            )
        matrices.append(matrix)
    return matrices


def _convert_rewards(
    caller: str, R: Any, P: Sequence[sparse.csr_array], states: int, actions: int
) -> NDArray[np.float64]:
    """Return R as (S, A), from any of its layouts."""
    given = R
    if sparse.issparse(R):
        whole: Any = R
        given = whole.toarray()
    by_transition = not isinstance(given, np.ndarray) and any(map(sparse.issparse, given))
    if not by_transition and getattr(given, "dtype", None) != np.dtype(object):
        array = _to_floats(caller, given)
        if array.shape == (states,):
            return np.repeat(array[:, None], actions, axis=1)
        if array.shape == (states, actions):
            return array
        if array.shape != (actions, states, states):
            raise InputError(
                f"{caller}: R has shape {array.shape} and must be ({states},), ({states}, "
                f"{actions}) or ({actions}, {states}, {states}): states, actions, then successors."
            )
        given = array
    matrices = _split_by_action("R", given)
    shapes = [matrix.shape for matrix in matrices]
    if shapes != [(states, states)] * actions:
        raise InputError(
            f"{caller}: R holds {len(matrices)} matrices of shape {shapes[0]} and must hold "
            f"{actions}, each ({states}, {states})."
        )
    row, probability, reward = [], [], []
    for action, (p, r) in enumerate(zip(P, matrices, strict=True)):
        entries = p.tocoo()
        s, successor = entries.coords
        row.append(s * actions + action)
        probability.append(entries.data)
        reward.append(np.asarray(r[s, successor]).ravel())
    mean = compute_expected_rewards(
        caller,
        np.concatenate(row),
        np.concatenate(probability),
        np.concatenate(reward),
        states * actions,
    )
    return mean.reshape(states, actions)


def _to_floats(caller: str, values: Any) -> NDArray[np.float64]:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{caller}: R must be numbers ({error}).") from None


def _load_arrays(path: str) -> dict[str, NDArray[Any]]:
    """Load the arrays of a .npz file that holds P and R, or a sparse P."""
    try:
        with open_archive(path) as archive:
            names = set(archive.files)
            if {"values", "paired", "about"} <= names:
                raise InputError(
                    f"{path}: is a saved run, not an MDP; give its MDP or data, and this "
                    "with --resume."
                )
            if {"values", "about"} <= names:
                raise InputError(
                    f"{path}: is a distance matrix, not an MDP; show it with "
                    f"`bisimetric show {path}`."
                )
            if "R" not in names or not ("P" in names or names.issuperset(CSR_ARRAYS)):
                raise InputError(
                    f"{path}: holds {', '.join(sorted(names)) or 'nothing'} and must hold P "
                    "(or data, indices and indptr) and R."
                )
            selected = names & {"P", "R", "discount", *CSR_ARRAYS, *OPTIONAL_ARRAYS}
            arrays = {name: archive[name] for name in sorted(selected)}
            _validate_dtypes(path, arrays)
            return arrays
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; check the path.") from None
    except InputError:
        raise
    except OSError as error:
        raise InputError(str(error)) from None
    except ARCHIVE_ERRORS as error:
        raise InputError(
            f"{path}: is cut short or no .npz file of plain arrays ({error}); save one with "
            "numpy.savez(path, P=..., R=...)."
        ) from None


def _validate_dtypes(caller: str, arrays: dict[str, NDArray[Any]]) -> None:
    """Raise for arrays of the wrong type."""
    for name, array in arrays.items():
        if name in ("names", "actions"):
            valid, expected = array.ndim == 1, "a list of names"
        elif name in ("indices", "indptr"):
            valid, expected = array.ndim == 1 and array.dtype.kind in "iu", "whole numbers, (n,)"
        elif name == "data":
            valid, expected = array.ndim == 1 and array.dtype.kind in "biuf", "numbers, (n,)"
        else:
            valid, expected = name == "discount" or array.dtype.kind in "biuf", "numbers"
        if not valid:
            raise InputError(
                f"{caller}: {name} is {array.dtype} of shape {array.shape} and must be {expected}."
            )


def _infer_axis_order(caller: str, shape: tuple[int, ...], first_axis: str | None) -> str:
    """Return whether the first axis of P is that of actions or of states."""
    fits = [
        order
        for order, states in (("actions", shape[1]), ("states", shape[0]))
        if shape[2] == states
    ]
    if not fits or first_axis not in (None, *fits):
        raise InputError(
            f"{caller}: P has shape {shape} and must be (actions, states, states) or (states, "
            f"actions, states){'' if first_axis is None else f', with {first_axis} first'}."
        )
    if first_axis is None and len(fits) == 2:
        raise InputError(
            f"{caller}: P has shape {shape}, so that its first axis may be "
            "actions or states; say first_axis=actions or first_axis=states."
        )
    return first_axis or fits[0]


def _split_csr(
    caller: str, arrays: dict[str, NDArray[Any]], first_axis: str
) -> list[sparse.csr_array]:
    """Return one matrix per action from a sparse matrix with S * A rows."""
    R = arrays["R"]
    states = R.shape[-1] if R.ndim == 3 else len(np.atleast_1d(R))
    rows = len(arrays["indptr"]) - 1
    if not (rows > 0 and states > 0 and R.ndim > 0):
        raise InputError(
            f"{caller}: indptr has shape {arrays['indptr'].shape} and R {R.shape}; there must "
            "be at least one state and action."
        )
    try:
        validate_csr(arrays["data"], arrays["indices"], arrays["indptr"], states)
        stack = sparse.csr_array(tuple(arrays[name] for name in CSR_ARRAYS), shape=(rows, states))
        stack.check_format(full_check=True)
    except ValueError as error:
        raise InputError(
            f"{caller}: data, indices and indptr are no CSR matrix ({error})."
        ) from None
    if rows == 0 or rows % states:
        raise InputError(
            f"{caller}: the sparse matrix has {rows} rows and R has {states} states; it must have "
            "one row per state and action."
        )
    actions = rows // states
    if first_axis == "actions":
        return [stack[action * states : (action + 1) * states] for action in range(actions)]
    return [stack[action::actions] for action in range(actions)]
