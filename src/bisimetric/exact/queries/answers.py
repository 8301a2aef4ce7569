"""Answer: the distances of a few pairs, with their proven error."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.successors import ImplicitMDP

QueryKind = Literal["bisimulation", "on_policy", "lax"]


@dataclasses.dataclass(frozen=True, eq=False)
class QueryResult:
    """The distances of the pairs that were asked for; `answer(s, t)` takes either order.

    Attributes:
        pairs: as they were given.
        values: (n,), one for each pair, read-only.
        error: a proven bound on the error of every value.
        kind: "bisimulation", "on_policy" or "lax".
        source: the MDP or the successor function whose states these are.
        explored: how many pairs were looked into on the way.
        made: how it was made: method, tolerance, depth, pairs, seconds, versions.
    """

    pairs: tuple[tuple[Any, Any], ...]
    values: NDArray[np.float64]
    error: float
    kind: QueryKind
    source: MDP | ImplicitMDP
    num_explored: int
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)
    _indices: dict[tuple[Hashable, Hashable], int] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.values.flags.writeable = False
        places: dict[tuple[Hashable, Hashable], int] = {}
        for i, (s, t) in enumerate(self.pairs):
            places[self._state(s), self._state(t)] = places[self._state(t), self._state(s)] = i
        object.__setattr__(self, "_places", places)

    def __call__(self, s: Any, t: Any) -> float:
        place = self._indices.get((self._state(s), self._state(t)))
        if place is None:
            raise InputError(
                f"answer: the pair ({s!r}, {t!r}) was not asked for; ask for it with pairs=[...]."
            )
        return float(self.values[place])

    def _state(self, which: Any) -> Hashable:
        """What tells states apart: the id in an MDP, else the state itself."""
        return self.source.state(which) if isinstance(self.source, MDP) else which

    def __repr__(self) -> str:
        count = "1 pair" if len(self.pairs) == 1 else f"{len(self.pairs)} pairs"
        return (
            f"Answer({self.kind}, {count}, largest {self.values.max():.6g}, "
            f"error <= {self.error:.2g}, {self.num_explored:,} explored)"
        )
