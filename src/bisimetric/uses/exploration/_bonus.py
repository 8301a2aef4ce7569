"""A bonus for what is new by a distance, paid by a wrapper of an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bisimetric._optional import import_optional
from bisimetric.datasets.observations import StateOf
from bisimetric.errors import InputError
from bisimetric.uses.exploration.state_lookup import ObservationArray, build_state_lookup
from bisimetric.uses.exploration.visit_counts import (
    CALLER,
    MAX_OBSERVATIONS,
    BonusRule,
    EpisodicMemory,
    VisitCounts,
    validate_nonnegative,
)
from bisimetric.worlds.gymnasium_envs import make_environment

if TYPE_CHECKING:
    from bisimetric.uses.exploration.environments import BonusWrapper


def bonus(
    environment: Any,
    d: Any,
    *,
    scale: float = 1.0,
    radius: float | None = None,
    rule: BonusRule = "counts",
    state_of: StateOf | None = None,
    merge_radius: float | None = None,
    max_observations: int = MAX_OBSERVATIONS,
    **make_options: Any,
) -> BonusWrapper:
    """A Gymnasium environment that pays for what is new: reward + scale * bonus(next state).

    The bonus is 1 far from all that was visited, and falls with visits to the state itself and to
    those near it in `d`; `Visits` has the two rules.

    This presumes that `d` is known before, of these very states: exact, from a model; sampled or
    learned, from other data. A distance of the agent's own steps so far can be brought in later, by
    `environment.visits = environment.visits.under(better)`. A distance tells states apart by their
    rewards, so that of a model knows where the goal is, and that of steps which all paid the same
    is 0: then no state is new.

    `info["reward"]` is the environment's own reward and `info["bonus"]` what was added. Visits last
    from episode to episode, as `environment.visits`. The wrapper pickles where the environment
    does. Rewards depend on what was visited before, so that the same seed pays less again.

    Args:
        environment: one, or its id, which `make_options` go with.
        d: a `Distance`, a table (S, S), or a `Learned`; that of observations where these have no
            ids, and those it was visited with are kept, see `Memory`.
        scale: what the first visit to a state far from all others pays.
        radius: how far away a visit counts; None means the median of all distances above 0.
            A distance of observations needs one.
        rule: "counts" or "nearest".
        state_of: of the environment and an observation to the id or name of a state of `d`, as in
            `datasets.rollout`. By default Discrete observations are ids, and MiniGrid's rooms,
            reset with one seed, have the names of `worlds.enumerate_environment`.
        apart: of a distance of observations, how near two are taken for one; None means a quarter
            of the radius.
        memory: how many observations are kept, at most.

    >>> from bisimetric import exact, worlds
    >>> d = exact.bisimulation(worlds.load("FrozenLake-v1", is_slippery=False, discount=0.9))
    >>> lake = explore("FrozenLake-v1", d, scale=0.1, is_slippery=False)
    >>> _ = lake.reset(seed=0)
    >>> _, reward, _, _, info = lake.step(1)
    >>> round(reward, 4), info["reward"], round(info["bonus"], 4)
    (0.0887, 0.0, 0.0887)
    """
    gymnasium = import_optional("gymnasium", CALLER, "worlds")
    amount = validate_nonnegative("scale", scale)
    found, where = make_environment(environment, make_options, unwrap=False)
    if not isinstance(found, gymnasium.Env):
        raise InputError(
            f"{where}: is several environments or none of Gymnasium's, and the bonus is for a "
            "single one; give gymnasium.make_vec a wrapper that calls uses.explore."
        )
    from bisimetric.uses.exploration.environments import BonusWrapper

    if callable(getattr(d, "table", None)):
        listed = getattr(d, "points", None)
        states = (
            None if listed is None else build_state_lookup(found, where, d, len(listed), state_of)
        )
        if states is None:
            if state_of is not None:
                raise InputError(
                    f"{where}: state_of finds states by id or name, and d was learned from "
                    "observations and knows none; leave state_of out."
                )
            kept = EpisodicMemory.from_distance(
                d,
                radius=radius,
                rule=rule,
                merge_radius=merge_radius,
                max_observations=max_observations,
            )
            return BonusWrapper(
                found, kept, ObservationArray(found.observation_space, where), amount
            )
        return BonusWrapper(
            found, VisitCounts.from_distance(d, radius=radius, rule=rule), states, amount
        )
    visits = VisitCounts.from_distance(d, radius=radius, rule=rule)
    states = build_state_lookup(found, where, d, len(visits.distances), state_of)
    if states is None:
        raise InputError(
            f"{where}: its observations are {found.observation_space}, and d is a table of states; "
            "give a state_of that finds them, or take a learned distance of observations."
        )
    return BonusWrapper(found, visits, states, amount)
