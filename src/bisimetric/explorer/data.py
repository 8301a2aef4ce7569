"""The data of a page: distances, accuracy, transitions, values, and classes by threshold."""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning, uses
from bisimetric._progress import ProgressBar
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.explorer.bundle import (
    encode_array,
    encode_bits,
    encode_distances,
    encode_lower_triangle,
)
from bisimetric.mdp import MDP
from bisimetric.uses.aggregation.clustering_algorithms import compute_merges
from bisimetric.uses.certificates import describe_mismatch
from bisimetric.views.layout import KIND_NAMES

MAX_TRANSITIONS = 200_000
"""Of all matrices of a page; with more of them, no path is explained."""
MAX_LISTED_STATES = 3
"""The largest number of missing states that are named."""
SYMBOLS = {
    "bisimulation": "d~",
    "on_policy": "d^π",
    "lax": "d_lax",
    "mico": "MICo",
    "reduced_mico": "reduced MICo",
    "undiscounted": "d_1",
}


@dataclasses.dataclass(frozen=True, eq=False)
class PageDistance:
    """One distance of a page.

    Attributes:
        label: its name.
        d: the distance, or None of a plain matrix.
        values: (S, S), validated.
        ids: (m,), its state for each state that is shown, -1 where it has none.
        file: that it was read from, or None.
    """

    label: str
    d: Distance | None
    values: NDArray[np.floating]
    ids: NDArray[np.int64]
    file: str | None = None

    @property
    def known(self) -> NDArray[np.bool_]:
        """(m,), whether the distances of a shown state are known."""
        found = self.ids >= 0
        if self.d is not None and self.d.coverage is not None:
            found = found & self.d.coverage.visited[self.ids]
        return found

    @property
    def is_complete(self) -> bool:
        """Whether all of the MDP is known, so that it can be solved."""
        if self.d is None or not self.d.has_successor.all():
            return False
        return self.d.coverage is None or self.d.coverage.complete

    def select_values(self) -> NDArray[np.floating]:
        """Return the distances (m, m) of the states that are shown, 0 where there are none."""
        inside = self.ids >= 0
        found = np.zeros((len(self.ids),) * 2, self.values.dtype)
        there = self.ids[inside]
        found[np.ix_(inside, inside)] = self.values[np.ix_(there, there)]
        return found


def match_states(
    first: PageDistance, d: Any, values: NDArray[np.floating], label: str
) -> NDArray[Any]:
    """Match the states of another distance to those of the first, (m,), -1 where there is none.

    They must have the same names in the same order; distances from recorded data, which may lack
    states or have their own terminal state, are matched by name.
    """
    mine = first.d
    if mine is None or not isinstance(d, Distance):
        if len(values) == len(first.values):
            return first.ids
        raise _mismatch_error(
            first, label, f"it has {len(values):,} states, and not {len(first.values):,}"
        )
    here = [mine.mdp.state_name(s) for s in range(mine.mdp.num_states)]
    there = [d.mdp.state_name(s) for s in range(d.mdp.num_states)]
    if here == there:
        return first.ids
    shared = len(set(here) & set(there))
    if (mine.coverage is None and d.coverage is None) or shared < 2:
        found = f"it has {len(there):,} states, and not {len(here):,}"
        if len(here) == len(there):
            at = next(s for s, (one, two) in enumerate(zip(here, there, strict=True)) if one != two)
            found = f"its state {at} is {there[at]!r}, and not {here[at]!r}"
        raise _mismatch_error(first, label, found)
    place = {name: s for s, name in enumerate(there)}
    return np.array([place.get(here[s], -1) for s in first.ids.tolist()], np.int64)


def _mismatch_error(first: PageDistance, label: str, reason: str) -> InputError:
    return InputError(
        f"explorer.render_page: {label} is of another MDP than {first.label}: {reason}; compare "
        "distances of one MDP."
    )


