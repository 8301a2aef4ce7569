"""What a sampled table rises to, where that is cheap to know: the exact distance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bisimetric import exact
from bisimetric.cli.policies import append_terminal_action
from bisimetric.distance import Distance, Kind
from bisimetric.errors import InputError, NotConverged
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_REFERENCE_STATES = 512
"""A table of so many states, at most, is exact in about a second."""

REFERENCE_TOL = 1e-9


class Reference(NamedTuple):
    """The exact distance; `whole` where no state was left out, so that all of it can be met."""

    distance: Distance
    complete: bool

    def compute_largest_error(self, distance: Distance) -> tuple[float, int]:
        """The largest error of the determined entries, and how many pairs of states those are."""
        coverage = distance.coverage
        gaps = np.abs(self.distance.values - distance.values)
        if coverage is None:
            return float(gaps.max()), gaps.size
        return float(gaps[coverage.determined].max()), coverage.num_proven


def compute_reference(
    kind: Kind, source: MDP | Transitions, policy: NDArray[Any] | None, discount: float | None
) -> Reference | None:
    """The exact distance of the same kind, or None where it is not cheap or not known.

    For data it is that of `Transitions.to_mdp`: for d~ where all actions were seen, for d^pi under
    the policy, or what was done where there is none.
    """
    if (source.num_states or MAX_REFERENCE_STATES + 1) > MAX_REFERENCE_STATES:
        return None
    try:
        mdp, whole = _build_model(kind, source, discount)
        if kind == "bisimulation":
            return (
                Reference(exact.bisimulation(mdp, tol=REFERENCE_TOL), whole)
                if mdp.is_deterministic
                else None
            )
        done = mdp.action_mask.argmax(axis=1)
        followed = np.asarray(done) if policy is None else append_terminal_action(mdp, policy)
        if not mdp.apply_policy(followed).is_deterministic or _terminates_off_policy(
            source, policy
        ):
            return None
        return Reference(exact.on_policy(mdp, followed, tol=REFERENCE_TOL), whole)
    except NotConverged as error:
        partial = error.partial
        return Reference(partial, whole) if isinstance(partial, Distance) else None
    except InputError:
        # What is wrong with the source, `sampled` says itself.
        return None


def _build_model(kind: Kind, source: MDP | Transitions, discount: float | None) -> tuple[MDP, bool]:
    if isinstance(source, MDP):
        return source, True
    given = {} if discount is None else {"discount": discount}
    mdp = source.to_mdp(unseen="refuse" if kind == "bisimulation" else "lacking", **given)
    return mdp, len(np.unique(np.asarray(source.states))) == source.num_states


def _terminates_off_policy(source: MDP | Transitions, policy: NDArray[Any] | None) -> bool:
    """Whether episodes end in data, but never under the policy, whose table has no end then."""
    if isinstance(source, MDP) or policy is None:
        return False
    states = np.asarray(source.states)
    follows = source.actions == np.asarray(policy)[states]
    return source.terminal_state is not None and not source.terminated[follows].any()
