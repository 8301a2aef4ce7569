"""A tabular agent: Q-learning, with initial values that may be optimistic.

The d~ of an agent's own steps, estimated again while it explores.

Does a distance help to explore? One agent, several bonuses, several keys, one world.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csgraph

from bisimetric import exact, relation
from bisimetric._io import read_record, write_record
from bisimetric._optional import import_optional
from bisimetric._progress import show_progress
from bisimetric.errors import InputError, require_integer
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions
from bisimetric.uses.exploration._bonus import bonus
from bisimetric.uses.exploration.visit_counts import CALLER, BonusRule

RANDOM_BLOCK = 4096
"""Random numbers that are drawn together."""


@dataclasses.dataclass(frozen=True)
class QLearningConfig:
    """Q(s, a) += rate * (reward + discount max_b Q(t, b) - Q(s, a)), and epsilon-greedy actions.

    `initial` is Q of what was never done. A bonus makes the known look better than it is, and only
    where the unknown looks better still does the agent try it: with 0 it stays where it is.
    """

    discount: float
    initial_value: float = 0.1
    epsilon: float = 0.05
    learning_rate: float = 0.5


class AgentStep(NamedTuple):
    """A step as the world paid it, without a bonus, and whether the episode was over then."""

    state: int
    action: int
    reward: float
    successor: int
    episode_over: bool


def run_q_learning(
    environment: Any, available: NDArray[np.bool_], config: QLearningConfig, *, seed: int
) -> Iterator[AgentStep]:
    """The steps of an agent that learns as it goes, without end; the same key gives the same steps.

    `environment` has ids as observations, and `has` (S, A) says which actions a state has. The
    agent learns from what the environment pays, a bonus included.
    """
    draws = _uniform_stream(np.random.default_rng(seed))
    actions = [np.flatnonzero(row).tolist() for row in available]
    Q = np.where(available, config.initial_value, -np.inf).tolist()
    state, _ = environment.reset(seed=seed)
    while True:
        row = Q[state]
        choices = actions[state]
        if next(draws) >= config.epsilon:
            best = max(row)
            choices = [action for action in choices if row[action] == best]
        action = choices[int(next(draws) * len(choices))]
        successor, paid, terminated, truncated, info = environment.step(action)
        target = paid if terminated else paid + config.discount * max(Q[successor])
        row[action] += config.learning_rate * (target - row[action])
        over = terminated or truncated
        yield AgentStep(state, action, info.get("reward", paid), successor, over)
        state = environment.reset()[0] if over else successor


def _uniform_stream(rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from rng.random(RANDOM_BLOCK).tolist()


FIRST_UPDATE = 1000
"""Steps before the first estimate; each later one waits for twice as many as the last."""
DISTANCE_DISCOUNT = 0.9
"""That of the distance: nearer to 1, all states of a grid are about equally far apart."""

RELATIVE_TOLERANCE = 0.01
"""The error of an estimate, as a share of the largest distance that it can have."""


class OnlineDistance:
    """Puts better and better distances under the visits of an environment that `explore` made.

    The distance is the exact d~ of the MDP that the steps so far tell of, in which a state has the
    actions that were seen. As long as no two rewards differ nothing is known, and the visits stay
    under the distance that they began with.
    """

    def __init__(self, mdp: MDP, environment: Any, radius: float | None) -> None:
        self._shape = mdp.R.shape
        self._environment, self._radius = environment, radius

    def track(self, agent_steps: Iterator[AgentStep]) -> Iterator[AgentStep]:
        """The same steps; from time to time the distance is estimated again."""
        steps: list[AgentStep] = []
        enough = FIRST_UPDATE
        for step in agent_steps:
            steps.append(step)
            if len(steps) == enough:
                enough *= 2
                if len({each.reward for each in steps}) > 1:
                    visits = self._environment.visits
                    self._environment.visits = visits.under(
                        self._estimate(steps), radius=self._radius
                    )
            yield step

    def _estimate(self, steps: list[AgentStep]) -> Any:
        states, actions = self._shape
        # An end is a state that no step left, and to_mdp keeps those as they are.
        data = Transitions(
            [step.state for step in steps],
            [step.action for step in steps],
            [step.reward for step in steps],
            [step.successor for step in steps],
            np.zeros(len(steps), bool),
            [step.episode_over for step in steps],
            num_states=states,
            num_actions=actions,
        )
        mdp = data.to_mdp(discount=DISTANCE_DISCOUNT, unseen="missing")
        return exact.bisimulation(mdp, tol=RELATIVE_TOLERANCE * max(mdp.diameter_bound, 1.0))


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
    import_optional("gymnasium", CALLER, "worlds")
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
