"""Tables of distances as every use takes them: checked at the border, entry by entry."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.distance import Distance
from bisimetric.errors import InputError

TILE = 512
"""Rows and columns that are looked at together, so that a check needs no second table."""


def validate_distance_matrix(caller: str, d: Any) -> NDArray[np.floating]:
    """The table (n, n) of a `Distance`, of a `Learned` that knows its states, or an array.

    Its numbers are finite and at least 0, and it is symmetric up to half of their digits, which a
    network rounds away. What is wrong is said in the name of `where`, with the entry.

    >>> checked_table("uses.aggregate", [[0, 1], [1, 0]])
    array([[0., 1.],
           [1., 0.]])
    >>> checked_table("uses.aggregate", [[0, 1], [2, 0]])
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: uses.aggregate: the table has 1 at [0, 1] and 2 at [1, 0] and must
    be symmetric; take np.maximum(d, d.T).
    """
    given = getattr(d, "values", d)
    table = np.asarray(d if callable(given) else given)
    if table.dtype.kind in "biuf" and table.dtype not in (np.float32, np.float64):
        table = table.astype(np.float64)
    shape = table.shape
    if len(shape) != 2 or shape[0] != shape[1] or 0 in shape or table.dtype.kind != "f":
        raise InputError(
            f"{caller}: the table is {table.dtype} of shape {shape} and must be square, with a real "
            "number for each two states."
        )
    largest = _require_finite(caller, table)
    _require_symmetry(caller, table, largest * float(np.sqrt(np.finfo(table.dtype).eps)))
    return table


def validate_state_distances(caller: str, d: Any) -> NDArray[np.floating]:
    """The checked table of d, with 0 from a state to itself."""
    if not isinstance(d, Distance) and hasattr(d, "distance") and getattr(d, "kind", "") != "mico":
        # A network does not know that a state is at distance 0 of itself.
        d = np.array(d.values)
        np.fill_diagonal(d, 0.0)
    table = validate_distance_matrix(caller, d)
    itself = table.diagonal()
    if itself.any():
        s = int(np.argmax(itself > 0))
        raise InputError(
            f"{caller}: the table has {itself[s]:g} at [{s}, {s}] and a point is at distance 0 of "
            "itself; of a MICo distance U take U(s, t) - (U(s, s) + U(t, t)) / 2."
        )
    return table


def _require_finite(caller: str, distances: NDArray[np.floating]) -> float:
    """Refuses what is no distance; the largest that there is."""
    largest = 0.0
    for start in range(0, len(distances), TILE):
        rows = distances[start : start + TILE]
        good = np.isfinite(rows) & (rows >= 0)
        if not good.all():
            i, j = np.argwhere(~good)[0]
            raise InputError(
                f"{caller}: the table has {rows[i, j]:g} at [{start + i}, {j}] and distances must "
                "be finite and at least 0."
            )
        largest = max(largest, float(rows.max()))
    return largest


def _require_symmetry(caller: str, distances: NDArray[np.floating], tolerance: float) -> None:
    for top in range(0, len(distances), TILE):
        for left in range(0, top + 1, TILE):
            here = distances[left : left + TILE, top : top + TILE]
            there = distances[top : top + TILE, left : left + TILE].T
            apart = np.abs(here - there) > tolerance
            if apart.any():
                i, j = np.argwhere(apart)[0]
                raise InputError(
                    f"{caller}: the table has {here[i, j]:g} at [{left + i}, {top + j}] and "
                    f"{there[i, j]:g} at [{top + j}, {left + i}] and must be symmetric; take "
                    "np.maximum(d, d.T)."
                )
