"""What a page knows of one table: its numbers, what they prove, its steps and its values.

States in classes by how near they are, at every threshold of a slider, and what that loses.
"""

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
from bisimetric.explorer.encoding import (
    encode_array,
    encode_bits,
    encode_distances,
    encode_lower_triangle,
)
from bisimetric.uses.aggregation.clustering_algorithms import compute_merges
from bisimetric.uses.certificates import describe_mismatch
from bisimetric.views.layout import KIND_NAMES

MAX_TRANSITIONS = 200_000
"""Of all tables of a page: more are not carried, and nothing is explained."""
MAX_LISTED_STATES = 3
"""States that a table lacks, up to which they are named."""
SYMBOLS = {"bisimulation": "d~", "on_policy": "d^π", "lax": "d_lax", "mico": "MICo"}


@dataclasses.dataclass(frozen=True, eq=False)
class PageDistance:
    """One table of a page.

    Attributes:
        label: what to call it.
        d: the distance, or None of a plain table.
        values: (S, S), checked.
        ids: (m,), the state of this table for each state that is shown, -1 where it has none.
    """

    label: str
    d: Distance | None
    values: NDArray[np.floating]
    ids: NDArray[np.int64]

    @property
    def known(self) -> NDArray[np.bool_]:
        """(m,), whether the table says something of a state that is shown."""
        found = self.ids >= 0
        if self.d is not None and self.d.coverage is not None:
            found = found & self.d.coverage.visited[self.ids]
        return found

    @property
    def is_complete(self) -> bool:
        """Whether all of the MDP is known, and can be solved."""
        return self.d is not None and (self.d.coverage is None or self.d.coverage.complete)

    def select_values(self) -> NDArray[np.floating]:
        """The distances (m, m) of the states that are shown, 0 where there are none."""
        inside = self.ids >= 0
        found = np.zeros((len(self.ids),) * 2, self.values.dtype)
        there = self.ids[inside]
        found[np.ix_(inside, inside)] = self.values[np.ix_(there, there)]
        return found