def describe_differences(first: PageDistance, other: PageDistance) -> list[str]:
    """Describe how the MDPs of two distances between the same states differ, in sentences."""
    if first.d is None or other.d is None:
        return []
    notes = []
    missing = first.ids[other.ids < 0]
    if len(missing):
        are = "state is" if len(missing) == 1 else "states are"
        names = ", ".join(first.d.mdp.state_name(s) for s in missing[:MAX_LISTED_STATES].tolist())
        more = ", ..." if len(missing) > MAX_LISTED_STATES else ""
        notes.append(f"{len(missing):,} {are} not in {other.label}: {names}{more}.")
    elif first.d.coverage is None and other.d.coverage is None:
        difference = describe_mismatch(first.d.mdp, other.d.mdp)
        if difference is not None:
            notes.append(f"The MDP of {other.label} differs: {difference}.")
    elif first.d.mdp.discount != other.d.mdp.discount:
        rates = f"{other.d.mdp.discount:g} and not {first.d.mdp.discount:g}"
        notes.append(f"The MDP of {other.label} differs: its discount is {rates}.")
    return notes


def build_distance_data(sheet: PageDistance, num_matrices: int) -> dict[str, Any]:
    """Build the data of one of `num_matrices` distances."""
    d, shown = sheet.d, sheet.select_values()
    data: dict[str, Any] = {
        "label": sheet.label,
        "kind": "matrix" if d is None else d.kind,
        "symbol": "d" if d is None else SYMBOLS[d.kind],
        "kindName": "distance" if d is None else KIND_NAMES[d.kind],
        "accuracy": _describe_accuracy(d),
        "error": _finite_or_none(math.inf if d is None else d.error),
        "values": encode_distances(shown, num_matrices),
        "unknown": np.flatnonzero(~sheet.known).tolist(),
        "determined": None,
        "V": None,
        "transitions": None,
        "command": None,
    }
    if d is None:
        data["noTransitions"] = "A matrix without an MDP has no transitions to explain it."
        data["noValues"] = "A matrix without an MDP has no values to compare with."
        return data
    if d.coverage is not None and not d.coverage.complete:
        states = np.where(sheet.ids < 0, 0, sheet.ids)
        data["determined"] = encode_lower_triangle(d.coverage.determined[np.ix_(states, states)])
        data["pairError"] = _finite_or_none(d.coverage.error)
    data |= _build_values(sheet) | _build_transitions(sheet, d, num_matrices)
    if sheet.file is not None and d.bounds_values:
        data["command"] = {"file": sheet.file, "states": _list_arguments(d.mdp, sheet.ids)}
    return data


def _list_arguments(mdp: MDP, ids: NDArray[np.int64]) -> list[str | None]:
    """List what commands call the states: names or, where these mislead, ids; None for neither."""
    first = {} if mdp.names is None else {mdp.names[s]: s for s in reversed(range(mdp.num_states))}

    def choose_argument(s: int) -> str | None:
        if s < 0:
            return None
        for text in (mdp.state_name(s), str(s)):
            is_text = text.strip() and text.isprintable() and not text.startswith("-")
            if is_text and first.get(text, s) == s:
                return text
        return None

    return [choose_argument(s) for s in ids.tolist()]


