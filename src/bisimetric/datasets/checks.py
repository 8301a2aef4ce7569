"""What the makers of transitions share: counts that must be positive, and how they were made."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import bisimetric


def collect_metadata(details: dict[str, Any]) -> dict[str, Any]:
    """How transitions were made, as JSON has it, with the versions."""
    known = {name: value for name, value in details.items() if value is not None}
    versions = {"bisimetric": bisimetric.__version__, "numpy": np.__version__}
    spoken: dict[str, Any] = json.loads(json.dumps({**known, **versions}, default=repr))
    return spoken
