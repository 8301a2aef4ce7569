"""Novelty bonus by a distance, as a wrapper of a Gymnasium environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bisimetric._optional import import_optional
from bisimetric.datasets.observations import StateOf
from bisimetric.errors import InputError
from bisimetric.uses.certificates import ListedDistance, is_network
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
    bonus_scale: float = 1.0,
    radius: float | None = None,
    rule: BonusRule = "counts",
    state_of: StateOf | None = None,
    merge_radius: float | None = None,
    max_observations: int = MAX_OBSERVATIONS,
    **make_options: Any,
) -> BonusWrapper:
    """Wrap a Gymnasium environment so that it pays reward + bonus_scale * bonus(next state).

    The bonus is 1 far from all visited states and decreases with visits to the state itself and to
    those near it by `d`; `VisitCounts` has the two rules.

    `d` must be known in advance, for the states of this environment: exact, from a model; sampled
    or learned, from other data. A distance of the agent's own steps can be substituted later, by
    `environment.visits = environment.visits.with_distance(better)`. A distance distinguishes states
    by their rewards: that of a model knows where the goal is, and that of steps with equal rewards
    is 0, so that no state is novel.

    `info["reward"]` is the environment's own reward and `info["bonus"]` the added bonus. Visits
    persist across episodes, in `environment.visits`. The wrapper can be pickled if the environment
    can. Rewards depend on the visits before, so that the same seed pays less the second time.

    Args:
        environment: a Gymnasium environment, or its id.
        d: a `Distance`, a matrix (S, S), or a `LearnedDistance`; where observations have no ids, a
            learned distance of observations, whose visits are kept in an `EpisodicMemory`.
        bonus_scale: the bonus of the first visit to a state far from all others.
        radius: the range of a visit; default: the median of all distances above 0. Required for a
            distance of observations.
        rule: "counts" or "nearest".
        state_of: a function of the environment and an observation that returns the id or name of a
            state of `d`. By default Discrete observations are ids, and MiniGrid environments, reset
            with one seed, have the state names of `worlds.enumerate_environment`.
        merge_radius: for a distance of observations, how near two are counted as one; default: a
            quarter of the radius.
        max_observations: the capacity of the `EpisodicMemory`.
        **make_options: passed to `gymnasium.make` with an id.

    Returns:
        A `gymnasium.Wrapper` with the attribute `visits`, a `VisitCounts` or `EpisodicMemory`.

    Raises:
        InputError: where the environment is vectorised, its states are not those of d, or an option
            is missing or out of range.

    >>> from bisimetric import exact, worlds
    >>> d = exact.bisimulation(worlds.load("FrozenLake-v1", is_slippery=False, discount=0.9))
    >>> lake = bonus("FrozenLake-v1", d, bonus_scale=0.1, is_slippery=False)
    >>> _ = lake.reset(seed=0)
    >>> _, reward, _, _, info = lake.step(1)
    >>> round(reward, 4), info["reward"], round(info["bonus"], 4)
    (0.0887, 0.0, 0.0887)
    """
    gymnasium = import_optional("gymnasium", CALLER, "worlds")
    bonus_scale = validate_nonnegative("bonus_scale", bonus_scale)
    wrapped, name = make_environment(environment, make_options, unwrap=False)
    if not isinstance(wrapped, gymnasium.Env):
        raise InputError(
            f"{name}: is not a single Gymnasium environment; for several, pass gymnasium.make_vec "
            "a wrapper that calls uses.bonus."
        )
    from bisimetric.uses.exploration.environments import BonusWrapper

    if is_network(d):
        points = d.points if isinstance(d, ListedDistance) else None
        lookup = (
            None if points is None else build_state_lookup(wrapped, name, d, len(points), state_of)
        )
        if lookup is not None:
            visits = VisitCounts.from_distance(d, radius=radius, rule=rule)
            return BonusWrapper(wrapped, visits, lookup, bonus_scale)
        if state_of is not None:
            raise InputError(
                f"{name}: state_of returns ids or names of states, and d is a distance of "
                "observations without states; omit state_of."
            )
        memory = EpisodicMemory.from_distance(
            d,
            radius=radius,
            rule=rule,
            merge_radius=merge_radius,
            max_observations=max_observations,
        )
        reader = ObservationArray(wrapped.observation_space, name)
        return BonusWrapper(wrapped, memory, reader, bonus_scale)
    visits = VisitCounts.from_distance(d, radius=radius, rule=rule)
    lookup = build_state_lookup(wrapped, name, d, len(visits.distances), state_of)
    if lookup is None:
        raise InputError(
            f"{name}: its observations are {wrapped.observation_space}, and d is a matrix of "
            "states; pass state_of to find them, or use a learned distance of observations."
        )
    return BonusWrapper(wrapped, visits, lookup, bonus_scale)
