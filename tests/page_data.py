"""Read the data of a page."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_page_data(text: str) -> dict[str, Any]:
    """Return the data of a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def decode_distances(values: dict[str, Any], count: int) -> NDArray[np.float64]:
    """Decode a matrix that `encode_distances` encoded."""
    raw = np.frombuffer(base64.b64decode(values["data"]), np.uint8)
    if values["encoding"] == "float64":
        half = raw.view("<f8").astype(np.float64)
    else:
        half = raw.reshape(-1, 3) @ np.array([1.0, 2.0**8, 2.0**16]) * values["step"]
    table = np.zeros((count, count))
    table[np.tril_indices(count)] = half
    return np.maximum(table, table.T)
