"""What a sampled table rises to, where that is cheap to know: the exact distance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bisimetric import exact
from bisimetric.cli.policies import with_end
from bisimetric.distance import Distance, Kind
from bisimetric.errors import InputError, NotConverged
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions

if TYPE_CHECKING:
    from numpy.typing import NDArray

STATES = 512
"""A table of so many states, at most, is exact in about a second."""

TOL = 1e-9


class Truth(NamedTuple):
    """The exact distance; `whole` where no state was left out, so that all of it can be met."""

    distance: Distance
    whole: bool

    def far(self, distance: Distance) -> tuple[float, int]:
        """The largest error of the determined entries, and how many pairs of states those are."""
        coverage = distance.coverage
        gaps = np.abs(self.distance.values - distance.values)
        if coverage is None:
            return float(gaps.max()), gaps.size
        return float(gaps[coverage.determined].max()), coverage.proven


def truth_of(
    kind: Kind, source: MDP | Transitions, policy: NDArray[Any] | None, discount: float | None
) -> Truth | None:
    """The exact distance of the same kind, or None where it is not cheap or not known.

    For data it is that of `Transitions.to_mdp`: for d~ where all actions were seen, for d^pi under
    the policy, or what was done where there is none.
    """
    if (source.num_states or STATES + 1) > STATES:
        return None
    try:
        mdp, whole = _model(kind, source, discount)
        if kind == "bisimulation":
            return Truth(exact.bisimulation(mdp, tol=TOL), whole) if mdp.is_deterministic else None
        done = mdp.has.argmax(axis=1)
        followed = np.asarray(done) if policy is None else with_end(mdp, policy)
        if not mdp.under(followed).is_deterministic or _ends_elsewhere(source, policy):
            return None
        return Truth(exact.on_policy(mdp, followed, tol=TOL), whole)
    except NotConverged as error:
        partial = error.partial
        return Truth(partial, whole) if isinstance(partial, Distance) else None
    except InputError:
        # What is wrong with the source, `sampled` says itself.
        return None


def _model(kind: Kind, source: MDP | Transitions, discount: float | None) -> tuple[MDP, bool]:
    if isinstance(source, MDP):
        return source, True
    given = {} if discount is None else {"discount": discount}
    mdp = source.to_mdp(unseen="refuse" if kind == "bisimulation" else "lacking", **given)
    return mdp, len(np.unique(np.asarray(source.states))) == source.num_states


def _ends_elsewhere(source: MDP | Transitions, policy: NDArray[Any] | None) -> bool:
    """Whether episodes end in data, but never under the policy, whose table has no end then."""
    if isinstance(source, MDP) or policy is None:
        return False
    states = np.asarray(source.states)
    follows = source.actions == np.asarray(policy)[states]
    return source.end is not None and not source.terminated[follows].any()
