"""Compare exploration bonuses: tabular Q-learning, several arms and seeds, one MDP.

`OnlineDistance` re-estimates d~ from the agent's own steps while it explores.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
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

BonusSource = Literal["none", "states", "distance", "own steps"]

FORMAT = "bisimetric exploration, version 1"
ARRAYS = ("steps", "visited", "goals", "first_goal")
"""The arrays of a saved comparison."""
NUM_POINTS = 100
"""Points of each learning curve."""
RANDOM_BLOCK = 4096
"""Random numbers that are generated together."""
FIRST_UPDATE = 1000
"""Steps before the first estimate of the distance; the number doubles for each later one."""
DISTANCE_DISCOUNT = 0.9
"""The discount of the distance: nearer to 1, all states of a grid are about equally far apart."""
RELATIVE_TOLERANCE = 0.01
"""The error of an estimate, relative to its diameter bound."""


@dataclasses.dataclass(frozen=True)
class QLearningConfig:
    """Q(s, a) += learning_rate * (reward + discount max_b Q(t, b) - Q(s, a)), epsilon-greedy.

    `initial_value` is Q of untried actions. A bonus raises the values of visited states, so that
    untried actions are chosen only if their initial values are higher still: optimistic
    initialisation. With 0 the agent does not explore.
    """

    discount: float
    initial_value: float = 0.1
    epsilon: float = 0.05
    learning_rate: float = 0.5


class AgentStep(NamedTuple):
    """A step with the environment's own reward, without bonus, and whether the episode ended."""

    state: int
    action: int
    reward: float
    successor: int
    episode_over: bool


def run_q_learning(
    environment: Any, available: NDArray[np.bool_], config: QLearningConfig, *, seed: int
) -> Iterator[AgentStep]:
    """Yield the steps of a Q-learning agent, without end; deterministic given the seed.

    `environment` has ids as observations; `available` (S, A) are the actions of each state. The
    agent learns from rewards with bonus.
    """
    uniforms = _uniform_stream(np.random.default_rng(seed))
    actions = [np.flatnonzero(Q_s).tolist() for Q_s in available]
    Q = np.where(available, config.initial_value, -np.inf).tolist()
    state, _ = environment.reset(seed=seed)
    while True:
        Q_s = Q[state]
        choices = actions[state]
        if next(uniforms) >= config.epsilon:
            best = max(Q_s)
            choices = [action for action in choices if Q_s[action] == best]
        action = choices[int(next(uniforms) * len(choices))]
        successor, reward, terminated, truncated, info = environment.step(action)
        target = reward if terminated else reward + config.discount * max(Q[successor])
        Q_s[action] += config.learning_rate * (target - Q_s[action])
        episode_over = terminated or truncated
        yield AgentStep(state, action, info.get("reward", reward), successor, episode_over)
        state = environment.reset()[0] if episode_over else successor


def _uniform_stream(rng: np.random.Generator) -> Iterator[float]:
    """Yield uniform random numbers."""
    while True:
        yield from rng.random(RANDOM_BLOCK).tolist()


class OnlineDistance:
    """Re-estimates the distance of a bonus from the agent's own steps.

    The distance is the exact d~ of the empirical MDP of all steps so far, with the observed actions
    only. As long as all rewards are equal, that is 0 everywhere, and the initial distance is kept.
    """

    def __init__(self, mdp: MDP, environment: Any, radius: float | None) -> None:
        self._shape = mdp.R.shape
        self._environment, self._radius = environment, radius

    def track(self, agent_steps: Iterator[AgentStep]) -> Iterator[AgentStep]:
        """Yield the same steps and update the distance of the bonus at intervals."""
        steps: list[AgentStep] = []
        next_update = FIRST_UPDATE
        for step in agent_steps:
            steps.append(step)
            if len(steps) == next_update:
                next_update *= 2
                if len({other.reward for other in steps}) > 1:
                    visits = self._environment.visits
                    self._environment.visits = visits.with_distance(
                        self._estimate(steps), radius=self._radius
                    )
            yield step

    def _estimate(self, steps: list[AgentStep]) -> Any:
        """Return d~ of the empirical MDP."""
        num_states, num_actions = self._shape
        # Terminal states have no outgoing step, and to_mdp makes those absorbing.
        transitions = Transitions(
            [step.state for step in steps],
            [step.action for step in steps],
            [step.reward for step in steps],
            [step.successor for step in steps],
            np.zeros(len(steps), bool),
            [step.episode_over for step in steps],
            num_states=num_states,
            num_actions=num_actions,
        )
        mdp = transitions.to_mdp(discount=DISTANCE_DISCOUNT, unseen="missing")
        return exact.bisimulation(mdp, tol=RELATIVE_TOLERANCE * max(mdp.diameter_bound, 1.0))


