"""Does a distance help to explore? One agent, several bonuses, several keys, one world."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csgraph

from bisimetric import relation
from bisimetric.errors import InputError, whole
from bisimetric.files import read_record, write_record
from bisimetric.mdp import MDP
from bisimetric.progress import bar
from bisimetric.uses.exploration.agents import Learner, Step, steps_of
from bisimetric.uses.exploration.estimates import Estimates
from bisimetric.uses.exploration.visits import WHERE, Rule
from bisimetric.uses.exploration.wrapping import explore
from bisimetric.worlds.environments import imported

FORMAT = "bisimetric exploration, version 1"
POINTS = 100
"""Steps at which the curves are measured."""

Source = Literal["none", "states", "distance", "own steps"]


@dataclasses.dataclass(frozen=True)
class Arm:
    """One way to explore.

    Attributes:
        source: what makes a state new: nothing; no visit to the state itself (plain counts); none
            near it by `d`; or none near it by the d~ of the agent's own steps so far.
        d: the distance, where it is known.
        scale: of the bonus, in units of the largest reward; and
        initial: of the agent, in the same units.
        epsilon: of the agent.
        radius, rule: of the bonus by a distance, as in `explore`.
    """

    source: Source
    d: Any = None
    scale: float = 0.001
    initial: float = 0.1
    epsilon: float = 0.05
    radius: float | None = None
    rule: Rule = "counts"


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """What agents saw and found, arm by arm and key by key.

    Attributes:
        names: of the arms.
        steps: (n,), when it was measured.
        visited: (arms, keys, n), different states visited; those that behave alike are one.
        goals: (arms, keys, n), how often the largest reward of the world was paid.
        first: (arms, keys), the step that paid it first; infinite where none did.
        reachable: how many different states there are to visit.
        made: how: the arms, the keys, the length of episodes.
    """

    names: tuple[str, ...]
    steps: NDArray[np.int64]
    visited: NDArray[np.int64]
    goals: NDArray[np.int64]
    first: NDArray[np.float64]
    reachable: int
    made: dict[str, Any]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one .npz file; it appears whole or not at all."""
        fields = {name: getattr(self, name) for name in ("steps", "visited", "goals", "first")}
        about = {
            "format": FORMAT,
            "names": self.names,
            "reachable": self.reachable,
            "made": self.made,
        }
        write_record(path, about, fields)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Comparison:
        """Reads what `save` wrote."""

        def made(names: list[str], **found: Any) -> Comparison:
            return cls(tuple(names), **found)

        return read_record(path, FORMAT, made, "no exploration ({}); run it again.")


def compare(
    mdp: MDP,
    arms: Mapping[str, Arm],
    *,
    steps: int = 10_000,
    keys: int = 3,
    start: int | str = 0,
    max_episode_steps: int = 200,
    first_key: int = 0,
) -> Comparison:
    """Lets an agent explore an MDP from one state, once an arm and key, and counts what it finds.

    The agent is tabular Q-learning, the same for all arms but for what the arm says. Episodes end
    where the MDP does, and after `max_episode_steps`. The same key gives the same run.

    >>> from bisimetric import worlds
    >>> mdp = worlds.load("mirrored-rooms")
    >>> found = compare(mdp, {"plain": Arm("none"), "counts": Arm("states")}, steps=300, keys=2)
    >>> found.visited.shape, found.reachable
    ((2, 2, 100), 31)
    """
    imported("gymnasium", WHERE)
    count, several = whole(WHERE, "steps", steps, 1), whole(WHERE, "keys", keys, 1)
    if not arms:
        raise InputError(f"{WHERE}: there is nothing to compare; give at least one arm.")
    largest = float(mdp.R[mdp.has].max())
    if largest <= 0:
        raise InputError(
            f"{WHERE}: the largest reward of this world is {largest:g}, so that there is nothing "
            "to find; take one with a reward above 0."
        )
    labels = relation.bisimulation(mdp)
    begin = mdp.state(start)
    there = csgraph.breadth_first_order(_moves(mdp), begin, return_predecessors=False)
    at = np.unique(np.linspace(0, count, min(POINTS, count) + 1).astype(np.int64)[1:])
    shape = (len(arms), several, len(at))
    visited, goals = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    first = np.full(shape[:2], np.inf)
    with bar(len(arms) * several, "runs") as progress:
        for (row, arm), column in itertools.product(enumerate(arms.values()), range(several)):
            run = steps_of_arm(mdp, arm, begin, max_episode_steps, first_key + column)
            taken = list(itertools.islice(run, count))
            paid = np.array([step.reward for step in taken]) >= largest
            visited[row, column] = _different(labels, begin, taken)[at - 1]
            goals[row, column] = np.cumsum(paid)[at - 1]
            if paid.any():
                first[row, column] = int(paid.argmax()) + 1
            progress.at(row * several + column + 1)
    made = {
        "arms": {name: _told(arm) for name, arm in arms.items()},
        "keys": several,
        "first_key": first_key,
        "start": mdp.name(begin),
        "max_episode_steps": max_episode_steps,
        "discount": mdp.discount,
    }
    reachable = len(np.unique(labels[there]))
    return Comparison(tuple(arms), at, visited, goals, first, reachable, made)


def steps_of_arm(
    mdp: MDP, arm: Arm, start: int, max_episode_steps: int, key: int
) -> Iterator[Step]:
    """The steps of one run, without end."""
    from bisimetric.uses.exploration.environments import Environment

    unit = float(mdp.R[mdp.has].max())
    learner = Learner(mdp.discount, unit * arm.initial, arm.epsilon)
    environment: Any = Environment(mdp, start, max_episode_steps)
    if arm.source != "none":
        apart = 1 - np.eye(mdp.num_states, dtype=np.float32)
        d, radius = (arm.d, arm.radius) if arm.source == "distance" else (apart, 0.0)
        environment = explore(environment, d, scale=unit * arm.scale, radius=radius, rule=arm.rule)
    walk = steps_of(environment, mdp.has, learner, key=key)
    if arm.source != "own steps":
        return walk
    return Estimates(mdp, environment, arm.radius).watched(walk)


def _moves(mdp: MDP) -> Any:
    """(S, S), which states follow which."""
    from scipy import sparse

    source = np.repeat(np.arange(mdp.R.size), np.diff(mdp.P.indptr)) // mdp.num_actions
    shape = (mdp.num_states, mdp.num_states)
    return sparse.csr_array((np.ones(len(source)), (source, mdp.P.indices)), shape)


def _different(labels: NDArray[Any], start: int, taken: list[Step]) -> NDArray[np.int64]:
    """How many different states were visited until each step."""
    met = labels[[start, *(step.successor for step in taken)]]
    _, firsts = np.unique(met, return_index=True)
    fresh = np.zeros(len(met), np.int64)
    fresh[firsts] = 1
    return np.cumsum(fresh)[1:]


def _told(arm: Arm) -> dict[str, Any]:
    told = {field.name: getattr(arm, field.name) for field in dataclasses.fields(arm)}
    told["d"] = None if arm.d is None else repr(arm.d)
    return told
