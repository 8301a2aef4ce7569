"""Reduced MICo: MICo less the mean of its self-distances (Castro et al. 2023)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from bisimetric._rounding import TINY, UNIT
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.exact._mico import solve_mico
from bisimetric.exact._request import build_request
from bisimetric.mdp import MDP
from bisimetric.mdp._validation import require_mdp, resolve_policy

NEGATIVE_TYPE = ("l1", "l2", "discrete")
"""Ground distances of negative type, as |r - r'| is: the energy distance is nonnegative."""
ROW_BLOCK = 256
"""Rows that are reduced at once, in double precision."""


def reduced_mico(
    mdp: MDP,
    policy: ArrayLike | None = None,
    *,
    tol: float | None = None,
    normalised_tol: float | None = None,
    dtype: DTypeLike = "float64",
) -> Distance:
    """Compute the reduced MICo of a policy in any MDP, every entry proven to `tol`.

        d(s, t) = U(s, t) - (U(s, s) + U(t, t)) / 2,

    with U the MICo distance. It is a squared distance in a reproducing kernel Hilbert space: with
    F_k(s) the distribution function of the expected reward R^pi after k steps from s,

        d(s, t) = sum_k discount^k * integral (F_k(s)(x) - F_k(t)(x))^2 dx,

    since E|X - Y| - (E|X - X'| + E|Y - Y'|) / 2 is that integral for independent X, X' and Y, Y'
    (Szekely & Rizzo 2013). So d >= 0, d(s, s) = 0, d is symmetric, and sqrt(d) satisfies the
    triangle inequality; d itself need not. d <= U, with equality in a deterministic chain.
    d does not bound |V^pi(s) - V^pi(t)|, which U does: see the example.

    Labels of states raise InputError: with U at the diameter bound where they differ, d could be
    negative. So do ground distances of observations other than "l1", "l2" and "discrete", which are
    of negative type as |r - r'| is, so that d >= 0 with them (Szekely & Rizzo 2013). U is computed
    with an error e. Three entries of U make one of d, whose error is 2 e and two roundings.
    Negative entries, which only errors cause, are set to 0; that lowers the error.

    Args:
        mdp: the MDP.
        policy: (S,) actions or (S, A) probabilities; default: the MDP's own policy, or the only
            one where there is a single action.
        tol: bound on the true error of every entry; default 1e-6.
        normalised_tol: in place of `tol`, a bound on the error of (1 - discount) d, which does not
            grow with the horizon: for discounts near 1.
        dtype: of the distance matrix, float64 or float32. Without `tol`, a float32 matrix has the
            `error` that its rounding allows.

    Returns:
        The distance matrix with its proven error, in units of reward.

    Raises:
        InputError: an argument has the wrong type or value, or the MDP comes with no policy.
        NotConverged: rounding does not allow `tol`; `partial` holds the distance that was proven.
        InsufficientMemory: the matrix does not fit into memory.

    The first two states differ by 0.5 in value, and by half of that in reduced MICo:

    >>> coin = MDP([[[0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]], [[0], [0], [1]],
    ...                          discount=0.5)
    >>> reduced_mico(coin).values
    array([[0.  , 0.25, 1.25],
           [0.25, 0.  , 2.  ],
           [1.25, 2.  , 0.  ]])
    """
    require_mdp("exact.reduced_mico", mdp)
    request = build_request(
        "reduced_mico", tol, dtype, normalised_tol=normalised_tol, discount=mdp.discount
    )
    if mdp.has_labels:
        raise InputError(
            "exact.reduced_mico: reduced MICo is defined by rewards alone, and this MDP has "
            "labels; use exact.mico, or mdp.replace(labels=None)."
        )
    ground = mdp.ground_distance
    if ground is not None and ground.description not in NEGATIVE_TYPE:
        raise InputError(
            f"exact.reduced_mico: with the ground distance {ground.description!r} reduced MICo may "
            "be negative; use 'l1', 'l2' or 'discrete', or exact.mico."
        )
    actions = resolve_policy("reduced_mico", mdp, policy)
    # Half of the tolerance, since the error doubles.
    solution = solve_mico(dataclasses.replace(request, tol=request.tol / 2), mdp, actions)
    reduce_in_place(solution.values)
    # The sum and the difference in float64, and the entry in the dtype of the matrix; its unit
    # roundoff is half the machine epsilon.
    roundings = 2 * UNIT + float(np.finfo(request.dtype).eps) / 2
    error = (2 * solution.error + roundings * 2 * solution.largest + 4 * TINY) * (1 + 8 * UNIT)
    return request.build_distance(solution.values, error, mdp, actions, solution.details)


def reduce_in_place(U: NDArray[Any]) -> None:
    """Replace U(s, t) by max(U(s, t) - (U(s, s) + U(t, t)) / 2, 0), with 0 on the diagonal.

    >>> U = np.array([[0.5, 0.5], [0.5, 0.0]])
    >>> reduce_in_place(U)
    >>> U
    array([[0.  , 0.25],
           [0.25, 0.  ]])
    """
    own = U.diagonal().astype(np.float64) / 2
    for start in range(0, len(U), ROW_BLOCK):
        rows = U[start : start + ROW_BLOCK]
        mean = own[start : start + ROW_BLOCK, None] + own[None, :]
        rows[...] = np.maximum(rows.astype(np.float64) - mean, 0.0)