@dataclasses.dataclass(frozen=True)
class ExplorationArm:
    """One arm of the comparison.

    Attributes:
        source: of the bonus: "none"; "states", plain visit counts; "distance", visit counts under
            `d`; "own steps", under d~ of the empirical MDP of the agent's steps so far.
        d: the distance for "distance".
        bonus_scale: scale of the bonus, in units of the largest reward.
        initial_value: of the agent's Q, in the same units.
        epsilon: of the agent's epsilon-greedy policy.
        radius: of the bonus; default: the median of all distances above 0.
        rule: of the bonus, "counts" or "nearest".
    """

    source: BonusSource
    d: Any = None
    bonus_scale: float = 0.001
    initial_value: float = 0.1
    epsilon: float = 0.05
    radius: float | None = None
    rule: BonusRule = "counts"


@dataclasses.dataclass(frozen=True, eq=False)
class ExplorationComparison:
    """States visited and goals found, per arm and seed.

    Attributes:
        names: of the arms.
        steps: (n,), the steps at which the curves are measured.
        visited: (arms, seeds, n), distinct states visited, up to bisimulation.
        goals: (arms, seeds, n), how often the largest reward of the MDP was received.
        first_goal: (arms, seeds), the step of the first such reward; infinite where there is none.
        num_reachable: the number of distinct reachable states.
        metadata: the arms, the seeds, the length of episodes.
    """

    names: tuple[str, ...]
    steps: NDArray[np.int64]
    visited: NDArray[np.int64]
    goals: NDArray[np.int64]
    first_goal: NDArray[np.float64]
    num_reachable: int
    metadata: dict[str, Any]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one .npz file atomically."""
        fields = {name: getattr(self, name) for name in ARRAYS}
        about = {
            "format": FORMAT,
            "names": self.names,
            "num_reachable": self.num_reachable,
            "metadata": self.metadata,
        }
        write_record(path, about, fields)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ExplorationComparison:
        """Read a file written by `save`."""

        def build(names: list[str], **fields: Any) -> ExplorationComparison:
            return cls(tuple(names), **fields)

        return read_record(path, FORMAT, build, "no exploration ({}); run it again.")


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
    """Run an exploring agent once per arm and seed, and count visited states and goals.

    The agent is tabular Q-learning. Episodes terminate in terminal states and are truncated after
    `max_episode_steps`. The same seed gives the same run.

    Args:
        mdp: the MDP to explore, with a reward above 0.
        arms: by name.
        steps: environment steps per run.
        num_seeds: runs per arm.
        start: the start state, by id or name.
        max_episode_steps: the largest length of an episode.
        first_seed: the seed of the first run; the others follow.

    Returns:
        An `ExplorationComparison`.

    Raises:
        InputError: where there are no arms, no reward is above 0, or an option is out of range.

    >>> from bisimetric import worlds
    >>> mdp = worlds.load("mirrored-rooms")
    >>> arms = {"plain": ExplorationArm("none"), "counts": ExplorationArm("states")}
    >>> comparison = compare(mdp, arms, steps=300, num_seeds=2)
    >>> comparison.visited.shape, comparison.num_reachable
    ((2, 2, 100), 31)
    """
    import_optional("gymnasium", CALLER, "worlds")
    num_steps, num_runs = (
        require_integer(CALLER, "steps", steps, 1),
        require_integer(CALLER, "num_seeds", num_seeds, 1),
    )
    if not arms:
        raise InputError(f"{CALLER}: arms is empty; give at least one.")
    largest = float(mdp.R[mdp.action_mask].max())
    if largest <= 0:
        raise InputError(
            f"{CALLER}: the largest reward of the MDP is {largest:g}, so there is no goal to find; "
            "use an MDP with a reward above 0."
        )
    labels = relation.bisimulation(mdp)
    start_state = mdp.state(start)
    reachable_states = csgraph.breadth_first_order(
        _adjacency(mdp), start_state, return_predecessors=False
    )
    points = np.unique(
        np.linspace(0, num_steps, min(NUM_POINTS, num_steps) + 1).astype(np.int64)[1:]
    )
    shape = (len(arms), num_runs, len(points))
    visited, goals = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    first_goal = np.full(shape[:2], np.inf)
    with show_progress(len(arms) * num_runs, "runs") as progress:
        for (row, arm), column in itertools.product(enumerate(arms.values()), range(num_runs)):
            agent_steps = run_arm(mdp, arm, start_state, max_episode_steps, first_seed + column)
            trajectory = list(itertools.islice(agent_steps, num_steps))
            is_goal = np.array([step.reward for step in trajectory]) >= largest
            visited[row, column] = _count_distinct(labels, start_state, trajectory)[points - 1]
            goals[row, column] = np.cumsum(is_goal)[points - 1]
            if is_goal.any():
                first_goal[row, column] = int(is_goal.argmax()) + 1
            progress.set_position(row * num_runs + column + 1)
    metadata = {
        "arms": {name: _describe_arm(arm) for name, arm in arms.items()},
        "num_seeds": num_runs,
        "first_seed": first_seed,
        "start": mdp.state_name(start_state),
        "max_episode_steps": max_episode_steps,
        "discount": mdp.discount,
    }
    num_reachable = len(np.unique(labels[reachable_states]))
    return ExplorationComparison(
        tuple(arms), points, visited, goals, first_goal, num_reachable, metadata
    )


def run_arm(
    mdp: MDP, arm: ExplorationArm, start: int, max_episode_steps: int, seed: int
) -> Iterator[AgentStep]:
    """Yield the steps of one run, without end."""
    from bisimetric.uses.exploration.environments import MDPEnvironment

    reward_scale = float(mdp.R[mdp.action_mask].max())
    config = QLearningConfig(mdp.discount, reward_scale * arm.initial_value, arm.epsilon)
    environment: Any = MDPEnvironment(mdp, start, max_episode_steps)
    if arm.source != "none":
        discrete_metric = 1 - np.eye(mdp.num_states, dtype=np.float32)
        d, radius = (arm.d, arm.radius) if arm.source == "distance" else (discrete_metric, 0.0)
        environment = bonus(
            environment, d, bonus_scale=reward_scale * arm.bonus_scale, radius=radius, rule=arm.rule
        )
    agent_steps = run_q_learning(environment, mdp.action_mask, config, seed=seed)
    if arm.source != "own steps":
        return agent_steps
    return OnlineDistance(mdp, environment, arm.radius).track(agent_steps)


def _adjacency(mdp: MDP) -> Any:
    """Return the (S, S) adjacency matrix of successors."""
    source = np.repeat(np.arange(mdp.R.size), np.diff(mdp.P.indptr)) // mdp.num_actions
    shape = (mdp.num_states, mdp.num_states)
    return sparse.csr_array((np.ones(len(source)), (source, mdp.P.indices)), shape)


def _count_distinct(labels: NDArray[Any], start: int, steps: list[AgentStep]) -> NDArray[np.int64]:
    """Return the number of distinct states visited up to each step."""
    visited = labels[[start, *(step.successor for step in steps)]]
    _, first_visits = np.unique(visited, return_index=True)
    is_new = np.zeros(len(visited), np.int64)
    is_new[first_visits] = 1
    return np.cumsum(is_new)[1:]


def _describe_arm(arm: ExplorationArm) -> dict[str, Any]:
    """Return the fields of an arm for the metadata."""
    description = {field.name: getattr(arm, field.name) for field in dataclasses.fields(arm)}
    description["d"] = None if arm.d is None else repr(arm.d)
    return description
