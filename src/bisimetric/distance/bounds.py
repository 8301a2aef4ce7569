"""DistanceBounds: a lower and an upper bound on the distance of every pair of states."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric._rounding import UNIT
from bisimetric._text import pluralise
from bisimetric.distance import files
from bisimetric.distance._distance import Distance, Kind
from bisimetric.errors import InputError
from bisimetric.mdp import MDP


@dataclasses.dataclass(frozen=True, eq=False)
class DistanceBounds:
    """A lower and an upper bound on the distance of every pair of states of an MDP.

    `bounds(s, t)` takes ids or names of states. The true distances of *all* pairs lie between their
    bounds, at once: with certainty if `confidence` is 1, otherwise with at least that probability
    over the data that the bounds were computed from. Rounding is included. Bounds are in units of
    reward.

    Attributes:
        lower: (S, S), symmetric, at least 0, read-only.
        upper: (S, S), symmetric, 0 on the diagonal, read-only.
        kind: "bisimulation", "on_policy" or "lax".
        mdp: the MDP whose states are compared; an empirical one if `confidence` is below 1.
        policy: the policy of an on-policy distance, otherwise None.
        confidence: the probability that all bounds hold, at most 1.
        metadata: how the bounds were computed.

    Raises:
        InputError: if shapes, kind, confidence or bounds do not fit together.

    >>> mdp = MDP.deterministic([[0], [1]], [[0.0], [1.0]], discount=0.5, names="xy")
    >>> d = DistanceBounds(np.array([[0, 1.5], [1.5, 0]]), np.array([[0, 2.5], [2.5, 0]]),
    ...                    "bisimulation", mdp)
    >>> d.bounds("x", "y"), d.max_width, round(d.to_distance().error, 9)
    ((1.5, 2.5), 1.0, 0.5)
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    kind: Kind
    mdp: MDP
    policy: NDArray[Any] | None = None
    confidence: float = 1.0
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = (self.mdp.num_states, self.mdp.num_states)
        for name in ("lower", "upper"):
            matrix = getattr(self, name)
            if matrix.shape != shape or matrix.dtype != np.float64:
                raise InputError(
                    f"DistanceBounds: {name} is {matrix.dtype} of shape {matrix.shape} and must be "
                    f"float64 of shape {shape}."
                )
            matrix.flags.writeable = False
        if not (self.lower <= self.upper).all():
            s, t = np.argwhere(~(self.lower <= self.upper))[0]
            raise InputError(
                f"DistanceBounds: lower[{s}, {t}] is {self.lower[s, t]} and must be at most "
                f"upper[{s}, {t}], {self.upper[s, t]}."
            )
        if self.kind not in get_args(Kind):
            raise InputError(
                f"DistanceBounds: kind is {self.kind!r} and must be one of "
                f"{', '.join(get_args(Kind))}."
            )
        if not 0 <= self.confidence <= 1:
            raise InputError(
                f"DistanceBounds: confidence is {self.confidence} and must be from 0 to 1."
            )

    @property
    def names(self) -> tuple[str, ...] | None:
        """One name per state, or None."""
        return self.mdp.names

    @property
    def max_width(self) -> float:
        """The largest difference of an upper and a lower bound."""
        return float((self.upper - self.lower).max())

    @property
    def error(self) -> float:
        """A proven bound on the error of the middle of the bounds: half of the largest width.

        It is infinite if `confidence` is below 1.
        """
        return self._bound_half_width() if self.confidence == 1 else math.inf

    @overload
    def bounds(self, s: int | str, t: int | str) -> tuple[float, float]: ...
    @overload
    def bounds(self, s: ArrayLike, t: ArrayLike) -> tuple[Any, Any]: ...
    def bounds(self, s: Any, t: Any) -> tuple[Any, Any]:
        """Return the bounds on the distance of two states; arrays broadcast.

        Args:
            s: id or name of a state, or an array of them.
            t: id or name of the other state, or an array of them.

        Returns:
            The lower and the upper bound.

        Raises:
            InputError: if the MDP has no such state.
        """
        i, j = (
            np.array([self.mdp.state(x) for x in np.ravel(states).tolist()], np.int64).reshape(
                np.shape(states)
            )
            for states in (s, t)
        )
        lower, upper = self.lower[i, j], self.upper[i, j]
        return (lower, upper) if np.ndim(lower) else (float(lower), float(upper))

    def to_distance(self) -> Distance:
        """Return the middle of the bounds as a `Distance`.

        If the bounds are certain, its `error` is half of the largest width. Otherwise nothing is
        proven for certain: `error` is infinite, and half of the largest width is the `estimate`,
        which holds with the probability `confidence`.

        Returns:
            The distance.
        """
        middle = self.lower + (self.upper - self.lower) / 2
        metadata, estimate = dict(self.metadata), None
        if self.confidence < 1:
            metadata["confidence"], estimate = self.confidence, self._bound_half_width()
        return Distance(middle, self.error, self.kind, self.mdp, self.policy, metadata, estimate)

    def _bound_half_width(self) -> float:
        """Bound the distance of any point between two bounds from their computed middle."""
        # A difference, a quotient and a sum, rounded.
        return self.max_width / 2 * (1 + 4 * UNIT) + 4 * UNIT * float(self.upper.max())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one `.npz` file, readable by plain NumPy, atomically.

        Args:
            path: the file to write or replace.

        Raises:
            OSError: if it cannot be written.
        """
        files.write_bounds(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DistanceBounds:
        """Read and validate what `save` wrote.

        Args:
            path: an `.npz` file.

        Returns:
            The bounds.

        Raises:
            InputError: if the file is damaged or holds something else.
            OSError: if it cannot be read.
        """
        return files.read_bounds(path, cls)

    def __repr__(self) -> str:
        states = pluralise(self.mdp.num_states, "state")
        certainty = "" if self.confidence == 1 else f", with probability {self.confidence:g}"
        width = self.upper - self.lower
        pairs = ~np.eye(len(width), dtype=bool)
        mean = float(width[pairs].mean()) if pairs.any() else 0.0
        return (
            f"DistanceBounds({self.kind}, {states}, mean width {mean:.3g}, "
            f"largest {self.max_width:.3g}{certainty})"
        )
