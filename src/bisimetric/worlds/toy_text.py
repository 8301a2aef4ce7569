"""Names, actions and positions for Gymnasium's toy-text environments."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

TAXI_LOCATIONS = ("R", "G", "Y", "B", "aboard")
TAXI_MAP_STRIDE = 6
"""Taxi's maps of 5 x 5 cells, side by side with a cell between them."""


def describe_toy_text(environment: Any, num_states: int) -> dict[str, Any]:
    """The names, actions and positions of a known environment, else nothing.

    "end" is a position for one more state, outside of the others.
    """
    known = {
        "FrozenLakeEnv": _describe_frozen_lake,
        "CliffWalkingEnv": _describe_cliff_walking,
        "TaxiEnv": _describe_taxi,
    }
    for each in type(environment).__mro__:
        if each.__name__ in known:
            described = known[each.__name__](environment)
            return described if len(described["names"]) == num_states else {}
    return {}


def _describe_frozen_lake(environment: Any) -> dict[str, Any]:
    actions = ("left", "down", "right", "up")
    return {**_describe_grid(environment.nrow, environment.ncol), "actions": actions}


def _describe_cliff_walking(environment: Any) -> dict[str, Any]:
    return {**_describe_grid(*environment.shape), "actions": ("up", "right", "down", "left")}


def _describe_grid(rows: int, columns: int) -> dict[str, Any]:
    positions = np.indices((rows, columns)).reshape(2, -1).T
    return {
        "names": [f"{row},{column}" for row, column in positions.tolist()],
        "positions": positions,
        "end": np.array([rows + 1, (columns - 1) // 2]),
    }


def _describe_taxi(environment: Any) -> dict[str, Any]:
    """One map of the taxi's 25 cells for each place of the passenger (downwards: R, G, Y, B,
    aboard) and each destination (across: R, G, Y, B)."""
    decoded: NDArray[np.int64] = np.array([environment.decode(s) for s in range(500)])
    row, column, passenger, destination = decoded.T
    return {
        "names": [
            f"taxi {r},{c} passenger {TAXI_LOCATIONS[p]} to {TAXI_LOCATIONS[d]}"
            for r, c, p, d in decoded
        ],
        "actions": ("south", "north", "east", "west", "pick up", "drop off"),
        "positions": np.stack(
            [passenger * TAXI_MAP_STRIDE + row, destination * TAXI_MAP_STRIDE + column], axis=1
        ),
        "end": np.array([5 * TAXI_MAP_STRIDE, 0]),
    }
