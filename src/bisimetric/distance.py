"""Distance: the answer, with its proven error, its reasons and its file."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import zipfile
from typing import Any, Literal, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bisimetric.errors import InputError
from bisimetric.explanation import Explanation, explain
from bisimetric.files import UNREADABLE, written_beside
from bisimetric.mdp import MDP

Kind = Literal["bisimulation", "on_policy", "lax", "mico"]
FORMAT = "bisimetric distance, version 1"


@dataclasses.dataclass(frozen=True, eq=False)
class Distance:
    """A table of distances between the states of an MDP.

    `d(s, t)` takes ids or names. Every entry of `values` lies within `error` of the true
    distance: that is proven, rounding included. Where nothing is proven, as for a table from
    samples, `error` is infinite and `estimate` says about how large it is.

    Attributes:
        values: (S, S), symmetric, zero on the diagonal (but for "mico"), read-only.
        error: a proven bound on the largest error of any entry.
        kind: "bisimulation", "on_policy", "lax" or "mico".
        mdp: the MDP whose states these are.
        policy: the policy of an on-policy or MICo distance, else None.
        made: how it was made: method, tolerance, rounds, seconds, versions.
        estimate: of a table from samples, an estimate of the largest error; else None.

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
    made: dict[str, Any] = dataclasses.field(default_factory=dict)
    estimate: float | None = None

    def __post_init__(self) -> None:
        states = self.mdp.num_states
        if self.values.shape != (states, states):
            raise InputError(
                f"Distance: values have shape {self.values.shape} and must be ({states}, {states})."
            )
        self.values.flags.writeable = False

    @overload
    def __call__(self, s: int | str, t: int | str) -> float: ...
    @overload
    def __call__(self, s: ArrayLike, t: ArrayLike) -> Any: ...
    def __call__(self, s: Any, t: Any) -> Any:
        """The distance of two states, given by id or name; arrays of ids broadcast."""
        if np.ndim(s) == 0 and np.ndim(t) == 0:
            return float(self.values[self.mdp.state(s), self.mdp.state(t)])
        return self.values[self._ids(s), self._ids(t)]

    def nearest(self, s: int | str, k: int = 5) -> list[tuple[int, float]]:
        """The k states nearest to s, without s itself, nearest first, ties by id."""
        source = self.mdp.state(s)
        if k < 1:
            raise InputError(f"nearest: k is {k} and must be at least 1.")
        row = self.values[source]
        order = np.argsort(row, kind="stable")
        order = order[order != source][:k]
        return [(int(t), float(row[t])) for t in order]

    def explain(self, s: int | str, t: int | str) -> Explanation:
        """The steps, reward gaps and couplings that add up to d(s, t); `print` shows them."""
        pair = (self.mdp.state(s), self.mdp.state(t))
        return explain(
            self.mdp, self.values, self.error, self.kind, self.policy, pair, self.estimate
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one `.npz`, readable by plain NumPy; the file appears whole or not at all."""
        mdp = self.mdp
        about = {
            "format": FORMAT,
            "kind": self.kind,
            "error": self.error if self.estimate is None else None,
            "estimate": self.estimate,
            "discount": mdp.discount,
            "made": self.made,
        }
        arrays: dict[str, Any] = {
            "values": self.values,
            "about": np.array(json.dumps(about)),
            "rewards": mdp.R,
            "successors": mdp.P.indices,
            "probabilities": mdp.P.data,
            "rows": mdp.P.indptr,
            "names": mdp.names,
            "actions": mdp.actions,
            "positions": mdp.positions,
            "features": mdp.features,
            "world_policy": mdp.policy,
            "available": mdp.available,
            "policy": self.policy,
        }
        with written_beside(path) as beside, open(beside, "wb") as file:
            np.savez(file, allow_pickle=False, **_present(arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Distance:
        """Reads what `save` wrote, and checks it."""
        try:
            # Opened and looked into first: np.load leaves a file that is no archive open.
            with open(path, "rb") as file, zipfile.ZipFile(file):
                file.seek(0)
                with np.load(file, allow_pickle=False) as archive:
                    found = {name: archive[name] for name in archive.files}
        except OSError as error:
            raise type(error)(f"cannot read {path}: {error.strerror or error}.") from None
        except UNREADABLE as error:
            raise InputError(
                f"{path} is cut short or no distance file ({error}); make it again with "
                "`bisimetric exact ... -o`."
            ) from None
        return _from_arrays(path, found)

    def _ids(self, states: Any) -> NDArray[np.integer]:
        flat = [self.mdp.state(s) for s in np.ravel(states).tolist()]
        return np.array(flat, dtype=np.int64).reshape(np.shape(states))

    def __repr__(self) -> str:
        sure = f"error <= {self.error:.2g}"
        if self.estimate is not None:
            sure = f"an estimate, off by about {self.estimate:.2g}"
        return (
            f"Distance({self.kind}, {self.mdp.num_states} states, "
            f"largest {self.values.max():.6g}, {sure})"
        )


def _present(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(array) for name, array in arrays.items() if array is not None}


def _from_arrays(path: str | os.PathLike[str], found: dict[str, NDArray[Any]]) -> Distance:
    try:
        about = json.loads(str(found["about"]))
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']!r}")
        if about["kind"] not in get_args(Kind):
            raise ValueError(f"its kind is {about['kind']!r}")
        states, actions = found["rewards"].shape
        P = sparse.csr_array(
            (found["probabilities"], found["successors"], found["rows"]), (states * actions, states)
        )
        names, action_names = found.get("names"), found.get("actions")
        mdp = MDP(
            P,
            found["rewards"],
            about["discount"],
            names=None if names is None else tuple(names.tolist()),
            actions=None if action_names is None else tuple(action_names.tolist()),
            positions=found.get("positions"),
            features=found.get("features"),
            policy=found.get("world_policy"),
            available=found.get("available"),
        )
        values = found["values"]
        if values.dtype not in (np.float32, np.float64) or not np.isfinite(values).all():
            raise ValueError("its table holds something else than finite numbers")
        estimate = about.get("estimate")
        return Distance(
            values,
            float(about["error"]) if estimate is None else math.inf,
            about["kind"],
            mdp,
            found.get("policy"),
            about["made"],
            estimate,
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{path} is no distance file of bisimetric ({what}); make one with "
            "`bisimetric exact ... -o`."
        ) from None