def match_states(
    first: PageDistance, d: Any, values: NDArray[np.floating], label: str
) -> NDArray[Any]:
    """The states of another table that are those of the first, (m,), -1 where it has none.

    They must have the same names in the same order; of a table from experience, which may lack
    states or know an end of its own, those with the same names are taken.
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
        f"explorer.page: {label} is of another world than {first.label}: {reason}; compare two "
        "tables of one world."
    )


def describe_differences(first: PageDistance, other: PageDistance) -> list[str]:
    """How the worlds of two tables with the same states differ, in sentences."""
    if first.d is None or other.d is None:
        return []
    found = []
    lacking = first.ids[other.ids < 0]
    if len(lacking):
        are = "state is" if len(lacking) == 1 else "states are"
        some = ", ".join(first.d.mdp.state_name(s) for s in lacking[:MAX_LISTED_STATES].tolist())
        more = ", ..." if len(lacking) > MAX_LISTED_STATES else ""
        found.append(f"{len(lacking):,} {are} not in {other.label}: {some}{more}.")
    elif first.d.coverage is None and other.d.coverage is None:
        words = describe_mismatch(first.d.mdp, other.d.mdp)
        if words is not None:
            found.append(f"The world of {other.label} is another one: {words}.")
    elif first.d.mdp.discount != other.d.mdp.discount:
        rates = f"{other.d.mdp.discount:g} and not {first.d.mdp.discount:g}"
        found.append(f"The world of {other.label} is another one: its discount is {rates}.")
    return found


def build_distance_data(sheet: PageDistance, num_matrices: int) -> dict[str, Any]:
    """All that a page carries of a table, as one of so many."""
    d, shown = sheet.d, sheet.select_values()
    found: dict[str, Any] = {
        "label": sheet.label,
        "kind": "table" if d is None else d.kind,
        "symbol": "d" if d is None else SYMBOLS[d.kind],
        "words": "distance" if d is None else KIND_NAMES[d.kind],
        "sure": _describe_accuracy(d),
        "error": _finite_or_none(math.inf if d is None else d.error),
        "values": encode_distances(shown, num_matrices),
        "unknown": np.flatnonzero(~sheet.known).tolist(),
        "determined": None,
        "V": None,
        "steps": None,
    }
    if d is None:
        found["noSteps"] = "A table without a world has no steps to show."
        found["noValues"] = "A table without a world has no values to compare with."
        return found
    if d.coverage is not None and not d.coverage.complete:
        there = np.where(sheet.ids < 0, 0, sheet.ids)
        found["determined"] = encode_lower_triangle(d.coverage.determined[np.ix_(there, there)])
        found["pairError"] = _finite_or_none(d.coverage.error)
    found |= _build_values(sheet) | _build_steps(sheet, d, num_matrices)
    return found


def _finite_or_none(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _describe_accuracy(d: Distance | None) -> str:
    """What is known of the error of a table, in a few words."""
    if d is None:
        return "nothing is known of its error"
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
    """V of the states that are shown: V^pi for a distance of a policy, else V*."""
    d = sheet.d
    name = "V^π" if d is not None and d.policy is not None else "V*"
    if d is None or not sheet.is_complete:
        return {"noValues": "Not all steps of this world were seen, so its values are not known."}
    if d.policy is not None:
        V = planning.policy_values(d.mdp, d.policy, tol=math.inf)
    else:
        V = planning.optimal_values(d.mdp, tol=math.inf)
    inside = np.where(sheet.ids < 0, 0, sheet.ids)
    return {
        "V": {"name": name, "error": V.error, "data": encode_array(V.values[inside], "float64")}
    }


def _build_steps(sheet: PageDistance, d: Distance, num_matrices: int) -> dict[str, Any]:
    """The steps from the states that are shown, as an explanation follows them."""
    dynamics = d.mdp
    if d.policy is not None:
        # A policy may take actions that were never seen; no step is taken there.
        dynamics = (d.mdp if sheet.is_complete else d.mdp.replace(available=None)).apply_policy(
            d.policy
        )
    inside = np.flatnonzero(sheet.ids >= 0)
    place = np.full(d.mdp.num_states, -1, np.int64)
    place[sheet.ids[inside]] = inside
    count = dynamics.num_actions
    there = np.where(sheet.ids < 0, 0, sheet.ids)
    rows = (there[:, None] * count + np.arange(count)).ravel()
    P = dynamics.normalised_probabilities[rows]
    if P.nnz * num_matrices > MAX_TRANSITIONS:
        return {
            "noSteps": f"There are {P.nnz:,} transitions, too many for a page; ask `bisimetric "
            "explain` for the reasons of a pair."
        }
    known = None if d.coverage is None else encode_bits(d.coverage.known[there])
    played = None
    if d.policy is not None:
        mixed = d.policy if d.policy.ndim == 1 else _select_deterministic(d.policy)
        played = mixed[there].tolist()
    return {
        "steps": {
            "discount": dynamics.discount,
            "actions": [d.mdp.action_name(a) for a in range(d.mdp.num_actions)],
            "count": count,
            "deterministic": dynamics.is_deterministic,
            "R": encode_array(dynamics.R[there], "float64"),
            "rows": encode_array(P.indptr, "int32"),
            "successors": encode_array(place[P.indices], "int32"),
            "probabilities": None if dynamics.is_deterministic else encode_array(P.data, "float64"),
            "available": None
            if dynamics.available is None
            else encode_bits(dynamics.available[there]),
            "known": known,
            "complete": sheet.is_complete,
            "played": played,
        }
    }


def _select_deterministic(policy: NDArray[Any]) -> NDArray[np.int64]:
    """The action of each state, -1 where a policy mixes several."""
    found = np.where(np.count_nonzero(policy, axis=1) == 1, policy.argmax(axis=1), -1)
    return np.asarray(found, np.int64)


MAX_THRESHOLDS = 40
MAX_THRESHOLDS_LARGE = 20
"""Thresholds of a slider, for worlds of more than `LARGE` states."""
LARGE_NUM_STATES = 600


def aggregate_at_thresholds(
    sheet: PageDistance, progress: ProgressBar, offset: int
) -> dict[str, Any]:
    """Classes by complete linkage, finest first: every class is a part of one of the next.

    A threshold is the largest distance that two states of a class may have. Losses are null
    where they are not known, and `unsaid` says why.
    """
    states = np.flatnonzero(sheet.known)
    table = sheet.select_values()[np.ix_(states, states)]
    everyone = sheet.d is not None and np.array_equal(sheet.ids, np.arange(len(sheet.values)))
    measured = everyone and sheet.is_complete and len(states) == len(sheet.ids)
    found = []
    labels = []
    for done, radius in enumerate(choose_thresholds(table)):
        placed = np.full(len(sheet.ids), 65_535)
        loss: float | None = None
        promised: float | None = None
        if measured and sheet.d is not None:
            each = uses.aggregate(sheet.d.mdp, sheet.d, radius=radius, rule="complete")
            placed[states] = each.labels
            loss = each.regret
            promised = each.regret_bound if math.isfinite(each.regret_bound) else None
        elif len(states):
            placed[states] = uses.cluster(table, radius=radius, rule="complete")
        labels.append(placed)
        classes = int(placed[states].max(initial=-1)) + 1
        found.append({"radius": radius, "classes": classes, "promised": promised, "loss": loss})
        progress.set_position(offset + (done + 1) / MAX_THRESHOLDS)
    unsaid = None
    if not measured:
        unsaid = "Losses are measured where all steps of a world are known, and here they are not."
        if sheet.d is None:
            unsaid = "A table without a world has no values to lose."
        elif not everyone:
            unsaid = "Losses need all states, and here are some: see `bisimetric uses aggregate`."
    elif found[0]["promised"] is None:
        unsaid = "Nothing is proven of these distances, so nothing is promised."
    return {
        "steps": found,
        "labels": encode_array(np.stack(labels), "uint16"),
        "unsaid": unsaid,
        "of": "V^π" if sheet.d is not None and sheet.d.policy is not None else "V*",
        "most": None if sheet.d is None else float(sheet.d.mdp.diameter_bound),
    }


def choose_thresholds(distances: NDArray[np.floating]) -> list[float]:
    """Radii, rising, from 0 to where all states are in one class: each makes another grouping.

    Of many, those whose numbers of classes are about in equal ratios.

    >>> thresholds(np.abs(np.subtract.outer([0.0, 1.0, 5.0], [0.0, 1.0, 5.0])))
    [0.0, 1.0, 5.0]
    """
    heights = np.sort(np.asarray(compute_merges(distances)[1], np.float64))
    radii = np.unique(np.r_[0.0, heights])
    most = MAX_THRESHOLDS if len(distances) <= LARGE_NUM_STATES else MAX_THRESHOLDS_LARGE
    if len(radii) > most:
        classes = len(distances) - np.searchsorted(heights, radii, side="right")
        wanted = np.geomspace(classes[0], 1, most)
        nearest = np.abs(np.log(classes)[:, None] - np.log(wanted)[None, :]).argmin(axis=0)
        radii = radii[np.unique(np.r_[0, nearest, len(radii) - 1])]
    return [float(radius) for radius in radii]
