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
from bisimetric.errors import InputError, require_integer
from bisimetric.files import read_record, write_record
from bisimetric.mdp import MDP
from bisimetric.progress import show_progress
from bisimetric.uses.exploration.agents import AgentStep, QLearningConfig, run_q_learning
from bisimetric.uses.exploration.estimates import OnlineDistance
from bisimetric.uses.exploration.visits import CALLER, BonusRule
from bisimetric.uses.exploration.wrapping import bonus
from bisimetric.worlds.environments import import_optional

FORMAT = "bisimetric exploration, version 1"
NUM_POINTS = 100
"""Steps at which the curves are measured."""

BonusSource = Literal["none", "states", "distance", "own steps"]


@dataclasses.dataclass(frozen=True)
class ExplorationArm:
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

    source: BonusSource
    d: Any = None
    scale: float = 0.001
    initial_value: float = 0.1
    epsilon: float = 0.05
    radius: float | None = None
    rule: BonusRule = "counts"


@dataclasses.dataclass(frozen=True, eq=False)
class ExplorationComparison:
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
    first_goal: NDArray[np.float64]
    num_reachable: int
    metadata: dict[str, Any]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one .npz file; it appears whole or not at all."""
        fields = {name: getattr(self, name) for name in ("steps", "visited", "goals", "first")}
        about = {
            "format": FORMAT,
            "names": self.names,
            "reachable": self.num_reachable,
            "made": self.metadata,
        }
        write_record(path, about, fields)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ExplorationComparison:
        """Reads what `save` wrote."""

        def made(names: list[str], **found: Any) -> ExplorationComparison:
            return cls(tuple(names), **found)

        return read_record(path, FORMAT, made, "no exploration ({}); run it again.")


def compare(
    mdp: MDP,
    arms: Mapping[str, ExplorationArm],
    *,
    steps: int = 10_000,
    num_seeds: int = 3,
    start: int | str = 0,
    max_episode_steps: int = 200,
    first_seed: int = 0,
) -> ExplorationComparison:
    """Lets an agent explore an MDP from one state, once an arm and key, and counts what it finds.

    The agent is tabular Q-learning, the same for all arms but for what the arm says. Episodes end
    where the MDP does, and after `max_episode_steps`. The same key gives the same run.

    >>> from bisimetric import worlds
    >>> mdp = worlds.load("mirrored-rooms")
    >>> found = compare(mdp, {"plain": Arm("none"), "counts": Arm("states")}, steps=300, keys=2)
    >>> found.visited.shape, found.reachable
    ((2, 2, 100), 31)
    """
    import_optional("gymnasium", CALLER)
    count, several = (
        require_integer(CALLER, "steps", steps, 1),
        require_integer(CALLER, "keys", num_seeds, 1),
    )
    if not arms:
        raise InputError(f"{CALLER}: there is nothing to compare; give at least one arm.")
    largest = float(mdp.R[mdp.action_mask].max())
    if largest <= 0:
        raise InputError(
            f"{CALLER}: the largest reward of this world is {largest:g}, so that there is nothing "
            "to find; take one with a reward above 0."
        )
    labels = relation.bisimulation(mdp)
    begin = mdp.state(start)
    there = csgraph.breadth_first_order(_adjacency(mdp), begin, return_predecessors=False)
    at = np.unique(np.linspace(0, count, min(NUM_POINTS, count) + 1).astype(np.int64)[1:])
    shape = (len(arms), several, len(at))
    visited, goals = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    first = np.full(shape[:2], np.inf)
    with show_progress(len(arms) * several, "runs") as progress:
        for (row, arm), column in itertools.product(enumerate(arms.values()), range(several)):
            run = run_arm(mdp, arm, begin, max_episode_steps, first_seed + column)
            taken = list(itertools.islice(run, count))
            paid = np.array([step.reward for step in taken]) >= largest
            visited[row, column] = _count_distinct(labels, begin, taken)[at - 1]
            goals[row, column] = np.cumsum(paid)[at - 1]
            if paid.any():
                first[row, column] = int(paid.argmax()) + 1
            progress.set_position(row * several + column + 1)
    made = {
        "arms": {name: _describe_arm(arm) for name, arm in arms.items()},
        "keys": several,
        "first_key": first_seed,
        "start": mdp.state_name(begin),
        "max_episode_steps": max_episode_steps,
        "discount": mdp.discount,
    }
    reachable = len(np.unique(labels[there]))
    return ExplorationComparison(tuple(arms), at, visited, goals, first, reachable, made)


def run_arm(
    mdp: MDP, arm: ExplorationArm, start: int, max_episode_steps: int, seed: int
) -> Iterator[AgentStep]:
    """The steps of one run, without end."""
    from bisimetric.uses.exploration.environments import MDPEnvironment

    unit = float(mdp.R[mdp.action_mask].max())
    learner = QLearningConfig(mdp.discount, unit * arm.initial_value, arm.epsilon)
    environment: Any = MDPEnvironment(mdp, start, max_episode_steps)
    if arm.source != "none":
        apart = 1 - np.eye(mdp.num_states, dtype=np.float32)
        d, radius = (arm.d, arm.radius) if arm.source == "distance" else (apart, 0.0)
        environment = bonus(environment, d, scale=unit * arm.scale, radius=radius, rule=arm.rule)
    walk = run_q_learning(environment, mdp.action_mask, learner, seed=seed)
    if arm.source != "own steps":
        return walk
    return OnlineDistance(mdp, environment, arm.radius).track(walk)


def _adjacency(mdp: MDP) -> Any:
    """(S, S), which states follow which."""
    from scipy import sparse

    source = np.repeat(np.arange(mdp.R.size), np.diff(mdp.P.indptr)) // mdp.num_actions
    shape = (mdp.num_states, mdp.num_states)
    return sparse.csr_array((np.ones(len(source)), (source, mdp.P.indices)), shape)


def _count_distinct(labels: NDArray[Any], start: int, steps: list[AgentStep]) -> NDArray[np.int64]:
    """How many different states were visited until each step."""
    met = labels[[start, *(step.successor for step in steps)]]
    _, firsts = np.unique(met, return_index=True)
    fresh = np.zeros(len(met), np.int64)
    fresh[firsts] = 1
    return np.cumsum(fresh)[1:]


def _describe_arm(arm: ExplorationArm) -> dict[str, Any]:
    told = {field.name: getattr(arm, field.name) for field in dataclasses.fields(arm)}
    told["d"] = None if arm.d is None else repr(arm.d)
    return told
