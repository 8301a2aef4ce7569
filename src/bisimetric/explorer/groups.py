"""States in classes by how near they are, at every threshold of a slider, and what that loses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import uses
from bisimetric.explorer.packing import encode_array
from bisimetric.explorer.tables import PageDistance
from bisimetric.progress import ProgressBar
from bisimetric.uses.aggregation.linkage import compute_merges

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
