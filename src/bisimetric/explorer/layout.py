"""Select the states that a page shows and place them: on their map, or as embedded points."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric import uses
from bisimetric.mdp import MDP
from bisimetric.views.landmarks import find_holes, find_stands, find_walls
from bisimetric.views.layout import Cells, find_cells, find_goals, find_parts
from bisimetric.worlds.minigrid_states import DIRECTION_OFFSETS, DIRECTIONS

NUM_PATCHES = 8
"""The sample of a large MDP grows from so many states."""
MAX_METRIC_MDS = 400
"""The largest number of points for metric MDS; more are embedded by classical MDS."""
POINT_SPACING = 1 / 80
"""The fraction of the width within which points coincide, if there are many of them; of few, which
are drawn larger (`parts/state_layout.js`), it is the size of a point."""
GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))
HEADING_NAME = re.compile(rf"\d+,\d+ ({'|'.join(DIRECTIONS)})\b.*")


def sample_states(mdp: MDP | None, num_states: int, max_states: int) -> NDArray[np.int64]:
    """Select at most `max_states` states (m,), increasing: all, or patches of connected states.

    A patch grows from its first state along transitions, so that the paths of an explanation stay
    inside as long as possible.

    >>> ring = MDP.deterministic([[1], [2], [3], [0]], [[0], [0], [0], [1]], discount=0.5)
    >>> sample_states(ring, 4, 4).tolist(), len(sample_states(ring, 4, 3))
    ([0, 1, 2, 3], 3)
    """
    if num_states <= max_states:
        return np.arange(num_states)
    spread = np.linspace(0, num_states - 1, max_states).round().astype(np.int64)
    if mdp is None:
        return np.unique(spread)
    selected = np.zeros(num_states, np.bool_)
    adjacency = sparse.csr_array(
        (
            np.ones(mdp.P.nnz),
            (
                np.repeat(np.arange(mdp.R.size), np.diff(mdp.P.indptr)) // mdp.num_actions,
                mdp.P.indices,
            ),
        ),
        shape=(num_states, num_states),
    )
    frontier = np.unique(
        spread[np.linspace(0, len(spread) - 1, NUM_PATCHES).round().astype(np.int64)]
    )
    while len(frontier):
        frontier = frontier[: max_states - int(selected.sum())]
        selected[frontier] = True
        successors = np.unique(adjacency[frontier].indices).astype(np.int64)
        frontier = successors[~selected[successors]]
    # Few states are reachable: fill the sample with others.
    rest = np.flatnonzero(~selected)
    num_missing = max_states - int(selected.sum())
    if num_missing:
        selected[rest[np.linspace(0, len(rest) - 1, num_missing).round().astype(np.int64)]] = True
    return np.flatnonzero(selected)


def build_layout(
    mdp: MDP | None,
    distances: NDArray[np.floating],
    ids: NDArray[np.int64],
    known: NDArray[np.bool_],
) -> dict[str, Any]:
    """Place the states `ids`; `known` (m,) marks those with known distances."""
    cells = None if mdp is None else find_cells(mdp)
    placed: dict[str, Any] = {"map": None, "points": None, "goals": [], "holes": [], "parts": []}
    if mdp is not None:
        placed["goals"] = np.flatnonzero(np.isin(ids, find_goals(mdp))).tolist()
        placed["holes"] = np.flatnonzero(np.isin(ids, find_holes(mdp))).tolist()
    if mdp is None or cells is None:
        placed["points"], placed["stress"] = _embed_states(distances, known)
        return placed
    height, width = cells.shape
    placed["map"] = {
        "height": height,
        "width": width,
        "rows": cells.rows[ids].tolist(),
        "columns": cells.columns[ids].tolist(),
        "unsampledCells": _list_unsampled_cells(cells.rows, cells.columns, ids),
        **_build_landmarks(mdp, cells, ids),
    }
    for name, states in find_parts(mdp).items():
        rows, columns = cells.rows[states], cells.columns[states]
        middle = float(columns.min() + columns.max()) / 2
        placed["parts"].append({"name": name, "row": int(rows.min()) - 1, "column": middle})
    return placed


def _build_landmarks(mdp: MDP, cells: Cells, ids: NDArray[np.int64]) -> dict[str, Any]:
    """Return walls between cells, Taxi's stands, and MiniGrid's headings and places.

    A place is the upper left one of the four cells of a position, one per heading.
    """
    top, left = cells.corner
    walls = find_walls(mdp, cells) - [left - 0.5, top - 0.5]
    stands = find_stands(mdp)
    parsed = [HEADING_NAME.fullmatch(mdp.state_name(s)) for s in ids.tolist()]
    headings = [None if found is None else found[1] for found in parsed]
    places = set()
    for state, heading in zip(ids.tolist(), headings, strict=True):
        if heading is not None:
            row, column = DIRECTION_OFFSETS[DIRECTIONS.index(heading)]
            places.add((int(cells.rows[state]) - row, int(cells.columns[state]) - column))
    return {
        "walls": walls.reshape(-1, 4).tolist(),
        "stands": [[i, stands[s]] for i, s in enumerate(ids.tolist()) if s in stands],
        "headings": headings if places else [],
        "places": sorted(places),
    }


def _list_unsampled_cells(
    rows: NDArray[np.int64], columns: NDArray[np.int64], ids: NDArray[np.int64]
) -> list[list[int]]:
    """List the cells of states that are not in the sample, which are not walls."""
    out = np.ones(len(rows), np.bool_)
    out[ids] = False
    return [list(cell) for cell in zip(rows[out].tolist(), columns[out].tolist(), strict=True)]


def _embed_states(
    distances: NDArray[np.floating], known: NDArray[np.bool_]
) -> tuple[list[list[float]], float]:
    """Return points (m, 2) and their stress; unknown states are placed below the others."""
    points = np.zeros((len(distances), 2))
    stress = 0.0
    if known.sum() > 1:
        known_distances = np.array(distances[np.ix_(known, known)], np.float64)
        # MICo: subtract the mean self-distance, which is not 0.
        known_distances = np.maximum(
            known_distances
            - np.add.outer(known_distances.diagonal(), known_distances.diagonal()) / 2,
            0.0,
        )
        np.fill_diagonal(known_distances, 0.0)
        embedding = uses.embed(
            known_distances,
            method="metric" if len(known_distances) <= MAX_METRIC_MDS else "classical",
        )
        points[known] = embedding.coordinates
        stress = 0.0 if math.isnan(embedding.stress) else embedding.stress
    width = float(np.ptp(points, axis=0).max()) or 1.0
    points /= width
    unknown = np.flatnonzero(~known)
    if len(unknown):
        points[unknown, 0] = np.linspace(-0.5, 0.5, len(unknown) + 2)[1:-1]
        points[unknown, 1] = float(points[:, 1].min()) - 0.1
    spacing = max(POINT_SPACING, min(0.04, 0.3 / math.sqrt(len(points))) * 1.1)
    return spread_points(points, spacing).round(5).tolist(), stress


def spread_points(points: NDArray[np.float64], spacing: float) -> NDArray[np.float64]:
    """Spread points (n, 2) that coincide side by side in a sunflower spiral.

    >>> spread_points(np.zeros((2, 2)), 1.0).round(1).tolist()
    [[0.0, 0.0], [-0.7, 0.7]]
    """
    moved = points.copy()
    groups = np.unique(np.floor(points / spacing + 0.5), axis=0, return_inverse=True)[1].ravel()
    rank = np.zeros(len(points))
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(groups[order]) > 0])
    rank[order] = np.arange(len(points)) - np.repeat(starts, np.diff(np.r_[starts, len(points)]))
    radius, angle = spacing * np.sqrt(rank), rank * GOLDEN_ANGLE
    moved[:, 0] += radius * np.cos(angle)
    moved[:, 1] += radius * np.sin(angle)
    return moved
