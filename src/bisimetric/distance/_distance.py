"""Distance: the matrix of distances between states, with its proven error."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any, Literal, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from bisimetric._rounding import two_sum
from bisimetric._text import pluralise
from bisimetric.distance import files
from bisimetric.distance._explain import explain
from bisimetric.distance.coverage import Coverage, format_fraction
from bisimetric.distance.explanation import Explanation, Proof
from bisimetric.errors import InputError
from bisimetric.mdp import MDP

Kind = Literal["bisimulation", "on_policy", "lax", "mico", "reduced_mico", "undiscounted"]


@dataclasses.dataclass(frozen=True, eq=False)
class Distance:
    """The matrix of distances between the states of an MDP, with a proven error.

    `d(s, t)` takes ids or names of states. Every entry of `values` lies within `error` of the true
    distance; the bound is proven and includes rounding. Distances are in units of reward, at most
    reward range / (1 - discount). With a `coverage`, the bound holds for the visited states only.
    Where no bound holds for every entry, `error` is infinite: `bounds(s, t)` is what is proven for
    one pair, and `estimate` describes the whole matrix.

    Attributes:
        values: (S, S), symmetric, zero on the diagonal (except for "mico"), read-only. The matrix
            of a sharded distance stays on disk and is read row by row.
        error: a proven bound on the largest error of any entry.
        kind: "bisimulation", "on_policy", "lax", "mico", "reduced_mico" or "undiscounted".
        mdp: the MDP whose states are compared; from incomplete data, its observed part, where only
            the observed actions are available.
        policy: the policy of an on-policy or MICo distance, otherwise None.
        metadata: how the distance was computed: method, tolerance, rounds, seconds, versions.
            "model": "empirical" says that `error` refers to an MDP estimated from data.
            "without_successor" lists states whose successor is not in the matrix, between recorded
            steps (`exact.recorded`); in `mdp` they have a self-loop.
        estimate: for a Monte Carlo matrix, an estimate of its largest error; with an incomplete
            coverage, a bound on its distance from what the observed transitions determine;
            otherwise None.
        coverage: for a matrix from data, what was observed and what that determines; otherwise
            None.

    Raises:
        InputError: if shapes, kind, error or coverage do not fit together.

    >>> from bisimetric import exact, worlds
    >>> d = exact.bisimulation(worlds.load("mirrored-rooms", discount=0.9))
    >>> round(d("1,5", "5,5"), 4), d.error < 1e-6
    (11.5532, True)
    >>> [(name, round(distance, 4)) for name, distance in d.nearest("4,3", k=2, names=True)]
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
        self._validate_successors()
        if isinstance(self.values, np.ndarray):
            self.values.flags.writeable = False

    def _validate_coverage(self, coverage: Coverage) -> None:
        shape = self.mdp.R.shape if self.kind in ("bisimulation", "lax") else (len(self.values), 1)
        if coverage.known.shape != shape:
            raise InputError(
                f"Distance: coverage.known has shape {coverage.known.shape} and must be {shape}."
            )
        if math.isfinite(self.error) and not coverage.complete:
            raise InputError(
                f"Distance: error is {self.error:.2g} and must be infinite where pairs are not "
                "determined; coverage.error bounds the determined ones."
            )

    def _validate_successors(self) -> None:
        found = self.metadata.get("without_successor", [])
        states = range(len(self.values))
        if not isinstance(found, list) or any(type(s) is not int or s not in states for s in found):
            raise InputError(
                f"Distance: metadata['without_successor'] is {found!r} and must list ids of states."
            )

    @property
    def names(self) -> tuple[str, ...] | None:
        """One name per state, or None."""
        return self.mdp.names

    @property
    def has_successor(self) -> NDArray[np.bool_]:
        """(S,), whether the successors of a state are in the matrix, as `mdp` holds them.

        False only between recorded steps, for those that are not followed by another of them.
        """
        found = np.ones(len(self.values), np.bool_)
        found[self.metadata.get("without_successor", [])] = False
        return found

    @overload
    def __call__(self, s: int | str, t: int | str) -> float: ...
    @overload
    def __call__(self, s: ArrayLike, t: ArrayLike) -> Any: ...
    def __call__(self, s: Any, t: Any) -> Any:
        """Return the distance between two states; arrays broadcast.

        Args:
            s: id or name of a state, or an array of them.
            t: id or name of the other state, or an array of them.

        Returns:
            A float, or the array of distances.

        Raises:
            InputError: if the MDP has no such state.
        """
        if np.ndim(s) == 0 and np.ndim(t) == 0:
            return float(self.values[self.mdp.state(s), self.mdp.state(t)])
        return self.values[self._find_state_ids(s), self._find_state_ids(t)]

    @overload
    def bounds(self, s: int | str, t: int | str) -> tuple[float, float]: ...
    @overload
    def bounds(self, s: ArrayLike, t: ArrayLike) -> tuple[Any, Any]: ...
    def bounds(self, s: Any, t: Any) -> tuple[Any, Any]:
        """Return an interval that provably contains the true distance, rounding included.

        It is d(s, t) -/+ `error`. With a coverage, the lower end is d(s, t) minus its rounding
        bound, and the upper end is infinite where the pair is not determined. Undiscounted
        distances are in [0, 1], and those that are 0 or 1 are exact.

        Args:
            s: id or name of a state, or an array of them.
            t: id or name of the other state, or an array of them; both broadcast.

        Returns:
            The lower and the upper end.

        Raises:
            InputError: if the MDP has no such state.

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
        if self.kind == "undiscounted":
            decided = (values == 0) | (values == 1)
            lower, upper = (np.where(decided, values, end) for end in (lower, upper))
            upper = np.minimum(upper, 1.0)
        return (lower, upper) if values.ndim else (float(lower), float(upper))

    def table(self, states: ArrayLike | None = None, others: ArrayLike | None = None) -> Any:
        """Return the distances from some states to others.

        Args:
            states: ids or names of n states; default: all states.
            others: ids or names of m states; default: `states`.

        Returns:
            The (n, m) distances.

        Raises:
            InputError: if the MDP has no such state, or one is given instead of a sequence.

        >>> mdp = MDP.deterministic([[0], [1]], [[0.0], [1.0]], discount=0.5, names="xy")
        >>> d = Distance(np.array([[0.0, 2.0], [2.0, 0.0]]), 0.0, "lax", mdp)
        >>> d.table(["y"], ["x", "y"])
        array([[2., 0.]])
        """
        everything = np.arange(self.mdp.num_states)
        rows = everything if states is None else self._find_state_ids(states)
        columns = rows if others is None else self._find_state_ids(others)
        for name, ids in (("states", rows), ("others", columns)):
            if ids.ndim != 1:
                raise InputError(f"Distance.table: {name} must be a sequence of states.")
        return self.values[rows[:, None], columns[None, :]]

    @overload
    def nearest(
        self, s: int | str, k: int = 5, *, names: Literal[False] = False
    ) -> list[tuple[int, float]]: ...
    @overload
    def nearest(
        self, s: int | str, k: int = 5, *, names: Literal[True]
    ) -> list[tuple[str, float]]: ...
    @overload
    def nearest(self, s: int | str, k: int = 5, *, names: bool) -> list[tuple[Any, float]]: ...
    def nearest(self, s: int | str, k: int = 5, *, names: bool = False) -> list[tuple[Any, float]]:
        """Return the states nearest to s, without s itself, nearest first, ties by id.

        States that the coverage does not count as visited are left out.

        Args:
            s: id or name of a state.
            k: how many states to return, at most.
            names: return names of states instead of ids.

        Returns:
            Pairs of a state and its distance from s.

        Raises:
            InputError: if the MDP has no such state, the data did not visit it, or k is below 1.
        """
        source = self.mdp.state(s)
        if k < 1:
            raise InputError(f"nearest: k is {k} and must be at least 1.")
        if self.coverage is not None and not self.coverage.visited[source]:
            raise InputError(
                f"nearest: nothing is known of state {self.mdp.state_name(source)}; use one that "
                "the data visited."
            )
        row = self.values[source]
        order = np.argsort(row, kind="stable")
        others = order != source
        if self.coverage is not None:
            others &= self.coverage.visited[order]
        order = order[others][:k]
        return [(self.mdp.state_name(int(t)) if names else int(t), float(row[t])) for t in order]

    @property
    def bounds_values(self) -> bool:
        """Whether d(s, t) bounds values: not reduced MICo, undiscounted, nor with a `gap`."""
        return self.kind not in ("reduced_mico", "undiscounted") and "gap" not in self.metadata

    def explain(self, s: int | str, t: int | str) -> Explanation:
        """Return the steps, reward gaps and couplings that add up to d(s, t).

        Args:
            s: id or name of a state.
            t: id or name of the other state.

        Returns:
            An `Explanation`; `print` shows it as text.

        Raises:
            InputError: if the MDP has no such state, for reduced MICo and undiscounted distances,
                which no such sum makes, or for a distance with a `gap` other than that of the
                rewards.
        """
        pair = (self.mdp.state(s), self.mdp.state(t))
        if self.kind == "reduced_mico":
            raise InputError(
                "Distance.explain: reduced MICo is a difference of MICo distances and has no steps "
                "of its own; explain exact.mico."
            )
        if self.kind == "undiscounted":
            raise InputError(
                "Distance.explain: an undiscounted distance is a probability and no sum of reward "
                "gaps; explain exact.bisimulation."
            )
        if "gap" in self.metadata:
            raise InputError(
                "Distance.explain: this distance has a gap of its own, and steps are explained by "
                "rewards; compute it without gap."
            )
        proof = Proof(self.error, self.estimate, empirical=self._is_empirical)
        if self.coverage is not None:
            proof = dataclasses.replace(
                proof,
                error=self.coverage.error if self.coverage.determined[pair] else math.inf,
                known=self.coverage.known,
                complete=self.coverage.complete,
            )
        if not self.has_successor.all():
            proof = dataclasses.replace(proof, has_successor=self.has_successor)
        return explain(self.mdp, self.values, self.kind, self.policy, pair, proof)

    def to_distance(self) -> Distance:
        """Return this distance itself, for code that accepts any `StateDistance`.

        Returns:
            This object.
        """
        return self

    def to_frame(self) -> Any:
        """Return the matrix as a pandas DataFrame.

        Returns:
            A DataFrame with the names of the states (without names: ids) as index and columns.

        Raises:
            InputError: if pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise InputError(
                "Distance.to_frame: pandas is not installed; pip install pandas."
            ) from None
        labels = range(self.mdp.num_states) if self.names is None else self.names
        return pd.DataFrame(np.asarray(self.values), index=labels, columns=labels)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the (S, S) matrix, read-only unless it is copied; see `numpy.asarray`."""
        if copy is None:
            return np.asarray(self.values, dtype)
        if copy is False and not isinstance(self.values, np.ndarray):
            raise ValueError("Distance: a matrix on disk cannot be an array without a copy.")
        return np.array(self.values, dtype, copy=copy)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one `.npz` file, readable by plain NumPy, atomically.

        Args:
            path: the file to write or replace.

        Raises:
            OSError: if it cannot be written.
        """
        files.write(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Distance:
        """Read and validate what `save` or a sharded run wrote.

        Args:
            path: an `.npz` file, or the folder of a sharded distance, whose rows are read when
                they are used.

        Returns:
            The distance.

        Raises:
            InputError: if the file is damaged or holds something else.
            OSError: if it cannot be read.
        """
        return files.read(path, cls)

    def _find_state_ids(self, states: Any) -> NDArray[np.integer]:
        flat = [self.mdp.state(s) for s in np.ravel(states).tolist()]
        return np.array(flat, dtype=np.int64).reshape(np.shape(states))

    @property
    def _is_empirical(self) -> bool:
        return self.metadata.get("model") == "empirical"

    def _repr_html_(self) -> str:
        """Return the small page of `bisimetric.explorer` that a notebook shows."""
        # Through the top-level package: this module must not import the explorer's.
        import bisimetric

        return str(bisimetric.explorer.render_notebook(self))

    def __repr__(self) -> str:
        states = pluralise(self.mdp.num_states, "state")
        model = " of the empirical model" if self._is_empirical else ""
        return (
            f"Distance({self.kind}, {states}, largest {self.values.max():.6g}, "
            f"{self._describe_error()}{model})"
        )

    def _describe_error(self) -> str:
        if self.coverage is not None and not self.coverage.complete:
            proven = format_fraction(
                self.coverage.num_proven, self.coverage.num_state_pairs, "pair"
            )
            to = f" to {self.coverage.error:.2g}" if self.coverage.num_proven else ""
            return f"a lower bound; {proven} proven{to}"
        if self.estimate is not None:
            return f"an estimate, off by about {self.estimate:.2g}"
        return f"error <= {self.error:.2g}" if math.isfinite(self.error) else "error not known"


def _add_outward(values: NDArray[np.float64], by: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute values + by, never rounded towards `values`."""
    with np.errstate(invalid="ignore", over="ignore"):
        total, lost = two_sum(values, by)
        short = np.where(by > 0, lost > 0, lost < 0)
        outward: NDArray[np.float64] = np.nextafter(total, np.copysign(np.inf, by))
        return np.where(short, outward, np.asarray(total))
