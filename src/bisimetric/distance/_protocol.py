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
        kind: "bisimulation", "on_policy", "lax", "mico", "reduced_mico" or "undiscounted".
        mdp: the MDP whose states are compared, or None where only observations are known.
        names: one name per state, or None.
        metadata: how the distance was computed.
    """

    @property
    def kind(self) -> Any:
        """The kind of the distance."""

    @property
    def mdp(self) -> MDP | None:
        """The MDP whose states are compared, or None."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """One name per state, or None."""

    @property
    def metadata(self) -> dict[str, Any]:
        """How the distance was computed."""

    def __call__(self, s: Any, t: Any) -> Any:
        """Return the distance between two states or observations."""

    def table(self, states: Any, others: Any = None) -> NDArray[Any]:
        """Return the distances from some states to others.

        Args:
            states: n states.
            others: m states; default: `states`.

        Returns:
            The (n, m) distances.
        """

    def nearest(self, s: Any, k: int = 5, *, names: bool = False) -> list[tuple[Any, float]]:
        """Return the nearest states and their distances, nearest first, without s itself.

        Args:
            s: a state.
            k: how many states to return, at most.
            names: return names of states instead of ids.

        Returns:
            Pairs of a state and its distance from s.
        """

    def to_distance(self) -> Distance:
        """Return the distances between all states of the MDP.

        Returns:
            A `Distance`.
        """

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the (S, S) matrix of distances between all states."""
