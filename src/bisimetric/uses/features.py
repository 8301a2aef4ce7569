"""Features of states from their distances, for linear value function approximation.

After Ruan, Comanici, Panangaden and Precup (2015), "Representation discovery for MDPs using
bisimulation metrics": basis functions centred at a few representative states.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric._k_centre import k_centre
from bisimetric._rounding import UNIT
from bisimetric.distance import Distance
from bisimetric.errors import InputError, require_integer
from bisimetric.uses.certificates import ROUNDING_SLACK, certify_error, validate_state_distances

CALLER = "uses.features"
FeatureBasis = Literal["clusters", "radial"]


@dataclasses.dataclass(frozen=True, eq=False)
class StateFeatures:
    """Features of states, and a bound on the error of linear value functions of them.

    Attributes:
        values: (S, k), at least 0; those of a state sum to 1.
        centres: (k,), the representative states.
        radius: the largest distance from a state to its nearest centre.
        value_bound: |V(s) - w . values[s]| is at most this at every state s for the weights
            w_j = V(centre j). V is V^pi for an on-policy distance, else V*; infinite where nothing
            is proven of d.
    """

    values: NDArray[np.float64]
    centres: NDArray[np.int64]
    radius: float
    value_bound: float


def build_features(d: Any, num_features: int, *, basis: FeatureBasis = "clusters") -> StateFeatures:
    """Build up to `num_features` features, one per representative; fewer where the radius is 0.

    Representatives c_j are selected by greedy k-centre, starting at the state of least
    eccentricity; their radius r is at most twice the optimum (Gonzalez 1985). "clusters" is the
    indicator of the nearest representative. "radial" is max(0, 2 r - d(s, c_j)), normalised to sum
    1 over j, which varies gradually. As |V(s) - V(t)| <= d(s, t), the error of the first is at most
    r, that of the second 2 r.

    Args:
        d: a `Distance`, a `LearnedDistance` of listed states, or a matrix (S, S).
        num_features: at least 1.
        basis: "clusters" or "radial".

    Returns:
        The `StateFeatures`.

    Raises:
        InputError: where d is no distance matrix with zeros on the diagonal, or an option is out of
            range.

    >>> line = np.abs(np.subtract.outer([0.0, 1.0, 4.0], [0.0, 1.0, 4.0]))
    >>> features = build_features(line, 2)
    >>> features.values.tolist(), features.radius
    ([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], 1.0)
    """
    max_features = require_integer(CALLER, "num_features", num_features, 1)
    if basis not in get_args(FeatureBasis):
        raise InputError(
            f"is {basis!r} and must be clusters or radial", caller=CALLER, argument="basis"
        )
    distances = validate_state_distances(CALLER, d)
    first = int(np.argmin(distances.max(axis=1)))
    cover = k_centre(lambda s: distances[s], max_features, first)
    if basis == "clusters":
        values = np.eye(len(cover.centres))[cover.labels]
    else:
        weights = np.maximum(2 * cover.radius - distances[:, cover.centres].astype(np.float64), 0.0)
        weights[np.arange(len(weights)), cover.labels] += cover.radius == 0
        values = weights / weights.sum(axis=1, keepdims=True)
    bound = cover.radius * (1 if basis == "clusters" else 2) + certify_error(d)
    if basis == "radial" and isinstance(d, Distance):
        # The rounded features of k representatives sum to 1 within k + 1 units.
        largest = float(np.abs(d.mdp.R).max()) / (1 - d.mdp.discount)
        bound += (len(cover.centres) + 1) * UNIT * largest
    return StateFeatures(values, cover.centres, cover.radius, (1 + ROUNDING_SLACK) * bound)


def predict_values(
    features: ArrayLike, values: ArrayLike, fitted_states: ArrayLike | None = None
) -> Any:
    """Predict values by linear least squares from features and a constant.

    Of weights that fit equally well the smallest are taken.

    Args:
        features: (S, k).
        values: (S,), the targets.
        fitted_states: ids or a mask of the states to fit; default: all.

    Returns:
        (S,), the prediction at every state.

    Raises:
        InputError: where shapes do not match, numbers are not finite, or an id is out of range.

    >>> predict_values([[0.0], [1.0], [2.0]], [1.0, 3.0, 0.0], [0, 1]).round(6).tolist()
    [1.0, 3.0, 5.0]
    """
    phi, target = np.asarray(features, np.float64), np.asarray(values, np.float64)
    if phi.ndim != 2 or target.shape != phi.shape[:1]:
        raise InputError(
            f"{CALLER}: features have shape {phi.shape} and values {target.shape}; they must be "
            "(S, k) and (S,)."
        )
    if not (np.isfinite(phi).all() and np.isfinite(target).all()):
        raise InputError(f"{CALLER}: features and values must be finite, and some are not.")
    rows = (
        np.arange(len(phi)) if fitted_states is None else _validate_states(fitted_states, len(phi))
    )
    # Centred, so that features that no fitted state has predict the mean.
    centred = phi - phi[rows].mean(axis=0)
    scale = np.abs(centred).max(axis=0)
    inputs = centred / np.where(scale > 0, scale, 1.0)
    mean = target[rows].mean()
    weights = np.linalg.lstsq(inputs[rows], target[rows] - mean, rcond=1e-10)[0]
    return mean + inputs @ weights


def _validate_states(states: ArrayLike, num_states: int) -> NDArray[np.int64]:
    """Return ids of states, from ids or from a mask."""
    ids = np.asarray(states)
    if ids.dtype == np.bool_ and ids.shape == (num_states,):
        ids = np.flatnonzero(ids)
    is_valid = ids.ndim == 1 and ids.size > 0 and ids.dtype.kind in "iu"
    if not is_valid or ids.min() < 0 or ids.max() >= num_states:
        raise InputError(
            f"{CALLER}: fitted_states are {ids.dtype} of shape {ids.shape} and must be ids from 0 "
            f"to {num_states - 1}, at least one, or a mask of all states."
        )
    return ids