def _finite_or_none(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _describe_accuracy(d: Distance | None) -> str:
    """Describe what is proven about the error of a distance."""
    if d is None:
        return "its error is unknown"
    if d.coverage is not None and not d.coverage.complete:
        pairs = f"{d.coverage.num_proven:,} of {d.coverage.num_state_pairs:,} pairs"
        to = f" to {d.coverage.error:.2g}" if d.coverage.num_proven else ""
        return f"{pairs} proven{to}, the others are lower bounds"
    if d.estimate is not None:
        return f"an estimate, off by about {d.estimate:.2g}"
    if math.isinf(d.error):
        return "nothing is proven"
    if d.error < sys.float_info.min:
        return "proven, exact"
    return f"proven to {d.error:.2g}"


def _build_values(sheet: PageDistance) -> dict[str, Any]:
    """Return V of the states that are shown: V^pi for a distance of a policy, else V*."""
    d = sheet.d
    name = "V^π" if d is not None and d.policy is not None else "V*"
    if d is None or not sheet.is_complete:
        return {
            "noValues": "Not all transitions of this MDP were observed, so its values are unknown."
        }
    if d.kind == "reduced_mico":
        return {"noValues": "Reduced MICo does not bound differences of values."}
    if d.kind == "undiscounted":
        return {"noValues": "Undiscounted distances do not bound differences of values."}
    if d.policy is not None:
        V = planning.policy_values(d.mdp, d.policy, tol=math.inf)
    else:
        V = planning.optimal_values(d.mdp, tol=math.inf)
    inside = np.where(sheet.ids < 0, 0, sheet.ids)
    return {
        "V": {"name": name, "error": V.error, "data": encode_array(V.values[inside], "float64")}
    }


def _build_transitions(sheet: PageDistance, d: Distance, num_matrices: int) -> dict[str, Any]:
    """Return the transitions from the states that are shown, as an explanation follows them."""
    if not d.has_successor.all():
        return {
            "noTransitions": "Some recorded steps have no successor in the matrix; `bisimetric "
            "explain` explains a pair."
        }
    if d.kind == "reduced_mico":
        return {"noTransitions": "Reduced MICo has no steps of its own; explain MICo."}
    if d.kind == "undiscounted":
        return {"noTransitions": "Undiscounted distances are no sums over steps."}
    if "gap" in d.metadata:
        return {"noTransitions": "The distance has a gap of its own; steps show rewards."}
    if d.mdp.has_labels or d.mdp.choice_labels is not None:
        return {"noTransitions": "The MDP has labels; `bisimetric explain` explains a pair."}
    if d.mdp.ground_distance is not None:
        return {"noTransitions": "The MDP has observations; `bisimetric explain` explains a pair."}
    dynamics = d.mdp
    if d.policy is not None:
        # A policy may take actions that were never observed; no transition is shown there.
        dynamics = (d.mdp if sheet.is_complete else d.mdp.replace(available=None)).apply_policy(
            d.policy
        )
    shown = np.flatnonzero(sheet.ids >= 0)
    index_of = np.full(d.mdp.num_states, -1, np.int64)
    index_of[sheet.ids[shown]] = shown
    num_actions = dynamics.num_actions
    states = np.where(sheet.ids < 0, 0, sheet.ids)
    rows = (states[:, None] * num_actions + np.arange(num_actions)).ravel()
    P = dynamics.normalised_probabilities[rows]
    if P.nnz * num_matrices > MAX_TRANSITIONS:
        return {
            "noTransitions": f"There are {P.nnz:,} transitions, too many for a page; `bisimetric "
            "explain` explains a pair."
        }
    known = None if d.coverage is None else encode_bits(d.coverage.known[states])
    policy_actions = None
    if d.policy is not None:
        policy = d.policy if d.policy.ndim == 1 else _select_deterministic(d.policy)
        policy_actions = policy[states].tolist()
    return {
        "transitions": {
            "discount": dynamics.discount,
            "actions": [d.mdp.action_name(a) for a in range(d.mdp.num_actions)],
            "numActions": num_actions,
            "deterministic": dynamics.is_deterministic,
            "R": encode_array(dynamics.R[states], "float64"),
            "rowStarts": encode_array(P.indptr, "int32"),
            "successors": encode_array(index_of[P.indices], "int32"),
            "probabilities": None if dynamics.is_deterministic else encode_array(P.data, "float64"),
            "available": None
            if dynamics.available is None
            else encode_bits(dynamics.available[states]),
            "known": known,
            "complete": sheet.is_complete,
            "policyActions": policy_actions,
        }
    }


def _select_deterministic(policy: NDArray[Any]) -> NDArray[np.int64]:
    """Return the action of each state, -1 where a policy mixes several."""
    found = np.where(np.count_nonzero(policy, axis=1) == 1, policy.argmax(axis=1), -1)
    return np.asarray(found, np.int64)


MAX_THRESHOLDS = 40
MAX_THRESHOLDS_LARGE = 20
"""For MDPs of more than `LARGE_NUM_STATES` states."""
LARGE_NUM_STATES = 600


def aggregate_at_thresholds(
    sheet: PageDistance, progress: ProgressBar, offset: int
) -> dict[str, Any]:
    """Aggregate by complete linkage at increasing thresholds: each class refines one of the next.

    A threshold is the largest distance between two states of a class. Regrets are null where
    they are unknown, and `regretNote` gives the reason.
    """
    states = np.flatnonzero(sheet.known)
    distances = sheet.select_values()[np.ix_(states, states)]
    all_states = sheet.d is not None and np.array_equal(sheet.ids, np.arange(len(sheet.values)))
    measured = all_states and sheet.is_complete and len(states) == len(sheet.ids)
    thresholds: list[dict[str, Any]] = []
    labels = []
    for index, radius in enumerate(choose_thresholds(distances)):
        classes_of_states = np.full(len(sheet.ids), 65_535)
        regret: float | None = None
        bound: float | None = None
        if measured and sheet.d is not None:
            aggregation = uses.aggregate(sheet.d.mdp, sheet.d, radius=radius, rule="complete")
            classes_of_states[states] = aggregation.labels
            regret = aggregation.regret
            bound = aggregation.regret_bound if math.isfinite(aggregation.regret_bound) else None
        elif len(states):
            classes_of_states[states] = uses.cluster(distances, radius=radius, rule="complete")
        labels.append(classes_of_states)
        num_classes = int(classes_of_states[states].max(initial=-1)) + 1
        thresholds.append(
            {
                "radius": radius,
                "numClasses": num_classes,
                "regretBound": bound,
                "regret": regret,
            }
        )
        progress.set_position(offset + (index + 1) / MAX_THRESHOLDS)
    regret_note = None
    if not measured:
        regret_note = "The regret is unknown: not all transitions of the MDP were observed."
        if sheet.d is None:
            regret_note = "A matrix without an MDP has no regret."
        elif not all_states:
            regret_note = "The regret needs all states: see `bisimetric uses aggregate`."
    elif thresholds[0]["regretBound"] is None:
        regret_note = "Nothing is proven about these distances, so there is no regret bound."
    return {
        "thresholds": thresholds,
        "labels": encode_array(np.stack(labels), "uint16"),
        "regretNote": regret_note,
        "valueName": "V^π" if sheet.d is not None and sheet.d.policy is not None else "V*",
        "diameterBound": None if sheet.d is None else float(sheet.d.mdp.diameter_bound),
    }


def choose_thresholds(distances: NDArray[np.floating]) -> list[float]:
    """Choose increasing radii from 0 to where all states are in one class, each with other classes.

    Of many, those whose numbers of classes have about equal ratios.

    >>> choose_thresholds(np.abs(np.subtract.outer([0.0, 1.0, 5.0], [0.0, 1.0, 5.0])))
    [0.0, 1.0, 5.0]
    """
    heights = np.sort(np.asarray(compute_merges(distances)[1], np.float64))
    radii = np.unique(np.r_[0.0, heights])
    max_thresholds = MAX_THRESHOLDS if len(distances) <= LARGE_NUM_STATES else MAX_THRESHOLDS_LARGE
    if len(radii) > max_thresholds:
        classes = len(distances) - np.searchsorted(heights, radii, side="right")
        targets = np.geomspace(classes[0], 1, max_thresholds)
        nearest = np.abs(np.log(classes)[:, None] - np.log(targets)[None, :]).argmin(axis=0)
        radii = radii[np.unique(np.r_[0, nearest, len(radii) - 1])]
    return [float(radius) for radius in radii]
