"""Which states a page shows, and where: on their map, or as points whose distances follow d."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric import uses
from bisimetric.mdp import MDP
from bisimetric.views.layout import find_cells, find_goals, find_parts

NUM_PATCHES = 8
"""Where the sample of a large world starts to grow."""
MAX_METRIC_MDS = 400
"""Points up to this many are moved until their distances follow as well as they can."""
POINT_SPACING = 1 / 80
"""The share of the width of a picture within which points count as one spot, where there are many;
of few, which are drawn larger (`parts/places.js`), it is as wide as a point."""
GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))


def sample_states(mdp: MDP | None, num_states: int, max_states: int) -> NDArray[np.int64]:
    """At most so many states (m,), rising: all, or patches that are closed but for their rims.

    A patch grows from its first state by what can be reached, so that the paths of an
    explanation stay inside for as long as can be.

    >>> ring = MDP.deterministic([[1], [2], [3], [0]], [[0], [0], [0], [1]], discount=0.5)
    >>> sample(ring, 4, 4).tolist(), len(sample(ring, 4, 3))
    ([0, 1, 2, 3], 3)
    """
    if num_states <= max_states:
        return np.arange(num_states)
    spread = np.linspace(0, num_states - 1, max_states).round().astype(np.int64)
    if mdp is None:
        return np.unique(spread)
    inside = np.zeros(num_states, np.bool_)
    follows = sparse.csr_array(
        (
            np.ones(mdp.P.nnz),
            (
                np.repeat(np.arange(mdp.R.size), np.diff(mdp.P.indptr)) // mdp.num_actions,
                mdp.P.indices,
            ),
        ),
        shape=(num_states, num_states),
    )
    front = np.unique(spread[np.linspace(0, len(spread) - 1, NUM_PATCHES).round().astype(np.int64)])
    while len(front):
        front = front[: max_states - int(inside.sum())]
        inside[front] = True
        after = np.unique(follows[front].indices).astype(np.int64)
        front = after[~inside[after]]
    # Worlds that end soon leave room for more.
    rest = np.flatnonzero(~inside)
    room = max_states - int(inside.sum())
    if room:
        inside[rest[np.linspace(0, len(rest) - 1, room).round().astype(np.int64)]] = True
    return np.flatnonzero(inside)


def build_layout(
    mdp: MDP | None,
    distances: NDArray[np.floating],
    ids: NDArray[np.int64],
    known: NDArray[np.bool_],
) -> dict[str, Any]:
    """Where the states `ids` are drawn; `known` (m,) are those that a table says something of."""
    on_map = None if mdp is None else find_cells(mdp)
    found: dict[str, Any] = {"map": None, "points": None, "goals": [], "parts": []}
    if mdp is not None:
        entered = np.isin(ids, find_goals(mdp))
        found["goals"] = np.flatnonzero(entered).tolist()
    if mdp is None or on_map is None:
        found["points"], found["stress"] = _embed_states(distances, known)
        return found
    height, width = on_map.shape
    found["map"] = {
        "height": height,
        "width": width,
        "rows": on_map.rows[ids].tolist(),
        "columns": on_map.columns[ids].tolist(),
        "others": _list_unsampled_cells(on_map.rows, on_map.columns, ids),
    }
    for name, states in find_parts(mdp).items():
        rows, columns = on_map.rows[states], on_map.columns[states]
        middle = float(columns.min() + columns.max()) / 2
        found["parts"].append({"name": name, "row": int(rows.min()) - 1, "column": middle})
    return found


def _list_unsampled_cells(
    rows: NDArray[np.int64], columns: NDArray[np.int64], ids: NDArray[np.int64]
) -> list[list[int]]:
    """The cells of states that are not in the sample, which are no walls."""
    out = np.ones(len(rows), np.bool_)
    out[ids] = False
    return [list(cell) for cell in zip(rows[out].tolist(), columns[out].tolist(), strict=True)]


def _embed_states(
    distances: NDArray[np.floating], known: NDArray[np.bool_]
) -> tuple[list[list[float]], float]:
    """Points (m, 2), and their stress; those of unknown states lie below the others."""
    points = np.zeros((len(distances), 2))
    stress = 0.0
    if known.sum() > 1:
        inner = np.array(distances[np.ix_(known, known)], np.float64)
        # Of MICo, whose states are not at distance 0 of themselves, what is left above that.
        inner = np.maximum(inner - np.add.outer(inner.diagonal(), inner.diagonal()) / 2, 0.0)
        np.fill_diagonal(inner, 0.0)
        found = uses.embed(inner, method="metric" if len(inner) <= MAX_METRIC_MDS else "classical")
        points[known] = found.coordinates
        stress = 0.0 if math.isnan(found.stress) else found.stress
    wide = float(np.ptp(points, axis=0).max()) or 1.0
    points /= wide
    away = np.flatnonzero(~known)
    if len(away):
        points[away, 0] = np.linspace(-0.5, 0.5, len(away) + 2)[1:-1]
        points[away, 1] = float(points[:, 1].min()) - 0.1
    spot = max(POINT_SPACING, min(0.04, 0.3 / math.sqrt(len(points))) * 1.1)
    return spread_points(points, spot).round(5).tolist(), stress


def spread_points(points: NDArray[np.float64], spacing: float) -> NDArray[np.float64]:
    """Points (n, 2), those that lie on one spot set side by side, as seeds in a sunflower.

    >>> apart(np.zeros((2, 2)), 1.0).round(1).tolist()
    [[0.0, 0.0], [-0.7, 0.7]]
    """
    moved = points.copy()
    spots = np.unique(np.floor(points / spacing + 0.5), axis=0, return_inverse=True)[1].ravel()
    place = np.zeros(len(points))
    order = np.argsort(spots, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(spots[order]) > 0])
    place[order] = np.arange(len(points)) - np.repeat(starts, np.diff(np.r_[starts, len(points)]))
    far, turn = spacing * np.sqrt(place), place * GOLDEN_ANGLE
    moved[:, 0] += far * np.cos(turn)
    moved[:, 1] += far * np.sin(turn)
    return moved
