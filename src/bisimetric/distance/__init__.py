"""Distance: the answer, with its proven error, its reasons and its file."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any, Literal, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.distance import files
from bisimetric.distance._explain import Explanation, Proof, explain
from bisimetric.distance.coverage import Coverage, format_fraction
from bisimetric.errors import InputError
from bisimetric.mdp import MDP

__all__ = ["Coverage", "Distance", "Kind"]

Kind = Literal["bisimulation", "on_policy", "lax", "mico"]


@dataclasses.dataclass(frozen=True, eq=False)
class Distance:
    """A table of distances between the states of an MDP.

    `d(s, t)` takes ids or names. Every entry of `values` lies within `error` of the true
    distance: that is proven, rounding included. With a coverage this is said of the states that
    were `lived` in, and nothing of other ids. Where that is not proven of every entry, `error`
    is infinite; `bounds(s, t)` is what is proven of one, and `estimate` says more of them all.

    Attributes:
        values: (S, S), symmetric, zero on the diagonal (but for "mico"), read-only. Of a sharded
            table it stays on the disk and reads like an array, row by row.
        error: a proven bound on the largest error of any entry.
        kind: "bisimulation", "on_policy", "lax" or "mico".
        mdp: the MDP whose states these are; where its transitions were not all seen, the known
            part, with the known actions as those that are available.
        policy: the policy of an on-policy or MICo distance, else None.
        made: how it was made: method, tolerance, rounds, seconds, versions.
        estimate: of a table from draws, an estimate of the largest error; with a coverage that is
            not complete, a bound on how far the table is from what the known transitions tell;
            else None.
        coverage: of a table from experience, what was seen and what that determines; else None.

    >>> from bisimetric import exact, worlds
    >>> d = exact.bisimulation(worlds.load("mirrored-rooms", discount=0.9))
    >>> round(d("1,5", "5,5"), 4), d.error < 1e-6
    (11.5532, True)
    >>> [(d.mdp.name(t), round(distance, 4)) for t, distance in d.nearest("4,3", k=2)]
    [('2,1', 11.2269), ('6,1', 11.241)]
    """

    values: NDArray[np.floating]
    error: float
    kind: Kind
    mdp: MDP
    policy: NDArray[Any] | None = None
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)
    estimate: float | None = None
    coverage: Coverage | None = None

    def __post_init__(self) -> None:
        states = self.mdp.num_states
        if self.values.shape != (states, states):
            raise InputError(
                f"Distance: values have shape {self.values.shape} and must be ({states}, {states})."
            )
        if self.kind not in get_args(Kind):
            raise InputError(
                f"Distance: kind is {self.kind!r} and must be one of {', '.join(get_args(Kind))}."
            )
        if not self.error >= 0:
            raise InputError(f"Distance: error is {self.error} and must be at least 0.")
        if self.coverage is not None:
            self._validate_coverage(self.coverage)
        if isinstance(self.values, np.ndarray):
            self.values.flags.writeable = False

    def _validate_coverage(self, coverage: Coverage) -> None:
        wanted = self.mdp.R.shape if self.kind in ("bisimulation", "lax") else (len(self.values), 1)
        if coverage.known.shape != wanted:
            raise InputError(
                f"Distance: what is known has shape {coverage.known.shape} and must be {wanted}."
            )
        if math.isfinite(self.error) and not coverage.complete:
            raise InputError(
                f"Distance: error is {self.error:.2g} and must be infinite where pairs are not "
                "determined; that of the others is coverage.error."
            )

    @overload
    def __call__(self, s: int | str, t: int | str) -> float: ...
    @overload
    def __call__(self, s: ArrayLike, t: ArrayLike) -> Any: ...
    def __call__(self, s: Any, t: Any) -> Any:
        """The distance of two states, given by id or name; arrays of ids broadcast."""
        if np.ndim(s) == 0 and np.ndim(t) == 0:
            return float(self.values[self.mdp.state(s), self.mdp.state(t)])
        return self.values[self._find_state_ids(s), self._find_state_ids(t)]

    @overload
    def bounds(self, s: int | str, t: int | str) -> tuple[float, float]: ...
    @overload
    def bounds(self, s: ArrayLike, t: ArrayLike) -> tuple[Any, Any]: ...
    def bounds(self, s: Any, t: Any) -> tuple[Any, Any]:
        """The interval that the true distance is proven to lie in, rounding included.

        It is d(s, t) -/+ `error`. With a coverage, the lower end is d(s, t) less its rounding, and
        the upper end is infinite where the pair is not determined. Arrays broadcast as in a call.

        >>> mdp = MDP.deterministic([[0], [1]], [[0.0], [1.0]], discount=0.5)
        >>> Distance(np.array([[0.0, 2.0], [2.0, 0.0]]), 0.25, "lax", mdp).bounds(0, [0, 1])
        (array([0.  , 1.75]), array([0.  , 2.25]))
        """
        i, j = np.broadcast_arrays(self._find_state_ids(s), self._find_state_ids(t))
        values = self.values[i, j].astype(np.float64)
        below = above = np.full(values.shape, self.error)
        if self.coverage is not None:
            below = np.full(values.shape, self.coverage.rounding)
            above = np.where(self.coverage.determined[i, j], self.coverage.error, np.inf)
        lower, upper = np.maximum(_add_outward(values, -below), 0.0), _add_outward(values, above)
        if self.kind != "mico":
            lower, upper = (np.where(i == j, 0.0, end) for end in (lower, upper))
        return (lower, upper) if values.ndim else (float(lower), float(upper))

    def nearest(self, s: int | str, k: int = 5) -> list[tuple[int, float]]:
        """The k states nearest to s, without s itself, nearest first, ties by id.

        Ids of which nothing is known, those not `lived` in by the coverage, are left out.
        """
        source = self.mdp.state(s)
        if k < 1:
            raise InputError(f"nearest: k is {k} and must be at least 1.")
        if self.coverage is not None and not self.coverage.visited[source]:
            raise InputError(
                f"nearest: nothing is known of state {self.mdp.state_name(source)}; take one that the "
                "data lived in."
            )
        row = self.values[source]
        order = np.argsort(row, kind="stable")
        others = order != source
        if self.coverage is not None:
            others &= self.coverage.visited[order]
        order = order[others][:k]
        return [(int(t), float(row[t])) for t in order]

    def explain(self, s: int | str, t: int | str) -> Explanation:
        """The steps, reward gaps and couplings that add up to d(s, t); `print` shows them."""
        pair = (self.mdp.state(s), self.mdp.state(t))
        proof = Proof(self.error, self.estimate)
        if self.coverage is not None:
            proof = Proof(
                self.coverage.error if self.coverage.determined[pair] else math.inf,
                self.estimate,
                self.coverage.known,
                self.coverage.complete,
            )
        return explain(self.mdp, self.values, self.kind, self.policy, pair, proof)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one `.npz`, readable by plain NumPy; the file appears whole or not at all."""
        files.write(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Distance:
        """Reads what `save` wrote, and checks it; of a sharded table, rows when they are needed."""
        return files.read(path, cls)

    def _find_state_ids(self, states: Any) -> NDArray[np.integer]:
        flat = [self.mdp.state(s) for s in np.ravel(states).tolist()]
        return np.array(flat, dtype=np.int64).reshape(np.shape(states))

    def _repr_html_(self) -> str:
        """The small page of `bisimetric.explorer` that a notebook shows."""
        # By the name of the package, which knows all rooms: this one stands above the explorer.
        import bisimetric

        return str(bisimetric.explorer.render_notebook(self))

    def __repr__(self) -> str:
        sure = f"error <= {self.error:.2g}" if math.isfinite(self.error) else "error not known"
        if self.coverage is not None and not self.coverage.complete:
            proven = (
                format_fraction(self.coverage.num_proven, self.coverage.num_state_pairs, "pair")
                + " proven"
            )
            to = f" to {self.coverage.error:.2g}" if self.coverage.num_proven else ""
            sure = f"a lower bound; {proven}{to}"
        elif self.estimate is not None:
            sure = f"an estimate, off by about {self.estimate:.2g}"
        states = "1 state" if self.mdp.num_states == 1 else f"{self.mdp.num_states} states"
        return f"Distance({self.kind}, {states}, largest {self.values.max():.6g}, {sure})"


def _add_outward(values: NDArray[np.float64], by: NDArray[np.float64]) -> NDArray[np.float64]:
    """values + by, never rounded towards `values`."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = values + by
        # What the sum lost in rounding, to the bit (Knuth's two-sum).
        back = total - values
        lost = (values - (total - back)) + (by - back)
        short = np.where(by > 0, lost > 0, lost < 0)
        return np.where(short, np.nextafter(total, np.copysign(np.inf, by)), total)
