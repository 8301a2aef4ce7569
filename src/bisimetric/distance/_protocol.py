"""What exact, sampled and learned distances have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from numpy.typing import DTypeLike, NDArray

if TYPE_CHECKING:
    from bisimetric.distance import Distance
    from bisimetric.mdp import MDP


@runtime_checkable
class StateDistance(Protocol):
    """A distance between states: `Distance` (a matrix) or `learned.LearnedDistance` (a network).

    Attributes:
        kind: "bisimulation", "on_policy", "lax" or "mico".
        mdp: the MDP whose states are compared, or None where only observations are known.
        names: one name per state, or None.
        metadata: how the distance was computed.
    """

    @property
    def kind(self) -> Any: ...
    @property
    def mdp(self) -> MDP | None: ...
    @property
    def names(self) -> tuple[str, ...] | None: ...
    @property
    def metadata(self) -> dict[str, Any]: ...

    def __call__(self, s: Any, t: Any) -> Any:
        """Return the distance between two states or observations."""

    def table(self, states: Any, others: Any = None) -> NDArray[Any]:
        """Return the (n, m) distances from `states` to `others`; default: to `states`."""

    def nearest(self, s: Any, k: int = 5, *, names: bool = False) -> list[tuple[Any, float]]:
        """Return the k nearest states and their distances, nearest first, without s itself."""

    def to_distance(self) -> Distance:
        """Return the distances between all states of the MDP as a `Distance`."""

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the (S, S) matrix of distances between all states."""
