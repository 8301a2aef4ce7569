"""Features of states from their distances, for linear prediction of values.

After Ruan, Comanici, Panangaden and Precup (2015), "Representation discovery for MDPs using
bisimulation metrics": few representatives, and every state described by those that are near.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric._rounding import UNIT
from bisimetric.distance import Distance
from bisimetric.errors import InputError, require_integer
from bisimetric.uses.certificates import ROUNDING_SLACK, certified_error, validate_state_distances
from bisimetric.uses.k_centre import k_centre

CALLER = "uses.embedding.features"
FeatureBasis = Literal["clusters", "radial"]


@dataclasses.dataclass(frozen=True, eq=False)
class StateFeatures:
    """Features of states, and what a linear function of them can be sure to reach.

    Attributes:
        values: (S, k), at least 0, those of a state sum to 1.
        centres: (k,), the states that stand for the others.
        radius: every state is at most so far from a centre.
        promised: some weights give |V(s) - w . values[s]| <= promised at every state s: those with
            w_j = V(centre j). V is V^pi for an on-policy distance, else V*; infinite where nothing
            is proven of d.
    """

    values: NDArray[np.float64]
    centres: NDArray[np.int64]
    radius: float
    value_bound: float


def build_features(d: Any, num_features: int, *, basis: FeatureBasis = "clusters") -> StateFeatures:
    """Up to `number` features of the states, one a representative; fewer where all are covered.

    Representatives c_j are found by greedy k-centre, from the state whose farthest one is nearest;
    their radius r is at most twice the least possible (Gonzalez 1985). "clusters" is 1 for the
    nearest representative and 0 for others. "radial" is max(0, 2 r - d(s, c_j)), divided by the sum
    over j, which changes gradually. As |V(s) - V(t)| <= d(s, t), the first is off by at most r and
    the second by 2 r.

    Args:
        d: a `Distance`, a learned distance with listed states, or an array (S, S).

    >>> line = np.abs(np.subtract.outer([0.0, 1.0, 4.0], [0.0, 1.0, 4.0]))
    >>> found = around(line, 2)
    >>> found.values.tolist(), found.radius
    ([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], 1.0)
    """
    size = require_integer(CALLER, "number", num_features, 1)
    if basis not in get_args(FeatureBasis):
        raise InputError(f"{CALLER}: form is {basis!r} and must be clusters or radial.")
    table = validate_state_distances(CALLER, d)
    first = int(np.argmin(table.max(axis=1)))
    cover = k_centre(lambda s: table[s], size, first)
    if basis == "clusters":
        values = np.eye(len(cover.centres))[cover.labels]
    else:
        near = np.maximum(2 * cover.radius - table[:, cover.centres].astype(np.float64), 0.0)
        near[np.arange(len(near)), cover.labels] += cover.radius == 0
        values = near / near.sum(axis=1, keepdims=True)
    reach = cover.radius * (1 if basis == "clusters" else 2) + certified_error(d)
    if basis == "radial" and isinstance(d, Distance):
        # Rounded shares of k representatives sum to 1 within k + 1 units, of V.
        largest = float(np.abs(d.mdp.R).max()) / (1 - d.mdp.discount)
        reach += (len(cover.centres) + 1) * UNIT * largest
    return StateFeatures(values, cover.centres, cover.radius, (1 + ROUNDING_SLACK) * reach)


def predict_values(
    features: ArrayLike, values: ArrayLike, fitted_states: ArrayLike | None = None
) -> Any:
    """Least squares: the prediction (S,) of `values` (S,) from features (S, k) and a constant.

    The weights are fitted to `states` only, ids or a mask, where given; the least of those that fit
    equally well are taken.

    >>> predicted([[0.0], [1.0], [2.0]], [1.0, 3.0, 0.0], states=[0, 1]).round(6).tolist()
    [1.0, 3.0, 5.0]
    """
    phi, target = np.asarray(features, np.float64), np.asarray(values, np.float64)
    if phi.ndim != 2 or target.shape != phi.shape[:1]:
        raise InputError(
            f"{CALLER}: features have shape {phi.shape} and values {target.shape}; give (states, k) "
            "and (states,)."
        )
    if not (np.isfinite(phi).all() and np.isfinite(target).all()):
        raise InputError(f"{CALLER}: features and values must be finite numbers, and some are not.")
    rows = (
        np.arange(len(phi)) if fitted_states is None else _validate_states(fitted_states, len(phi))
    )
    # Around their means, so that what no state was fitted to is predicted as the mean.
    around_mean = phi - phi[rows].mean(axis=0)
    width = np.abs(around_mean).max(axis=0)
    inputs = around_mean / np.where(width > 0, width, 1.0)
    middle = target[rows].mean()
    weights = np.linalg.lstsq(inputs[rows], target[rows] - middle, rcond=1e-10)[0]
    return middle + inputs @ weights


def _validate_states(states: ArrayLike, num_states: int) -> NDArray[np.int64]:
    """Ids of some of so many states, from ids or from a mask."""
    given = np.asarray(states)
    if given.dtype == np.bool_ and given.shape == (num_states,):
        given = np.flatnonzero(given)
    good = given.ndim == 1 and given.size > 0 and given.dtype.kind in "iu"
    if not good or given.min() < 0 or given.max() >= num_states:
        raise InputError(
            f"{CALLER}: states are {given.dtype} of shape {given.shape} and must be ids from 0 to "
            f"{num_states - 1}, at least one, or a mask of all states."
        )
    return given
