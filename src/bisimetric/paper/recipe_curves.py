"""How a network learned, seed by seed, and its file."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.files import UNREADABLE, archive, written_beside

FORMAT = "bisimetric recipe curves, version 1"


@dataclasses.dataclass(frozen=True, eq=False)
class Curves:
    """What was measured of one trial by one recipe, seed by seed.

    Attributes:
        trial, recipe: their names.
        steps: (n,), when.
        error, normalised, correlation: (seeds, n).
        largest: of the exact metric.
        made: how.
    """

    trial: str
    recipe: str
    steps: NDArray[np.int64]
    error: NDArray[np.float64]
    normalised: NDArray[np.float64]
    correlation: NDArray[np.float64]
    largest: float
    made: dict[str, Any]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one .npz file; it appears whole or not at all."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        about = {name: fields.pop(name) for name in ("trial", "recipe", "made", "largest")}
        words = np.array(json.dumps({"format": FORMAT, **about}))
        with written_beside(path) as beside, open(beside, "wb") as file:
            np.savez(file, allow_pickle=False, about=words, **fields)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Curves:
        """Reads what `save` wrote."""
        try:
            with archive(path) as opened:
                found: dict[str, Any] = {name: opened[name] for name in opened.files}
            about = json.loads(str(found.pop("about")))
            if about.pop("format") != FORMAT:
                raise ValueError("its format is another one")
            return cls(**about, **found)
        except (*UNREADABLE, TypeError) as error:
            raise InputError(
                f"{path} is cut short or holds no curves of a recipe ({error}); measure them again."
            ) from None
